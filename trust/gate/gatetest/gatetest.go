// Package gatetest serves gates over TLS in tests, with their own authority.
package gatetest

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"croft"
	"croft/trust/gate"
	"croft/trust/pki"
)

// Front is a running gate. It ends with the test.
type Front struct {
	Partition croft.PartitionID
	Address   string // host:port

	dir    string
	ca     *pki.CA
	mu     sync.Mutex
	forgot map[croft.HostID]bool
	stop   func()
	serve  func(net.Listener)
}

// Start serves the only gate of a partition. It sets Caller, Gates and Log of c.
func Start(t testing.TB, p croft.PartitionID, c gate.ServerConfig) *Front {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "pki")
	check(t, err)
	ca, err := pki.OpenCA(filepath.Join(dir, "ca"), p)
	check(t, err)
	f := &Front{Partition: p, dir: dir, ca: ca, forgot: map[croft.HostID]bool{}}
	server := f.files(t, pki.MemberIdentity(p, croft.NewHostID()), "127.0.0.1")
	c.Gates = func(context.Context) ([]string, error) { return []string{f.Address}, nil }
	c.Caller, c.Log = f.caller, slog.New(slog.NewTextHandler(t.Output(), nil))
	handler, err := gate.NewServer(c)
	check(t, err)
	f.serve = func(l net.Listener) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		s := &http.Server{Handler: handler, TLSConfig: server.Server(p, false, pki.Kinds(pki.Host)),
			BaseContext: func(net.Listener) context.Context { return ctx },
			ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, 0)}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = s.ServeTLS(l, "", "") }()
		f.stop = sync.OnceFunc(func() {
			cancel()
			if err := s.Shutdown(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
			<-ended
			handler.Wait()
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	f.Address = l.Addr().String()
	f.serve(l)
	t.Cleanup(func() { f.stop() })
	return f
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *Front) files(t testing.TB, id pki.Identity, names ...string) pki.Files {
	t.Helper()
	keeper := f.keeper(id, names...)
	_, err := keeper.Ensure(context.WithoutCancel(t.Context()))
	check(t, err)
	return keeper.Files
}

func (f *Front) keeper(id pki.Identity, names ...string) pki.Keeper {
	files := pki.Files{Dir: filepath.Join(f.dir, string(id.Kind)+id.ID), Authority: pki.Hosts}
	return pki.Keeper{Files: files, Issuer: f.ca.For(id, names...), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// Renew issues a new certificate to a host.
func (f *Front) Renew(t testing.TB, host croft.HostID) {
	t.Helper()
	keeper := f.keeper(pki.HostIdentity(f.Partition, host))
	_, err := keeper.Renew(t.Context(), "a test wants it")
	check(t, err)
}

func (f *Front) caller(r *http.Request) (croft.HostID, error) {
	id, ok := pki.Caller(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	if host := croft.HostID(id.ID); ok && !f.forgot[host] {
		return host, nil
	}
	return "", croft.Errorf(croft.Invalid, "the host was forgotten")
}

// Forget makes the gate refuse a host as unknown.
func (f *Front) Forget(host croft.HostID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgot[host] = true
}

// Restart stops the server and starts it at the same address.
func (f *Front) Restart(t testing.TB) {
	t.Helper()
	f.stop()
	l, err := net.Listen("tcp", f.Address)
	check(t, err)
	f.serve(l)
}

// TLS returns the TLS configuration of a host's agent.
func (f *Front) TLS(t testing.TB, host croft.HostID) *tls.Config {
	t.Helper()
	return f.files(t, pki.HostIdentity(f.Partition, host)).Client(f.Partition, pki.Kinds(pki.Member))
}

// Client returns the client of a host's agent, at the addresses of the gate or of a proxy in front of it. It
// ends with the test.
func (f *Front) Client(t testing.TB, host croft.HostID, addresses ...string) *gate.Client {
	t.Helper()
	if addresses == nil {
		addresses = []string{f.Address}
	}
	var endpoints []string
	for _, address := range addresses {
		endpoints = append(endpoints, "https://"+address)
	}
	c, err := gate.NewClient(gate.ClientConfig{Endpoints: endpoints, TLS: f.TLS(t, host), Host: host,
		Partition: f.Partition})
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}
