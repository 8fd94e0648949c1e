// Package probe dials nodes for the watch: over SSH from here, and from other nodes with the first program there that
// can open a TCP connection.
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

// script dials an sshd from a node. Exit codes: 0 it answers, 1 it does not, 9 this node has no program to dial with.
// The kernel accepts connections even if sshd hangs, so only bytes from sshd count as an answer, except with nc, which
// cannot read them.
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

// Prober dials nodes with an ssh.Dialer.
type Prober struct{ Dialer *ssh.Dialer }

var _ watch.Prober = (*Prober)(nil)

func unitOf(n *state.Node) unit.Node {
	return unit.Node{Name: n.Name, ID: n.ID, Local: n.Local, Address: n.Address, User: n.User, HostKey: n.HostKey}
}

// Direct implements watch.Prober. A machine that refuses the login, or has another host key, counts as an answer.
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

// Through implements watch.Prober. The other node gets an IP address, which this machine looks up, because names may
// not resolve there.
func (p *Prober) Through(ctx context.Context, via, n *state.Node) watch.Answer {
	host, port, err := p.Dialer.Reach(ctx, unitOf(n))
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
