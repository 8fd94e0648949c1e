// Package probe dials nodes for the watch: over SSH from here, and from other nodes with whatever those have to open a
// TCP connection with.
package probe

import (
	"context"
	"errors"
	"net"

	"croft"
	"croft/grid/machine"
	"croft/grid/ssh"
	"croft/grid/state"
	"croft/grid/unit"
	"croft/grid/watch"
)

// script dials from a node: 0 somebody answers, 1 nobody does, 9 this node has nothing to dial with. The kernel of a
// machine takes connections for an sshd that hangs, so an answer is what sshd says first; nc alone cannot hear it.
const script = `h=$1 p=$2
if command -v bash >/dev/null && command -v timeout >/dev/null; then
	timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1" && read -r -n 1 _ <&3' "$h" "$p" 2>/dev/null && exit 0
	exit 1
elif command -v ssh-keyscan >/dev/null; then
	test -n "$(ssh-keyscan -T 5 -p "$p" "$h" 2>/dev/null)" && exit 0
	exit 1
elif nc -h 2>&1 | grep -q -e '-z'; then
	nc -z -w 5 "$h" "$p" >/dev/null 2>&1 && exit 0
	exit 1
fi
exit 9
`

// Prober dials over a Dialer.
type Prober struct{ Dialer *ssh.Dialer }

var _ watch.Prober = (*Prober)(nil)

func unitOf(n *state.Node) unit.Node {
	return unit.Node{Name: n.Name, ID: n.ID, Local: n.Local, Address: n.Address, User: n.User, HostKey: n.HostKey}
}

// Direct implements watch.Prober: a machine that refuses the login, or shows another host key, is there.
func (p *Prober) Direct(ctx context.Context, n *state.Node) watch.Answer {
	if n.Local {
		return watch.Yes
	}
	m := p.Dialer.Remote(unitOf(n))
	defer m.Close()
	err := m.Connect(ctx)
	switch {
	case err == nil, errors.Is(err, croft.Denied):
		return watch.Yes
	case errors.Is(err, croft.Unavailable):
		return watch.No
	}
	return watch.Unknown
}

// Through implements watch.Prober. The other node gets the address as this one knows it, so what only this machine's
// names lead to is unknown to it and asked by address.
func (p *Prober) Through(ctx context.Context, via, n *state.Node) watch.Answer {
	host, port, err := p.Dialer.Reach(unitOf(n))
	if err != nil {
		return watch.Unknown
	}
	if net.ParseIP(host) == nil {
		addresses, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil || len(addresses) == 0 {
			return watch.Unknown
		}
		host = addresses[0]
	}
	m := p.Dialer.Remote(unitOf(via))
	defer m.Close()
	_, err = machine.Output(ctx, m, nil, "sh", "-c", script, "probe", host, port)
	exit, ended := errors.AsType[*machine.Exit](err)
	switch {
	case err == nil:
		return watch.Yes
	case ended && exit.Code == 1:
		return watch.No
	}
	return watch.Unknown
}
