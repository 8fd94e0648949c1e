package placementcheck

import (
	"context"
	"math/rand/v2"

	"github.com/google/uuid"
)

// client sends one request after the other.
type client struct {
	check  *Check
	group  int
	id     int
	shared []string
	rand   *rand.Rand
	mine   []*owned
}

// owned is a consumer that only this client changes.
type owned struct {
	id         string
	generation int64
}

func (c *client) run(ctx context.Context, requests int) {
	for n := 0; n < requests && ctx.Err() == nil; n++ {
		c.one(ctx)
	}
}

// one sends a random request; kinds that are likely to conflict are more frequent.
func (c *client) one(ctx context.Context) {
	switch n := c.rand.IntN(100); {
	case n < 35:
		c.claim(ctx)
	case n < 55:
		c.release(ctx)
	case n < 62:
		c.move(ctx)
	case n < 66:
		c.resize(ctx)
	case n < 74:
		c.contend(ctx)
	case n < 84 && len(c.mine) > 0:
		c.do(ctx, request{kind: consumer, consumer: c.pick().id}, false)
	case n < 92:
		c.do(ctx, request{kind: provider, provider: c.rand.IntN(2)}, false)
	default:
		c.do(ctx, request{kind: usage, provider: c.rand.IntN(2)}, false)
	}
}

func (c *client) do(ctx context.Context, q request, private bool) answer {
	return c.check.do(ctx, c.group, c.id, q, private)
}

func (c *client) pick() *owned { return c.mine[c.rand.IntN(len(c.mine))] }

func (c *client) forget(o *owned) {
	for i, m := range c.mine {
		if m == o {
			c.mine = append(c.mine[:i], c.mine[i+1:]...)
			return
		}
	}
}

// wish returns random amounts from one provider or both.
func (c *client) wish() amounts {
	want := amounts{int64(c.rand.IntN(3)), int64(c.rand.IntN(3))}
	if want == (amounts{}) {
		want[c.rand.IntN(2)] = 1
	}
	return want
}

// claim creates a consumer with a claim, or changes an existing claim.
func (c *client) claim(ctx context.Context) {
	o := &owned{id: uuid.NewString(), generation: none}
	if len(c.mine) > 1 || len(c.mine) > 0 && c.rand.IntN(2) == 0 {
		o = c.pick()
	}
	isNew := o.generation == none
	switch a := c.do(ctx, request{kind: claim, consumer: o.id, want: c.wish(), generation: o.generation}, true); {
	case a.verdict == done:
		o.generation = max(o.generation, 0) + 1
		if isNew {
			c.mine = append(c.mine, o)
		}
	case a.verdict == unknown:
		c.forget(o) // its claim stays unchanged
	}
}

func (c *client) release(ctx context.Context) {
	if len(c.mine) == 0 {
		return
	}
	o := c.pick()
	if a := c.do(ctx, request{kind: release, consumer: o.id}, true); a.verdict != unsent {
		c.forget(o)
	}
}

func (c *client) move(ctx context.Context) {
	if len(c.mine) == 0 {
		return
	}
	o, to := c.pick(), &owned{id: uuid.NewString(), generation: 1}
	switch a := c.do(ctx, request{kind: move, consumer: o.id, other: to.id, want: c.wish(), generation: o.generation},
		true); a.verdict {
	case done:
		c.forget(o)
		c.mine = append(c.mine, to)
	case unknown:
		c.forget(o)
	}
}

// resize reads a provider's generation and changes its total, unless another client changes the provider in between.
func (c *client) resize(ctx context.Context) {
	p := c.rand.IntN(2)
	now := c.do(ctx, request{kind: usage, provider: p}, false)
	if now.verdict == done {
		places := c.check.config.Places
		c.do(ctx, request{kind: resize, provider: p, generation: now.generation, total: 1 + c.rand.Int64N(2*places)},
			false)
	}
}

// contend creates or deletes a consumer that other clients change too.
func (c *client) contend(ctx context.Context) {
	id := c.shared[c.rand.IntN(len(c.shared))]
	if c.rand.IntN(2) == 0 {
		c.do(ctx, request{kind: claim, consumer: id, want: c.wish(), generation: none}, false)
	} else {
		c.do(ctx, request{kind: release, consumer: id}, false)
	}
}
