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

// Address is where guests of any cloud look for their metadata.
var Address = netip.MustParseAddrPort("169.254.169.254:80")

// Address6 is where guests that only have IPv6 look.
var Address6 = netip.MustParseAddrPort("[fd00:ec2::254]:80")

// ErrServed reports that a metadata server of croft already serves the bridge.
var ErrServed = croft.Errorf(croft.Conflict, "croft's metadata server is running on this bridge already")

// ErrOther reports that the bridge has the metadata server of another cloud, so guests of this cloud would get no
// answer there.
var ErrOther = croft.Errorf(croft.Conflict,
	"the croft of another cloud serves metadata there, and guests of this one would never get theirs: "+
		"give this cloud a network of its own (network.name, network.bridge), or set metadata.server to false, so that its guests get a disk")

// ErrSibling reports that another host's agent on this machine serves the bridge, so guests of this host would get no
// answer there.
var ErrSibling = croft.Errorf(croft.Conflict,
	"the agent of another host on this machine serves metadata there, and guests of this host would never get theirs: "+
		"restart this agent, which then gives its guests a disk, or give it a network of its own (network.name)")

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

// listen is like Listen, for the guests of one host. ErrOther: the croft of another cloud listens there. ErrSibling:
// another host's agent listens there, or its guests need its server there.
func (s *Server) listen(ctx context.Context, bridge string, at netip.AddrPort) (net.Listener, error) {
	if err := s.reserved(ctx, bridge, at); err != nil {
		return nil, err
	}
	l, err := Listen(ctx, bridge, at)
	if errors.Is(err, ErrServed) {
		return nil, cmp.Or(s.Free(ctx, bridge, at), err)
	}
	return l, err
}

// reserved returns ErrSibling if guests of another host's agent need their server at the address: that agent may only
// be restarting.
func (s *Server) reserved(ctx context.Context, bridge string, at netip.AddrPort) error {
	if s.config.Reserved == nil {
		return nil
	}
	by, err := s.config.Reserved(ctx)
	if err != nil {
		return fmt.Errorf("serve metadata on %s of %s: %w", at, bridge, err)
	}
	if by != "" {
		return fmt.Errorf("serve metadata on %s of %s: %w (its instance %s needs it)", at, bridge, ErrSibling, by)
	}
	return nil
}

// Free returns ErrOther if the croft of another cloud serves metadata on the bridge, and ErrSibling if the agent of
// another host of this cloud does or has guests that need its server. Any other server, or none, is no error.
func (s *Server) Free(ctx context.Context, bridge string, at netip.AddrPort) error {
	other, err := Served(ctx, bridge, at)
	switch {
	case err != nil:
		return s.reserved(ctx, bridge, at)
	case other.Partition != "" && s.config.Partition != "" && other.Partition != s.config.Partition:
		return fmt.Errorf("serve metadata on %s of %s: %w (its partition is %s)", at, bridge, ErrOther, other.Partition)
	case other.Host != "" && s.config.Host != "" && other.Host != s.config.Host:
		return fmt.Errorf("serve metadata on %s of %s: %w (host %s)", at, bridge, ErrSibling, other.Host)
	}
	return nil
}

// Probe checks, from the host itself, whether croft's metadata server answers on the bridge; nil: it does.
func Probe(ctx context.Context, bridge string, at netip.AddrPort) error {
	_, err := Served(ctx, bridge, at)
	return err
}

// Identity identifies the guests that a metadata server serves. Older versions report only a part of it.
type Identity struct {
	Partition croft.PartitionID
	Host      croft.HostID
}

// Served returns, queried from the host itself, the identity of the metadata server on the bridge.
func Served(ctx context.Context, bridge string, at netip.AddrPort) (Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	transport := &http.Transport{
		DialContext:       linklocal.Dialer(bridge).DialContext,
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+healthPath, nil)
	if err != nil {
		return Identity{}, fmt.Errorf("ask the metadata server at %s: %w", at, err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return Identity{}, croft.Errorf(croft.Unavailable, "ask the metadata server at %s: %w", at, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(len(healthBody))))
	if err != nil {
		return Identity{}, croft.Errorf(croft.Unavailable, "ask the metadata server at %s: %w", at, err)
	}
	if resp.StatusCode != http.StatusOK || string(body) != healthBody {
		return Identity{}, croft.Errorf(croft.Conflict, "ask the metadata server at %s: what answers there is not croft's", at)
	}
	return Identity{croft.PartitionID(resp.Header.Get(cloudHeader)), croft.HostID(resp.Header.Get(hostHeader))}, nil
}
