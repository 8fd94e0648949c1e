package local

import (
	"context"
	"net"
	"sync"
	"time"

	"croft"
	"croft/internal/sshgreeting"
)

// greeted remembers which guests' SSH servers have answered. A forgotten guest is asked again.
type greeted struct {
	mu   sync.Mutex
	seen map[croft.InstanceID]string // the address that answered
}

// mostRemembered bounds the number of remembered guests.
const mostRemembered = 10000

// greetTime is how long an SSH server may take to answer.
const greetTime = 2 * time.Second

func newGreeted() *greeted { return &greeted{seen: map[croft.InstanceID]string{}} }

// by reports whether an instance's SSH server answers at an address, or has answered there.
func (g *greeted) by(ctx context.Context, id croft.InstanceID, address string) bool {
	g.mu.Lock()
	known := g.seen[id] == address
	g.mu.Unlock()
	if known {
		return true
	}
	if !greets(ctx, net.JoinHostPort(address, "22")) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) >= mostRemembered {
		clear(g.seen)
	}
	g.seen[id] = address
	return true
}

// greets asks for the greeting of an SSH server once.
func greets(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	return sshgreeting.Read(ctx, address) == nil
}
