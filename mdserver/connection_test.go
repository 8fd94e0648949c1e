package mdserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"croft"
)

const oneID = croft.InstanceID("5d1b9c3e-7b8e-4c0a-8e4e-0f4dbe7f3a11")

// one resolves every address to one guest.
type one struct{}

func (one) Guest(context.Context, netip.Addr) (Guest, error) {
	g := FromOrder(croft.Order{Instance: oneID, Name: "one"})
	g.Ports = map[string]string{oneID.MAC(0).String(): "tap-one"}
	return g, nil
}

// kept is a listener that records the accepted connections.
type kept struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (k *kept) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.conns = append(k.conns, c)
	}
	return c, err
}

// serveOne serves one guest, with its address at the place from places.
func serveOne(t *testing.T, places placeOf, log *slog.Logger) (base string, l *kept) {
	t.Helper()
	s, err := New(Config{Guests: one{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = &kept{Listener: tcp}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = s.serve(ctx, l, places) })
	t.Cleanup(func() { cancel(); run.Wait() })
	return "http://" + tcp.Addr().String(), l
}

func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func ask(t *testing.T, c *http.Client, method, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestAnAddressUsedByAnothersCard(t *testing.T) {
	own := oneID.MAC(0)
	other := croft.InstanceID("0aa41f4b-93b5-4a6f-9d55-2a5f6bd0a2c7").MAC(0)
	at := func(card net.HardwareAddr, port string) placeOf {
		return func(netip.Addr) (place, error) { return place{card, port}, nil }
	}
	tests := []struct {
		name   string
		places placeOf
		status int
		logged string
	}{
		{"its own card and port", at(own, "tap-one"), 200, ""},
		{"a card that nobody knows", at(nil, ""), 503, "does not know which network card"},
		{"the card of another", at(other, "tap-one"), 404, "uses the address of another"},
		{"its own card, at the port of another", at(own, "tap-two"), 404, "uses the address of another"},
		{"its own card, at a port that nobody knows", at(own, ""), 503, "does not know which of its ports"},
		{"a place that cannot be looked up", func(netip.Addr) (place, error) {
			return place{}, errors.New("no netlink")
		}, 503, "no netlink"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log strings.Builder
			base, _ := serveOne(t, tt.places, slog.New(slog.NewTextHandler(&log, nil)))
			for _, c := range []struct{ method, path string }{{"GET", "/latest/meta-data/instance-id"}, {"GET", "/"}} {
				status, body := ask(t, client(t), c.method, base+c.path)
				if status != tt.status || status != 200 && strings.Contains(body, string(oneID)) {
					t.Errorf("%s %s: %d %q, want %d", c.method, c.path, status, body, tt.status)
				}
			}
			if status, body := ask(t, client(t), "PUT", base+tokenPath, ttlHeader, "60"); status != tt.status {
				t.Errorf("a token: %d %q, want %d", status, body, tt.status)
			}
			if !strings.Contains(log.String(), tt.logged) {
				t.Errorf("the log is %q, want %q in it", log.String(), tt.logged)
			}
		})
	}
}

// TestATokenIsSentOneHopFar: responses with a token must not pass a router.
func TestATokenIsSentOneHopFar(t *testing.T) {
	base, l := serveOne(t, nil, slog.New(slog.DiscardHandler))
	c := client(t)
	hops := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		raw, err := l.conns[0].(*net.TCPConn).SyscallConn() // the client reuses one connection
		if err != nil {
			t.Fatal(err)
		}
		var get error
		if err := raw.Control(func(fd uintptr) {
			n, get = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL)
		}); err != nil || get != nil {
			t.Fatal(err, get)
		}
		return n
	}
	if status, body := ask(t, c, "GET", base+"/latest/"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if n := hops(); n < 2 {
		t.Fatalf("metadata goes %d hops far", n)
	}
	if status, body := ask(t, c, "PUT", base+tokenPath, ttlHeader, "60"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if n := hops(); n != 1 {
		t.Errorf("a token goes %d hops far, want 1", n)
	}
}

func TestATokenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens()
		token := tokens.make(Guest{ID: oneID}, time.Now().Add(time.Minute))
		time.Sleep(59 * time.Second)
		if !tokens.good(token, Guest{ID: oneID}) {
			t.Error("it has ended too early")
		}
		if newTokens().good(token, Guest{ID: oneID}) {
			t.Error("a server that did not make it takes it")
		}
		time.Sleep(2 * time.Second)
		if tokens.good(token, Guest{ID: oneID}) {
			t.Error("it has not ended")
		}
	})
}

func TestReportsAreForgottenAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recent{pause: reportPause}
		if !r.enter("a") || r.enter("a") || !r.enter("b") {
			t.Error("the first report of a second counts, and no other")
		}
		time.Sleep(reportPause)
		if !r.enter("a") {
			t.Error("a second later it is refused")
		}
		if len(r.at) != 1 {
			t.Errorf("it remembers %d", len(r.at))
		}
	})
}

// TestSpoofersFillNoLog: a guest that keeps asking from another's address is logged once a minute.
func TestSpoofersFillNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s, err := New(Config{Guests: one{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for name, at := range map[string]place{
			"uses the address of another": {net.HardwareAddr{2, 0, 0, 0, 0, 1}, "tap-two"},
			"cannot find the instance":    {},
		} {
			log.Reset()
			ctx := withConnection(t.Context(), nil, func(netip.Addr) (place, error) { return at, nil })
			for range 200 {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/latest", nil)
				s.ServeHTTP(httptest.NewRecorder(), r)
				time.Sleep(time.Second)
			}
			if n := strings.Count(log.String(), name); n != 4 {
				t.Errorf("%q is in the log %d times in 200 seconds", name, n)
			}
			time.Sleep(warnPause)
		}
	})
}

// TestWhatIsRememberedOfMadeUpAddressesIsBounded: an attacker can invent more addresses than fit in the host's memory.
func TestWhatIsRememberedOfMadeUpAddressesIsBounded(t *testing.T) {
	r := recent{pause: time.Hour}
	for i := range 2 * mostRecent {
		r.enter(strconv.Itoa(i))
	}
	if len(r.at) != mostRecent {
		t.Errorf("it remembers %d", len(r.at))
	}
}
