package mdserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"croft"
)

type nobody struct{}

func (nobody) Guest(context.Context, netip.Addr) (Guest, error) {
	return Guest{}, croft.Errorf(croft.NotFound, "nobody")
}

func newServer(t *testing.T) *Server {
	t.Helper()
	s, err := New(Config{Guests: nobody{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// silent is a listener without clients; it ends with err once lost is closed.
type silent struct {
	lost chan struct{}
	once sync.Once
	err  error
}

func (l *silent) Accept() (net.Conn, error) {
	<-l.lost
	return nil, l.err
}

func (l *silent) Close() error {
	l.once.Do(func() { close(l.lost) })
	return nil
}

func (l *silent) Addr() net.Addr { return net.TCPAddrFromAddrPort(Address) }

func TestRunTakesOverWhenItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		bridgeGone := &silent{lost: make(chan struct{}), err: croft.Errorf(croft.Unavailable, "the address was taken")}
		last := &silent{lost: make(chan struct{}), err: net.ErrClosed}
		var at []time.Duration
		begin := time.Now()
		tries := []func() (net.Listener, error){
			func() (net.Listener, error) { return nil, croft.Errorf(croft.NotFound, "no such bridge") },
			func() (net.Listener, error) { return nil, fmt.Errorf("listen: %w", ErrServed) },
			func() (net.Listener, error) { return bridgeGone, nil },
			func() (net.Listener, error) { return last, nil },
		}
		var ran error
		var run sync.WaitGroup
		server := newServer(t)
		var readiness []string
		note := func() { readiness = append(readiness, fmt.Sprint(server.Ready(ctx))) }
		run.Go(func() {
			ran = server.run(ctx, "here", &server.trouble, nil, func() (net.Listener, error) {
				at = append(at, time.Since(begin))
				note()
				next := tries[0]
				tries = tries[1:]
				return next()
			})
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(at) != 3 || at[1] != retry || at[2] != 2*retry {
			t.Fatalf("Run tried at %v", at)
		}
		note()
		bridgeGone.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(at) != 4 {
			t.Fatalf("Run tried at %v", at)
		}
		note()
		cancel()
		run.Wait()
		if ran != nil {
			t.Errorf("Run ended with %v", ran)
		}
		// Another server of croft on the bridge counts as well as this one.
		want := []string{"guests are not served yet", "no such bridge", "<nil>", "<nil>",
			"serve metadata on 169.254.169.254:80: the address was taken", "<nil>"}
		if !slices.Equal(readiness, want) {
			t.Errorf("it was ready: %q\nwant %q", readiness, want)
		}
	})
}

func TestRunReturnsWhatDoesNotMend(t *testing.T) {
	for _, want := range []error{
		croft.Errorf(croft.Conflict, "another program listens"),
		croft.Errorf(croft.Invalid, "this needs root"),
		io.ErrUnexpectedEOF,
	} {
		err := newServer(t).run(t.Context(), "here", new(atomic.Pointer[error]), nil,
			func() (net.Listener, error) { return nil, want })
		if err != want {
			t.Errorf("%v: Run ended with %v", want, err)
		}
	}
}

// bridge creates a bridge that has the address already and no ports; the host can talk to itself over it.
func bridge(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a bridge needs root")
	}
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("cmd%d", os.Getpid())}}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netlink.LinkDel(link) })
	ip := &net.IPNet{IP: Address.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ip}); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return link.Name
}

func TestListenTellsCroftFromOthers(t *testing.T) {
	on := bridge(t)
	if err := Probe(t.Context(), on, Address); !errors.Is(err, croft.Unavailable) {
		t.Errorf("with nobody there, Probe says %v", err)
	}
	for name, tt := range map[string]struct {
		handler http.Handler
		served  bool
	}{
		"croft's own": {newServer(t), true},
		"a web server": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "It works!")
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Listen(t.Context(), on, Address)
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: tt.handler}
			var running sync.WaitGroup
			running.Go(func() { server.Serve(l) })
			defer running.Wait()
			defer server.Close()

			_, err = Listen(t.Context(), on, Address)
			if errors.Is(err, ErrServed) != tt.served || !errors.Is(err, croft.Conflict) {
				t.Errorf("a second Listen says %v", err)
			}
			if err := Probe(t.Context(), on, Address); (err == nil) != tt.served {
				t.Errorf("Probe says %v", err)
			}
		})
	}
}

