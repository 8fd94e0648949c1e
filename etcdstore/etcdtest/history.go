package etcdtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// History records the writes to an etcd during a test, to find the cause of a failed check at its end.
type History struct {
	mu     sync.Mutex
	events []event
}

type event struct {
	at       time.Time
	revision int64
	text     string
}

// Record records all writes below /croft/ from now on until the test ends. It survives restarts of the server at the
// same address; writes that are compacted before it has received them are missing.
func Record(t testing.TB, endpoint string) *History {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	h := &History{}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	work.Go(func() { h.follow(ctx, etcd) })
	t.Cleanup(func() {
		end()
		work.Wait()
		_ = etcd.Close()
	})
	return h
}

// follow records until ctx ends, and starts a new watch after each watch that ends.
func (h *History) follow(ctx context.Context, etcd *clientv3.Client) {
	for next := int64(1); ctx.Err() == nil; {
		watching, end := context.WithCancel(ctx)
		for answer := range etcd.Watch(watching, "/croft/", clientv3.WithPrefix(), clientv3.WithRev(next)) {
			next = max(next, answer.CompactRevision)
			for _, e := range answer.Events {
				next = max(next, e.Kv.ModRevision+1)
				h.add(e)
			}
		}
		end()
	}
}

func (h *History) add(e *clientv3.Event) {
	text := fmt.Sprintf("%s %s %s", e.Type, e.Kv.Key, e.Kv.Value)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{at: time.Now(), revision: e.Kv.ModRevision, text: text})
}

// About returns the writes whose key or value contains the text, one line each, in their order. Each line starts with
// the time at which the write was received.
func (h *History) About(text string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, e := range h.events {
		if strings.Contains(e.text, text) {
			lines = append(lines, fmt.Sprintf("%s etcd %d %s", e.at.Format(Clock), e.revision, e.text))
		}
	}
	return lines
}

// Clock is the format of the times in a history; lines of other sources that start with such a time can be merged with
// it by sorting.
const Clock = "15:04:05.000000"
