package mdserver

import (
	"cmp"
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
	"croft/mdserver/linklocal"
)

// Address is where guests of every cloud look for their metadata.
var Address = netip.MustParseAddrPort("169.254.169.254:80")

// Address6 is where guests with IPv6 only look.
var Address6 = netip.MustParseAddrPort("[fd00:ec2::254]:80")

// ErrServed says that a metadata server of croft already serves the bridge.
var ErrServed = croft.Errorf(croft.Conflict, "croft's metadata server is running on this bridge already")

// ErrOther says that the bridge has the metadata server of another cloud, so guests of this cloud would get
// nothing there.
var ErrOther = croft.Errorf(croft.Conflict,
	"the croft of another cloud serves metadata there, and guests of this one would never get theirs: "+
		"give this cloud a network of its own (network.name, network.bridge), or set metadata.server to false, so that its guests get a disk")

// Listen adds the address to the guests' bridge, if it is missing, and listens on that bridge only, so that
// several clouds with a bridge each can share a host. Closing the listener removes the address iff Listen
// added it; if the bridge loses it otherwise, Accept returns an error.
//
// NotFound: there is no such bridge (libvirt creates its own when the network starts). ErrServed: croft
// listens there already. Conflict: another program does.
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

// listen is Listen for the guests of one cloud. ErrOther: the croft of another cloud listens there.
func (s *Server) listen(ctx context.Context, bridge string, at netip.AddrPort) (net.Listener, error) {
	l, err := Listen(ctx, bridge, at)
	if errors.Is(err, ErrServed) {
		return nil, cmp.Or(s.Free(ctx, bridge, at), err)
	}
	return l, err
}

// Free returns ErrOther if the croft of another cloud serves metadata on the bridge. Any other server, or
// none, is no error.
func (s *Server) Free(ctx context.Context, bridge string, at netip.AddrPort) error {
	cloud, err := Served(ctx, bridge, at)
	if err != nil || cloud == "" || s.config.Partition == "" || cloud == s.config.Partition {
		return nil
	}
	return fmt.Errorf("serve metadata on %s of %s: %w (its partition is %s)", at, bridge, ErrOther, cloud)
}

// Probe checks, from the host itself, whether croft's metadata server answers on the bridge; nil: it does.
func Probe(ctx context.Context, bridge string, at netip.AddrPort) error {
	_, err := Served(ctx, bridge, at)
	return err
}

// Served asks, from the host itself, which cloud's metadata server answers on the bridge. Older versions do
// not report their cloud.
func Served(ctx context.Context, bridge string, at netip.AddrPort) (cloud croft.PartitionID, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	transport := &http.Transport{
		DialContext:       linklocal.Dialer(bridge).DialContext,
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+healthPath, nil)
	if err != nil {
		return "", fmt.Errorf("ask the metadata server at %s: %w", at, err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", croft.Errorf(croft.Unavailable, "ask the metadata server at %s: %w", at, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(len(healthBody))))
	if err != nil {
		return "", croft.Errorf(croft.Unavailable, "ask the metadata server at %s: %w", at, err)
	}
	if resp.StatusCode != http.StatusOK || string(body) != healthBody {
		return "", croft.Errorf(croft.Conflict, "ask the metadata server at %s: what answers there is not croft's", at)
	}
	return croft.PartitionID(resp.Header.Get(cloudHeader)), nil
}