// The second cloud on a bridge gets an error instead of waiting silently and forever.
func TestAnotherCloudsServerIsNotOurs(t *testing.T) {
	on := bridge(t)
	of := func(cloud croft.PartitionID) *Server {
		t.Helper()
		s, err := New(Config{Guests: nobody{}, Log: slog.New(slog.DiscardHandler), Partition: cloud})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := of("first")
	if err := first.Free(t.Context(), on, Address); err != nil {
		t.Errorf("with nobody there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := first.Run(ctx, on, Address); err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	for Probe(t.Context(), on, Address) != nil {
	}
	if other, err := Served(t.Context(), on, Address); err != nil || other.Partition != "first" {
		t.Errorf("it serves %+v, %v", other, err)
	}
	for cloud, other := range map[croft.PartitionID]bool{"first": false, "second": true, "": false} {
		if err := of(cloud).Free(t.Context(), on, Address); errors.Is(err, ErrOther) != other || err != nil &&
			croft.KindOf(err) != croft.Conflict {
			t.Errorf("to the cloud %q it is %v", cloud, err)
		}
	}
	if err := of("second").Run(t.Context(), on, Address); !errors.Is(err, ErrOther) ||
		!strings.Contains(err.Error(), "its partition is first") {
		t.Errorf("the second cloud's server ended with %v", err)
	}
	cancel()
	running.Wait()
}

// A second agent on the machine gets an error, so that it gives its guests disks and does not report that they are
// served.
func TestAnotherHostsServerIsNotOurs(t *testing.T) {
	on := bridge(t)
	of := func(host croft.HostID) *Server {
		t.Helper()
		s, err := New(Config{Guests: nobody{}, Log: slog.New(slog.DiscardHandler), Partition: "cloud", Host: host})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = of("h1").Run(ctx, on, Address) })
	for Probe(t.Context(), on, Address) != nil {
	}
	for host, other := range map[croft.HostID]bool{"h1": false, "h2": true, "": false} {
		if err := of(host).Free(t.Context(), on, Address); errors.Is(err, ErrSibling) != other {
			t.Errorf("to host %q it is %v", host, err)
		}
	}
	second := of("h2")
	running.Go(func() { _ = second.Run(ctx, on, Address) })
	for !second.Elsewhere() {
	}
	if err := second.Ready(t.Context()); !errors.Is(err, ErrSibling) {
		t.Errorf("the second host is ready: %v", err)
	}
}

// An agent that is restarting has no server for a moment. Its guests need the address even so.
func TestTheAddressIsLeftToTheHostWhoseGuestsNeedIt(t *testing.T) {
	on := bridge(t)
	needs := func(by croft.InstanceID, failure error) error {
		t.Helper()
		s, err := New(Config{Guests: nobody{}, Log: slog.New(slog.DiscardHandler), Partition: "cloud", Host: "h2",
			Reserved: func(context.Context) (croft.InstanceID, error) { return by, failure }})
		if err != nil {
			t.Fatal(err)
		}
		free := s.Free(t.Context(), on, Address)
		l, err := s.listen(t.Context(), on, Address)
		if err == nil {
			l.Close()
		}
		if croft.KindOf(free) != croft.KindOf(err) {
			t.Errorf("it is %v before the start and %v in operation", free, err)
		}
		return err
	}
	if err := needs("i1", nil); !errors.Is(err, ErrSibling) || !strings.Contains(err.Error(), "i1") {
		t.Errorf("where a guest of another host needs it: %v", err)
	}
	if err := needs("", croft.Errorf(croft.Unavailable, "libvirt is away")); !errors.Is(err, croft.Unavailable) {
		t.Errorf("where it is unknown: %v", err)
	}
	if err := needs("", nil); err != nil {
		t.Errorf("where no guest needs it: %v", err)
	}
}

func TestListenNeedsTheBridge(t *testing.T) {
	_, err := Listen(t.Context(), "no-such-bridge", Address)
	if !errors.Is(err, croft.NotFound) {
		t.Errorf("Listen says %v", err)
	}
}

func TestRunServesTheBridge(t *testing.T) {
	on := bridge(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := newServer(t).Run(ctx, on, Address); err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	for Probe(t.Context(), on, Address) != nil {
	}
	cancel()
	running.Wait()
	if err := Probe(t.Context(), on, Address); err == nil {
		t.Error("after Run somebody still answers")
	}
}
