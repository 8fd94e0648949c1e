package etcdserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
)

// certified returns a configuration with certificates of an authority, and credentials for it.
func certified(t *testing.T) (etcdserver.Config, etcdstore.Credentials) {
	t.Helper()
	a := etcdtest.NewAuthority(t)
	var c etcdserver.Config
	c.Cert, c.Key = a.Issue("server")
	c.ClientCA = a.File
	access := etcdstore.Credentials{CA: a.File}
	access.Cert, access.Key = a.Issue("client")
	return c, access
}

// silent opens n connections and sends nothing.
func silent(t *testing.T, address string, n int) []net.Conn {
	t.Helper()
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	return all
}

// wantEnded waits until the server closes connections.
func wantEnded(t *testing.T, conns []net.Conn) {
	t.Helper()
	for i, c := range conns {
		_ = c.SetReadDeadline(patient.Deadline(t))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is never closed", i)
		}
	}
}

// open counts the connections that the server has not closed.
func open(conns []net.Conn) (n int) {
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			n++
		}
	}
	return n
}

// Connections without a certificate are closed to make room for others, at the client port and at the peer port; those
// with a certificate continue.
func TestThoseWithoutACertificateStarveNobody(t *testing.T) {
	t.Parallel()
	const bound = 8
	kind, access := certified(t)
	kind = kind.Bounded(bound, bound, time.Hour, time.Hour, func(bool) {})
	c := etcdtest.StartClusterFor(t, 3, kind, access)
	store := etcdtest.Must(etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: c.Members[0].Clients,
		Credentials: access,
		DialTimeout: time.Minute}))(t)
	defer store.Close()
	etcd := etcdtest.Client(t, c.Servers[0], access)
	ended := atomic.Bool{}
	watch := etcd.Watch(t.Context(), "/a-watch-that-goes-on")
	go func() {
		for range watch {
		}
		ended.Store(true)
	}()
	term := func() uint64 {
		return etcdtest.Must(etcd.Status(patient.Context(t), c.Members[0].Clients[0]))(t).RaftTerm
	}
	var made int
	flood := func() (closed int) { // returns how many of the latest connections to one address were closed
		for _, m := range c.Servers {
			for _, address := range []string{strings.TrimPrefix(m.Endpoint(), "https://"), m.PeerAddress()} {
				all := silent(t, address, 4*bound)
				wantEnded(t, all[:3*bound])
				closed = max(closed, bound-open(all[3*bound:]))
				for _, c := range all {
					_ = c.Close()
				}
			}
			patient.Until(t, "a client with a certificate is served", func() bool {
				made++
				_, err := store.Instances.Create(patient.Context(t), etcdtest.NewInstance(fmt.Sprintf("web-%d", made)))
				if err != nil && croft.KindOf(err) != croft.Unavailable { // a new leader is elected
					t.Fatal(err)
				}
				return err == nil
			})
		}
		return closed
	}
	// On a busy machine an election may make members reconnect: then the result of a flood has no meaning.
	patient.Until(t, "a flood leaves the leader alone, and closes only what came first", func() bool {
		before, closed := term(), flood()
		now := term()
		t.Logf("term %d, then %d; %d of the last %d closed", before, now, closed, bound)
		return now == before && closed <= 3 // our own client may have been the latest
	})
	if ended.Load() {
		t.Error("a watch of a client with a certificate ended")
	}
}

func TestAConnectionHasToSayWhoItIsInTime(t *testing.T) {
	t.Parallel()
	kind, _ := certified(t)
	for name, c := range map[string]etcdserver.Config{"with TLS": kind, "in plain text": {}} {
		t.Run(name, func(t *testing.T) {
			c.Peer = freeport.For(t, "127.0.0.1")
			server := etcdtest.ServerWith(t, c.Bounded(100, 100, 50*time.Millisecond, time.Hour, func(bool) {}))
			addresses := []string{server.Endpoint()[strings.Index(server.Endpoint(), "//")+2:], server.PeerAddress()}
			for _, address := range addresses {
				wantEnded(t, silent(t, address, 3))
				half := silent(t, address, 1)
				// only the start of a handshake
				if _, err := io.WriteString(half[0], "\x16\x03\x01"); err != nil {
					t.Fatal(err)
				}
				wantEnded(t, half)
			}
		})
	}
}

// A client that sends requests and reads no answers is closed, even with a certificate.
func TestWhoReadsNoAnswersIsClosed(t *testing.T) {
	t.Parallel()
	kind, access := certified(t)
	ended := make(chan struct{}, 1000)
	server := etcdtest.ServerWith(t, kind.Bounded(100, 100, time.Hour, 100*time.Millisecond, func(peer bool) {
		if !peer {
			ended <- struct{}{}
		}
	}))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(etcdtest.Must(os.ReadFile(access.CA))(t))
	pair := etcdtest.Must(tls.LoadX509KeyPair(access.Cert, access.Key))(t)
	own := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	conn := etcdtest.Must(tls.Dial("tcp", strings.TrimPrefix(server.Endpoint(), "https://"), own))(t)
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // until it is closed: 100 answers of 50 KB exceed all buffers
		for ctx.Err() == nil {
			if _, err := fmt.Fprintf(conn, "GET /metrics HTTP/1.1\r\nHost: etcd\r\n\r\n"); err != nil {
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-patient.Context(t).Done():
		t.Fatal("it is open still")
	}
}
