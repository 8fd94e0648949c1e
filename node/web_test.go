package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft/node/settings"
)

type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestBodiesHaveToComeInTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration // between two pieces of 16 KiB
		size  int
		whole bool
	}{
		{"a body that drips", 15 * time.Second, 1, false},
		{"a body that comes over a slow line", 900 * time.Millisecond, bodyRate, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const pieces = 100
				read := make(chan int, 1)
				server := newServer(t.Context(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					n, _ := io.Copy(io.Discard, r.Body)
					read <- int(n)
					time.Sleep(time.Hour) // the deadline is for the body, not for the response
					if r.Context().Err() != nil && c.whole {
						t.Error("the request ended while it was answered")
					}
				}))
				l := make(pipes, 1)
				near, far := net.Pipe()
				l <- near
				done := make(chan struct{})
				go func() { _ = server.Serve(l); close(done) }()
				began := time.Now()
				go func() {
					_, err := fmt.Fprintf(far, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n",
						pieces*c.size)
					for i := 0; i < pieces && err == nil; i++ {
						time.Sleep(c.every)
						_, err = far.Write(make([]byte, c.size))
					}
					_, _ = io.Copy(io.Discard, bufio.NewReader(far))
				}()
				n := <-read
				if whole := n == pieces*c.size; whole != c.whole {
					t.Errorf("%d bytes of %d were read, in %s", n, pieces*c.size, time.Since(began))
				}
				if took := time.Since(began); !c.whole && took > 2*bodyTime {
					t.Errorf("it was read for %s", took)
				}
				time.Sleep(2 * time.Hour)
				_ = far.Close()
				close(l)
				<-done
				_ = server.Close()
				synctest.Wait()
			})
		})
	}
}

func TestNamesThatAServerIsCalled(t *testing.T) {
	s := settings.Defaults()
	s.ServerNames = []string{"Cloud.Example."}
	names := s.ServedNames("http://ctl.example:8778, http://10.0.0.1:8778")
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, c := range []struct {
		listen, host string
		taken        bool
	}{
		{"127.0.0.1:8779", "evil.example", false},
		{"[::1]:8779", "evil.example", false},
		{"localhost:8779", "evil.example", false},
		{"127.0.0.1:8779", "cloud.example:8779", true},
		{"127.0.0.1:8779", "ctl.example", true},
		{"127.0.0.1:8779", "", true}, // HTTP/1.0; no browser
		{"192.0.2.1:8779", "evil.example", true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		CalledAt(names, c.listen, ok).ServeHTTP(w, r)
		if taken := w.Code == http.StatusNoContent; taken != c.taken {
			t.Errorf("a server at %s takes %q: %v", c.listen, c.host, taken)
		}
	}
}

// A response that the client does not read is aborted together with its request, in either version of HTTP. A response
// that is read slowly or written in pieces is not aborted.
func TestAnswersHaveToBeRead(t *testing.T) {
	for _, version := range []string{"HTTP/1", "HTTP/2"} {
		for _, c := range []struct {
			name         string
			write, pause time.Duration // between pieces of 64 KiB
			reads        bool
			whole        bool
		}{
			{"an answer that nobody reads", 0, 0, false, false},
			{"an answer that is read slowly", 0, drainTime / 10, true, true},
			{"an answer that comes slowly", 2 * drainTime, 0, true, true},
		} {
			t.Run(version+", "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const pieces, size = 200, 64 << 10
					ended := make(chan error, 1)
					server := newServer(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						var err error
						for i := 0; i < pieces && err == nil; i++ {
							time.Sleep(c.write)
							_, err = w.Write(make([]byte, size))
						}
						ended <- err
					}))
					protocols := &http.Protocols{}
					protocols.SetHTTP1(version == "HTTP/1")
					protocols.SetUnencryptedHTTP2(version == "HTTP/2")
					server.Protocols = protocols
					l := make(pipes, 1)
					near, far := net.Pipe()
					l <- near
					done := make(chan struct{})
					go func() { _ = server.Serve(limited(l)); close(done) }()
					client := &http.Transport{Protocols: protocols, DisableCompression: true,
						DialContext: func(context.Context, string, string) (net.Conn, error) { return far, nil }}
					ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/", nil)
					if err != nil {
						t.Fatal(err)
					}
					answer, err := client.RoundTrip(ask)
					if err != nil {
						t.Fatal(err)
					}
					for c.reads {
						time.Sleep(c.pause)
						if _, err := io.ReadFull(answer.Body, make([]byte, size)); err != nil {
							break
						}
					}
					if err := <-ended; (err == nil) != c.whole {
						t.Errorf("it ended with %v", err)
					}
					_ = answer.Body.Close()
					client.CloseIdleConnections()
					_ = far.Close()
					close(l)
					<-done
					_ = server.Close()
					synctest.Wait()
				})
			})
		}
	}
}

// Metrics contain the names of all tenants' instances. A proxy on this machine sends requests of other clients from
// loopback.
func TestMetricsAreNotToldThroughAProxyWithoutAToken(t *testing.T) {
	plain := &Self{metrics: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler)}
	secured := &Self{metrics: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler), token: "secret"}
	for _, c := range []struct {
		name         string
		self         *Self
		address      string
		host, header string
		token        string
		status       int
	}{
		{"this machine", plain, "127.0.0.1:8779", "127.0.0.1:8779", "", "", http.StatusOK},
		{"this machine by its name", plain, "[::1]:8779", "localhost:8779", "", "", http.StatusOK},
		{"another machine", plain, "192.0.2.1:8779", "192.0.2.1:8779", "", "", http.StatusForbidden},
		{"a proxy that keeps the name", plain, "127.0.0.1:8779", "cloud.example", "", "", http.StatusForbidden},
		{"a proxy that tells of it", plain, "127.0.0.1:8779", "127.0.0.1:8779", "X-Forwarded-For", "",
			http.StatusForbidden},
		{"an address for tenants", plain, "", "127.0.0.1:8781", "", "", http.StatusForbidden},
		{"an address for tenants, with the token", secured, "", "cloud.example", "X-Forwarded-For", "secret",
			http.StatusOK},
		{"an address for tenants, with another token", secured, "", "127.0.0.1:8781", "", "guess",
			http.StatusUnauthorized},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = c.host
		if c.header != "" {
			r.Header.Set(c.header, "198.51.100.1")
		}
		r.Header.Set("Authorization", "Bearer "+c.token)
		w := httptest.NewRecorder()
		c.self.metricsAt(c.address).ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: %d, want %d", c.name, w.Code, c.status)
		}
	}
}
