package etcdserver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"croft/etcdstore/etcdserver"
)

// A client's watches share one stream. When many ended at once, the client waited to send their ends while the server
// waited to send its answers, and no watch of the process received anything any more.
func TestManyWatchesThatEndAtOnceDoNotStopTheOthers(t *testing.T) {
	t.Parallel()
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0",
		Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	etcd := server.Client()
	defer etcd.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kept := etcd.Watch(ctx, "kept")
	for round := range 5 {
		many, end := context.WithCancel(ctx)
		for i := range 600 {
			etcd.Watch(many, fmt.Sprintf("key/%d", i))
		}
		end()
		put, err := etcd.Put(ctx, "kept", fmt.Sprint(round))
		if err != nil {
			t.Fatal(err)
		}
		select {
		case got, ok := <-kept:
			if !ok || got.Err() != nil || got.Header.Revision != put.Header.Revision {
				t.Fatalf("round %d: the watch delivers %+v (open: %v), want revision %d", round, got, ok,
					put.Header.Revision)
			}
		case <-ctx.Done():
			t.Fatalf("round %d: the watch delivers nothing", round)
		}
	}
}
