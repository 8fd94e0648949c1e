package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"croft/internal/checks"
)

// metadataAddr is where guests look for their metadata.
var metadataAddr = netip.MustParseAddrPort("169.254.169.254:80")

// lookMetadataServer distinguishes croft's metadata server of this cloud from another cloud's.
func (c Config) lookMetadataServer(ctx context.Context, p Probes, pid int32) checks.Result {
	found := fmt.Sprintf("croft serves %s (process %d)", metadataAddr.Addr(), pid)
	bridge := c.Bridge
	if c.Network != "" {
		n, err := p.Network(ctx, c.Network)
		if err != nil || n.Bridge == "" {
			return checks.Good(found) // the line about the network reports the problem
		}
		bridge = n.Bridge
	}
	server, err := p.MetadataServer(ctx, bridge, pid)
	if err != nil {
		return checks.Good(found + ", on another bridge")
	}
	if !server.Ours {
		return checks.Failure(fmt.Sprintf(
			"the croft of another cloud (process %d, partition %s) serves %s on %s, so that guests of this one get no metadata",
			pid, server.Cloud, metadataAddr.Addr(), bridge),
			"give this cloud a network of its own (network.name, network.bridge), or set metadata.server to false, so that its guests get a disk")
	}
	if server.Sibling != "" {
		return checks.Warning(fmt.Sprintf("%s on %s as the agent of host %s, another one of this cloud on this machine, so that "+
			"guests of this host get their metadata on a disk and cannot report that they are ready", found, bridge,
			server.Sibling),
			"give one of the two agents a network of its own (network.name, network.bridge) if that matters")
	}
	return checks.Good(found)
}

// lookMetadata finds other listeners at the metadata address: a web server that listens on port 80 of all addresses
// blocks croft's server.
func (c Config) lookMetadata(p Probes) look {
	return func(ctx context.Context) checks.Result {
		listeners, err := p.Listeners(ctx)
		if err != nil {
			return checks.Failure("list the listening sockets: "+err.Error(), "run this as root")
		}
		if l, taken := listenerOn(listeners, metadataAddr); taken {
			if l.Program == "croft" || c.Running != 0 && int(l.PID) == c.Running { // whatever its file is called
				return c.lookMetadataServer(ctx, p, l.PID)
			}
			return checks.Failure(fmt.Sprintf("%s listens on %s, so that guests get no metadata", l.who(), l.Addr),
				"let it listen on an address of its own, not on port 80 of every address")
		}
		links, err := p.Links()
		if err != nil {
			return checks.Failure("list the network interfaces: "+err.Error(), "run this as root")
		}
		for _, l := range links {
			for _, a := range l.Addresses {
				if a.Addr() == metadataAddr.Addr() && l.Name != c.Bridge {
					return checks.Warning(fmt.Sprintf("%s is an address of %s already", a.Addr(), l.Name),
						fmt.Sprintf("take it away (ip address del %s dev %s) unless another cloud on this host uses it",
							a, l.Name))
				}
			}
		}
		return checks.Good(metadataAddr.String() + " is free")
	}
}

// lookPort distinguishes croft's own listener from other programs. Without root, the process of a listener may be
// invisible, even to its own user.
func (c Config) lookPort(p Probes, port Port) look {
	return func(ctx context.Context) checks.Result {
		listeners, err := p.Listeners(ctx)
		if err != nil {
			return checks.Failure("list the listening sockets: "+err.Error(), "run this as root")
		}
		l, taken := listenerOn(listeners, port.Addr)
		switch {
		case !taken:
			return checks.Good(port.Addr.String() + " is free")
		case l.Program == "croft" || c.Running != 0 && int(l.PID) == c.Running:
			return checks.Good(fmt.Sprintf("%s is croft's own (process %d)", port.Addr, l.PID))
		case l.PID == 0 && c.Running != 0:
			return checks.Good(fmt.Sprintf("%s is in use, while croft runs with this state directory (process %d)",
				port.Addr, c.Running))
		}
		do := "stop that program"
		if l.PID == 0 {
			do = "run croft doctor as root, which names it"
		}
		return checks.Failure(fmt.Sprintf("%s is taken by %s", port.Addr, l.who()),
			do+", or set another address for "+port.Use)
	}
}

// listenerOn finds the listener that prevents listening on want: a socket on the same port of the same
// address, or of every address if either side uses all of them.
func listenerOn(listeners []Listener, want netip.AddrPort) (Listener, bool) {
	for _, l := range listeners {
		if l.Addr.Port() != want.Port() {
			continue
		}
		addr := l.Addr.Addr().Unmap()
		if addr == want.Addr() || addr.IsUnspecified() || want.Addr().IsUnspecified() {
			return l, true
		}
	}
	return Listener{}, false
}

func (l Listener) who() string {
	switch {
	case l.Program != "":
		return fmt.Sprintf("%s (process %d)", l.Program, l.PID)
	case l.PID != 0:
		return fmt.Sprintf("process %d", l.PID)
	}
	return "a process that this user cannot see"
}

func joinPrefixes(list []netip.Prefix) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = p.String()
	}
	return strings.Join(words, " ")
}
