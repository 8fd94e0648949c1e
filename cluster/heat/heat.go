// Package heat is the driver for sites of type OpenStack: it builds each cluster as one stack of Heat. It sends
// templates unchanged, and resolves no references in them. A stack belongs to this driver only if it has its tags:
// croft, croft-<partition> and croft-<cluster>.
//
// A request to Heat whose answer was lost may take effect later, and two concurrent requests can create two stacks of
// one name. So a launch lists the stacks of the name afterwards and keeps one. A removal of a stack that was asked for
// but does not exist reserves the name with an empty stack for some time, so that Heat rejects the late request.
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

// Config configures a driver. All fields are optional.
type Config struct {
	Log *slog.Logger
	// Timeout bounds each request to a site; 30 s by default.
	Timeout time.Duration
	// Settle is how long a removal reserves the name of a launch that may still be in progress; 90 s by default, since
	// Heat's API gives its engine 60 s.
	Settle time.Duration
	// Refresh is the maximum age of the outputs of an unchanged stack; 5 min by default.
	Refresh time.Duration
	// Linger is how long Bring waits for an upload; 5 s by default.
	Linger time.Duration
}

// Driver implements cluster.Driver. It caches logins and responses, which a restart loses without harm.
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

// Close ends uploads and closes idle connections. The next Bring repeats the uploads that Close ended.
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

// contract returns the result of Check, cached per implementation.
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

// text returns the template of an implementation.
func text(i cluster.Implementation) string {
	if i.Template == "" {
		return template.Minimal
	}
	return i.Template
}

// connect logs in, and returns the Heat API of the site.
func (d *Driver) connect(ctx context.Context, at cluster.SiteAccess) (*api, error) {
	s, err := d.sessions.session(ctx, at)
	if err != nil {
		return nil, err
	}
	return s.heat()
}
