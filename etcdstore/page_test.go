package etcdstore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/page/session"
	"croft/etcdstore/etcdtest"
)

func TestSessionsOfThePageHaveALimitAndEndWithTheirLeases(t *testing.T) {
	server := etcdtest.Server(t)
	all := etcdtest.Open(t, server).PageSessions
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	leases := func() int {
		t.Helper()
		got, err := client.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(got.Leases)
	}
	before := leases()
	record := session.Record{Sealed: []byte("x"), Created: time.Now().UTC(), Expires: time.Now().UTC().Add(time.Hour)}
	const most, logins = 4, 60
	var work sync.WaitGroup
	for n := range logins {
		work.Go(func() {
			if err := all.Put(t.Context(), "holder", fmt.Sprint(n), record, most); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	kept := 0
	for n := range logins {
		_, err := all.Get(t.Context(), "holder", fmt.Sprint(n))
		switch croft.KindOf(err) {
		case croft.NotFound:
		case "":
			kept++
		default:
			t.Fatal(err)
		}
	}
	if kept != most {
		t.Errorf("%d logins at once leave %d sessions, want %d", logins, kept, most)
	}
	if n := leases() - before; n != most {
		t.Errorf("%d sessions have %d leases", most, n)
	}
	for n := range logins {
		if err := all.Remove(t.Context(), "holder", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.PutLink(t.Context(), "link", record); err != nil {
		t.Fatal(err)
	}
	if _, err := all.TakeLink(t.Context(), "link"); err != nil {
		t.Fatal(err)
	}
	if n := leases() - before; n != 0 {
		t.Errorf("%d leases outlive what they were for", n)
	}
}
