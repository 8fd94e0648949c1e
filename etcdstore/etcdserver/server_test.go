package etcdserver_test

import (
	"errors"
	"net/http"
	"testing"

	"croft"
	"croft/etcdstore/etcdserver"
)

func TestADirectoryIsOfOneProcess(t *testing.T) {
	t.Parallel()
	c := etcdserver.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Unsynced: true}
	first, err := etcdserver.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcdserver.Start(t.Context(), c); !errors.Is(err, croft.Conflict) {
		t.Errorf("the second: got %v, want a conflict", err)
	}
	first.Close()
	again, err := etcdserver.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestEtcdIsReadByNoWebPage(t *testing.T) {
	t.Parallel()
	etcd, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0",
		Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	for host, want := range map[string]int{"": http.StatusOK, "localhost:2379": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest} {
		for _, path := range []string{"/health", "/metrics", "/version"} {
			ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, etcd.Endpoint()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			ask.Host = host
			ask.Header.Set("Origin", "http://evil.example")
			answer, err := http.DefaultClient.Do(ask)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s with Host %q: %s, want %d", path, host, answer.Status, want)
			}
			if may := answer.Header.Get("Access-Control-Allow-Origin"); may != "" {
				t.Errorf("%s lets pages of %q read the answer", path, may)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
