package ssh

import (
	"context"
	"fmt"
	"strings"

	"croft"
)

// jumpsMax is how many machines a connection may go through.
const jumpsMax = 8

// route lists the machines on the way to one, which is the last. Only the first machine that ProxyJump names may have a
// ProxyJump of its own, as in OpenSSH.
func (d *Dialer) route(w where, trail []string) ([]*target, error) {
	t, err := d.config.target(w)
	if err != nil {
		return nil, err
	}
	trail = append(trail, t.String())
	if len(t.jumps) == 0 {
		return []*target{t}, nil
	}
	var list []*target
	for i, hop := range t.jumps {
		over, err := parseWhere(strings.TrimSpace(hop))
		if err != nil {
			return nil, fmt.Errorf("ProxyJump: %w", err)
		}
		if len(trail)+i >= jumpsMax {
			return nil, croft.Errorf(croft.Invalid, "ProxyJump leads over more than %d machines, or in a circle: %s",
				jumpsMax, strings.Join(trail, ", "))
		}
		if i == 0 {
			first, err := d.route(over, trail)
			if err != nil {
				return nil, err
			}
			list = append(list, first...)
			continue
		}
		next, err := d.config.target(over)
		if err != nil {
			return nil, err
		}
		list = append(list, next)
	}
	return append(list, t), nil
}

// A jump is a connection on which others stand. All of them share it, and it is replaced when it is lost, since no
// program runs over it.
type jump struct {
	turn chan struct{} // has a value while somebody connects
	conn *connection
}

// shared returns the connection to a machine that others are reached through. way names it and those before it.
func (d *Dialer) shared(ctx context.Context, way string, t *target, via *connection) (*connection, error) {
	d.mu.Lock()
	j := d.jumps[way]
	if j == nil {
		j = &jump{turn: make(chan struct{}, 1)}
		d.jumps[way] = j
	}
	d.mu.Unlock()
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return nil, croft.Errorf(croft.Unavailable, "wait for the connection to %s: %w", t, ctx.Err())
	}
	if j.conn != nil && !j.conn.ended() {
		return j.conn, nil
	}
	c, err := d.connect(ctx, "ProxyJump "+t.String(), t, via, "")
	if err == nil {
		j.conn = c
	}
	return c, err
}
