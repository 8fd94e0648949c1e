package mdserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"croft"
	"croft/internal/linklocal"
)

// Address is where guests of every cloud look for their metadata.
var Address = netip.MustParseAddrPort("169.254.169.254:80")

// Address6 is where those that have IPv6 alone look.
var Address6 = netip.MustParseAddrPort("[fd00:ec2::254]:80")

// ErrServed says that the bridge has a metadata server of croft's already.
var ErrServed = croft.Errorf(croft.Conflict, "croft's metadata server is running on this bridge already")

const (
	healthPath = "/croft/health"
	healthBody = "croft metadata server\n"
)

// Listen puts the address on the guests' bridge, unless it is there, and listens
// on that bridge alone, so that several clouds with a bridge each can share a
// host. Closing the listener takes the address away iff Listen put it there; when
// the bridge loses it in another way, Accept ends with an error.
//
// NotFound: there is no such bridge (libvirt makes its own when the network
// starts). ErrServed: croft listens there already. Conflict: somebody else does.
func Listen(ctx context.Context, bridge string, at netip.AddrPort) (net.Listener, error) {
	l, err := linklocal.Listen(ctx, bridge, at)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if Probe(ctx, bridge, at) == nil {
		return nil, fmt.Errorf("listen on %s of %s: %w", at, bridge, ErrServed)
	}
	return nil, croft.Errorf(croft.Conflict, "listen on %s of %s: another program does so already; "+
		"stop it (ss -ltnp 'sport = :%d' names it), or run without the metadata server", at, bridge, at.Port())
}

// Probe asks, from the host itself, whether croft's metadata server answers on the
// bridge; nil is yes.
func Probe(ctx context.Context, bridge string, at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	transport := &http.Transport{
		DialContext:       linklocal.Dialer(bridge).DialContext,
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+healthPath, nil)
	if err != nil {
		return fmt.Errorf("ask the metadata server at %s: %w", at, err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return croft.Errorf(croft.Unavailable, "ask the metadata server at %s: %w", at, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(len(healthBody))))
	if err != nil {
		return croft.Errorf(croft.Unavailable, "ask the metadata server at %s: %w", at, err)
	}
	if resp.StatusCode != http.StatusOK || string(body) != healthBody {
		return croft.Errorf(croft.Conflict, "ask the metadata server at %s: what answers there is not croft's", at)
	}
	return nil
}

// fromHost: a connection whose two ends have one address was made on this host;
// the kernel drops packets from outside that claim such a source.
func fromHost(ctx context.Context, addr netip.Addr) bool {
	local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	to, err := netip.ParseAddrPort(local.String())
	return err == nil && to.Addr().Unmap() == addr
}
