package hosts_test

import (
	"context"
	"testing"
	"time"

	"croft"
	"croft/hosts"
)

// answers is a fence agent with one answer.
type answers struct {
	*diary
	err   error
	asked *croft.Host
}

func (answers) Knows(croft.Host) error { return nil }

func (a answers) Off(_ context.Context, h croft.Host) error {
	*a.asked = h
	_ = a.step("off", h.Name)
	return a.err
}

func TestAHostIsDeclaredDeadOnlyIfItIsOff(t *testing.T) {
	no := croft.Errorf(croft.Conflict, "it is on")
	unknown := croft.Errorf(croft.Unavailable, "nobody answers")
	dead := &croft.Death{Begun: time.Unix(1, 0), Declared: time.Unix(1, 0)}
	for name, c := range map[string]struct {
		host      croft.Host
		answer    error
		confirmed bool
		kind      croft.Kind
		steps     []string
	}{
		"yes": {croft.Host{}, nil, false, "", []string{"begin death a", "off one", "declare dead a", "list",
			"list"}},
		"no": {croft.Host{}, no, false, croft.Conflict, []string{"begin death a", "off one", "end death a"}},
		"unknown": {croft.Host{}, unknown, false, croft.Unavailable, []string{"begin death a", "off one",
			"end death a"}},
		"yes, of a host that is alive": {croft.Host{Alive: true}, nil, false, "", []string{"begin death a", "off one",
			"declare dead a", "list", "list"}},
		"an operator confirms it": {croft.Host{}, nil, true, "", []string{"begin death a", "declare dead a", "list",
			"list"}},
		"an operator confirms it of a host that is alive": {croft.Host{Alive: true}, nil, true, croft.Conflict, nil},
		"dead": {croft.Host{Death: dead}, no, false, "", []string{"list", "list"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.host.ID, c.host.Name = "a", "one"
			d := &diary{hosts: []croft.Host{c.host}}
			f := d.fleet(t)
			asked := croft.Host{}
			f.Power = answers{d, c.answer, &asked}
			_, err := f.Fence(t.Context(), "one", c.confirmed)
			if croft.KindOf(err) != c.kind || (err == nil) != (c.kind == "") {
				t.Errorf("got %v, want %q", err, c.kind)
			}
			d.want(t, append([]string{"list"}, c.steps...)...)
		})
	}
}

// A fence agent is described by the name of its host, which must not mean another machine.
func TestTheFenceAgentOfAHostWithoutItsOwnNameIsFoundByUUID(t *testing.T) {
	a := croft.Host{ID: croft.NewHostID(), Name: "one"}
	d := &diary{hosts: []croft.Host{a, {ID: croft.NewHostID(), Name: "one"}}}
	f := d.fleet(t)
	asked := croft.Host{}
	f.Power = answers{d, nil, &asked}
	if _, err := f.Fence(t.Context(), string(a.ID), false); err != nil {
		t.Error(err)
	}
	if asked.ID != a.ID || asked.Name != "" {
		t.Errorf("asked about %+v, want host %s without a name", asked, a.ID)
	}
}

// deathsOf are the hosts of a fleet whose death others change while a fence runs.
type deathsOf struct {
	hosts.Store
	now croft.Death // as stored
}

func (d *deathsOf) BeginDeath(context.Context, croft.HostID) (croft.Death, error) {
	return croft.Death{Revision: 1, CreateRevision: 1}, nil
}

func (d *deathsOf) DeclareDead(ctx context.Context, h croft.HostID, was croft.Death,
	how croft.FenceResult) (croft.Death, error) {
	if was.Revision != d.now.Revision {
		return was, croft.Errorf(croft.Conflict, "it has changed")
	}
	return d.Store.DeclareDead(ctx, h, was, how)
}

func (d *deathsOf) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	all, err := d.Store.Hosts(ctx, ids...)
	for id, h := range all {
		if len(ids) > 0 {
			h.Death = &d.now
			all[id] = h
		}
	}
	return all, err
}

func TestAFenceSurvivesOthersThatChangeTheHostMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		now  croft.Death
		kind croft.Kind
	}{
		"another fence was faster": {croft.Death{Revision: 2, CreateRevision: 1, Declared: time.Unix(1, 0)}, ""},
		"the host was drained":     {croft.Death{Revision: 2, CreateRevision: 1, Drained: true}, ""},
		"the host was taken back, and another fence began": {croft.Death{Revision: 3, CreateRevision: 3},
			croft.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			d := &diary{hosts: []croft.Host{{ID: "a", Name: "one"}}}
			f := d.fleet(t)
			f.Power = answers{d, nil, &croft.Host{}}
			f.Hosts = &deathsOf{Store: f.Hosts, now: c.now}
			h, err := f.Fence(t.Context(), "one", false)
			if croft.KindOf(err) != c.kind || (err == nil) != (c.kind == "") || err == nil && !h.IsDead() {
				t.Errorf("got %+v, %v, want %q", h.Death, err, c.kind)
			}
		})
	}
}
