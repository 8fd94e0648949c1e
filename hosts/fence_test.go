package hosts_test

import (
	"context"
	"testing"
	"time"

	"croft"
)

// answers is a fence agent with one answer.
type answers struct {
	*diary
	err   error
	asked *croft.Host
}

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
