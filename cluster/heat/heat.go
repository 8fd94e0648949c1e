// Package heat builds clusters at sites of OpenStack: each is one stack of Heat. It sends templates as they were
// written, and resolves nothing in them. A stack is ours by its tags alone: croft, croft-<partition> and
// croft-<cluster>.
//
// A request to Heat whose answer was lost may take effect later, and Heat can make two stacks of one name out of two
// requests at once. So a launch looks for the name afterwards and keeps one; and a removal of what was asked for and is
// not there holds the name by an empty stack for some time, which turns a late request away.
package heat

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/heat/template"
)

// Config is what a driver needs. All fields are optional.
type Config struct {
	Log *slog.Logger
	// Timeout is for each request to a site; 30 s by default.
	Timeout time.Duration
	// Settle is how long the name of a launch that may be under way is held before its removal ends; 90 s by default,
	// since Heat's API gives its engine 60 s.
	Settle time.Duration
	// Refresh is how old the outputs of a stack that did not change may be; 5 min by default.
	Refresh time.Duration
	// Linger is how long Bring waits for an upload; 5 s by default.
	Linger time.Duration
}

// Driver implements cluster.Driver. It remembers logins and answers, which are learned anew after a restart.
type Driver struct {
	config   Config
	sessions sessions
	uploads  uploads

	memory
}

var _ cluster.Driver = (*Driver)(nil)

// New returns a driver. It sends nothing.
func New(c Config) *Driver {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Timeout, c.Settle = cmp.Or(c.Timeout, 30*time.Second), cmp.Or(c.Settle, 90*time.Second)
	c.Refresh, c.Linger = cmp.Or(c.Refresh, 5*time.Minute), cmp.Or(c.Linger, 5*time.Second)
	d := &Driver{config: c, sessions: sessions{timeout: c.Timeout}, memory: newMemory()}
	d.uploads.init()
	return d
}

// Close ends uploads and idle connections. Images whose upload it ends are uploaded anew by the next Bring.
func (d *Driver) Close() {
	d.uploads.close()
	d.sessions.close()
}

// Check implements cluster.Driver.
func (d *Driver) Check(_ context.Context, i cluster.Implementation) (cluster.Contract, error) {
	if (i.Template == "") == (i.Image == "") {
		return cluster.Contract{}, croft.Errorf(croft.Invalid, "an implementation has a template or an image")
	}
	return template.Check(text(i))
}

// contract is Check of what was checked before, which is remembered.
func (d *Driver) contract(ctx context.Context, i cluster.Implementation) (cluster.Contract, error) {
	c, known := recall(&d.memory, d.contracts, i.ID)
	if known && i.ID != "" {
		return c, nil
	}
	c, err := d.Check(ctx, i)
	if err != nil {
		return c, err
	}
	remember(&d.memory, d.contracts, i.ID, c)
	return c, nil
}

// text returns what builds an implementation.
func text(i cluster.Implementation) string {
	if i.Template == "" {
		return template.Minimal
	}
	return i.Template
}

// connect logs in, and returns Heat of the site.
func (d *Driver) connect(ctx context.Context, at cluster.Access) (*api, error) {
	s, err := d.sessions.session(ctx, at)
	if err != nil {
		return nil, err
	}
	return s.heat()
}
