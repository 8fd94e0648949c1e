package hosts_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/hosts"
)

// offer returns a candidate with the given free amount of ten.
func offer(host croft.HostID, leaves int64) croft.Candidate {
	return croft.Candidate{Allocations: map[croft.HostID]croft.Resources{host: {croft.VCPU: 1, croft.DiskGB: 1}},
		Summaries: map[croft.HostID]croft.Summary{host: {Capacity: croft.Resources{croft.VCPU: 10},
			Used: croft.Resources{croft.VCPU: 9 - leaves}}}}
}

// web returns a drained host with an ephemeral instance.
func (w *world) web(change func(*croft.Instance)) hosts.Host {
	inst := croft.Instance{ID: "web", Name: "web", Host: "d", State: croft.StateScheduled,
		Spec: croft.Spec{
			InstanceSettings: croft.InstanceSettings{Ephemeral: true}, Resources: croft.Resources{croft.VCPU: 1}}}
	if change != nil {
		change(&inst)
	}
	d := w.known[3]
	return hosts.Host{Host: d, Instances: []croft.Status{{Instance: inst,
		Order: &croft.Order{Want: croft.WantStopped}}}}
}

// An instance moves to the target of an earlier attempt, else to the host that accepts orders and has the most capacity
// left.
func TestWhereAnInstanceMoves(t *testing.T) {
	unknown, own, silent, drained := offer("x", 9), offer("d", 9), offer("e", 9), offer("f", 9)
	for _, c := range []struct {
		name   string
		offers []croft.Candidate
		going  croft.HostID
		to     croft.HostID
	}{
		{"to where more is left", []croft.Candidate{offer("b", 1), offer("c", 4)}, "", "c"},
		{"whatever comes first", []croft.Candidate{offer("c", 4), offer("b", 1)}, "", "c"},
		{"to where it was going", []croft.Candidate{offer("c", 4), offer("b", 1)}, "b", "b"},
		{"to no host that does not take it", []croft.Candidate{unknown, own, silent, drained, offer("b", 0)}, "", "b"},
		{"nowhere", []croft.Candidate{unknown, own, silent, drained}, "", ""},
		{"nowhere", nil, "", ""},
	} {
		w := away()
		w.known = append(w.known, croft.Host{ID: "f", Name: "six", Alive: true, Drained: true})
		w.candidates = c.offers
		h := w.web(func(i *croft.Instance) { i.Moving = c.going })
		moved, err := w.fleet(t).MoveAll(t.Context(), hosts.Host{Host: w.known[1], Instances: h.Instances})
		if err != nil || len(moved) != 1 || moved[0].To.ID != c.to || (moved[0].Stays == "") != (c.to != "") {
			t.Errorf("%s: got %+v, %v", c.name, moved, err)
		}
		if c.to != "" && !slices.Contains(w.steps, "relocate to "+string(c.to)+" stopped") {
			t.Errorf("%s: done %q; what is stopped stays stopped", c.name, w.steps)
		}
	}
}

// A hold that is being ended has no claim any more, or soon none; an order would outlive its record.
func TestWhatIsNotOrderedStays(t *testing.T) {
	for _, state := range []croft.State{croft.StateHeld, croft.StateScheduling} {
		w := away()
		w.candidates = []croft.Candidate{offer("b", 4)}
		h := w.web(func(i *croft.Instance) { i.State = state })
		moved, err := w.fleet(t).MoveAll(t.Context(), hosts.Host{Host: w.known[1], Instances: h.Instances})
		if err != nil || len(moved) != 1 || moved[0].Stays == "" || len(w.steps) > 0 {
			t.Errorf("%s: got %+v, %v; done %q", state, moved, err, w.steps)
		}
	}
}

// Every failure is reported, except where another host may succeed.
func TestAMoveThatFailsSaysWhy(t *testing.T) {
	full, conflict := croft.Errorf(croft.NoCapacity, "planned"), croft.Errorf(croft.Conflict, "planned")
	for _, c := range []struct {
		name, step string
		err        error
		to         croft.HostID // empty: it stays, or the move fails
		fails      bool
	}{
		{"no candidates are read", "candidates", errPlanned, "", true},
		{"no hosts are read", "hosts", errPlanned, "", true},
		{"its claim is not read", "claim of web", errors.New("planned"), "", true},
		{"its record is not written", "moving to c", errors.New("planned"), "", true},
		{"its record is another's", "moving to c", conflict, "", false},
		{"the best host is full", "claim on c", full, "b", false},
		{"the best host is silent by now", "relocate to c stopped", errPlanned, "b", false},
		{"its claim changes all the time", "claim on c", conflict, "", false},
	} {
		w := away()
		w.candidates, w.fails[c.step] = []croft.Candidate{offer("c", 4), offer("b", 1)}, c.err
		moved, err := w.fleet(t).MoveAll(t.Context(), hosts.Host{Host: w.known[1], Instances: w.web(nil).Instances})
		if (err != nil) != c.fails || !c.fails && (len(moved) != 1 || moved[0].To.ID != c.to) {
			t.Errorf("%s: got %+v, %v; done %q", c.name, moved, err, w.steps)
		}
	}
}

// An interrupted move ends at its target, or where the guest is.
func TestHowAMoveIsEnded(t *testing.T) {
	for _, c := range []struct {
		name   string
		host   croft.Host
		offers []croft.Candidate
		fails  string
		want   string // the last step
		kind   croft.Kind
	}{
		{"its host is to be emptied", croft.Host{ID: "d", Alive: true, Drained: true}, []croft.Candidate{offer("b", 1)},
			"", "relocate to b stopped", ""},
		{"and nobody has room", croft.Host{ID: "d", Alive: true, Drained: true}, nil, "", "moving to ", ""},
		{"and nobody can tell", croft.Host{ID: "d", Alive: true, Drained: true}, nil, "candidates", "candidates",
			croft.Unavailable},
		{"its host is in use", croft.Host{ID: "d", Alive: true}, []croft.Candidate{offer("b", 1)}, "", "moving to ",
			""},
		{"its host is silent", croft.Host{ID: "d", Drained: true}, []croft.Candidate{offer("b", 1)}, "",
			"moving to ", ""},
		{"hosts cannot be read", croft.Host{ID: "d"}, nil, "hosts", "hosts", croft.Unavailable},
		{"its host has no room any more", croft.Host{ID: "d"}, nil, "claim on d", "claim on d", croft.Unavailable},
	} {
		w := away()
		w.known[3], w.candidates = c.host, c.offers
		w.fails[c.fails] = errPlanned
		st := w.web(func(i *croft.Instance) { i.Moving = "b" }).Instances[0]
		err := w.fleet(t).EndMove(t.Context(), st)
		if last := w.steps[len(w.steps)-1]; last != c.want || croft.KindOf(err) != c.kind {
			t.Errorf("%s: done %q, %v", c.name, w.steps, err)
		}
	}
	w := away() // the move is complete already
	if err := w.fleet(t).EndMove(t.Context(),
		w.web(func(i *croft.Instance) { i.Host = "b" }).Instances[0]); err != nil ||
		w.steps[len(w.steps)-1] != "claim on b" {
		t.Errorf("done %q, %v", w.steps, err)
	}
}

func TestWhatAnAuditHasDone(t *testing.T) {
	for _, fails := range []error{nil, errPlanned} {
		w := away()
		inst := w.web(nil).Instances[0].Instance
		w.fails["order web running on d"], w.fails["claim on d"] = fails, fails
		if err := w.fleet(t).Reorder(t.Context(), inst, croft.WantRunning); !errors.Is(err, fails) ||
			!slices.Equal(w.steps, []string{"order web running on d"}) {
			t.Errorf("an order: done %q, %v", w.steps, err)
		}
		w.steps = nil
		if err := w.fleet(t).Reclaim(t.Context(), inst); !errors.Is(err, fails) ||
			!slices.Equal(w.steps, []string{"claim of web", "moving to ", "claim on d"}) {
			t.Errorf("a claim: done %q, %v", w.steps, err)
		}
	}
}

// An instance is requested again with its query; without one, with its resources.
func TestWhatAMoveAsksFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*croft.Instance)
		want   url.Values
	}{
		{"its query", func(i *croft.Instance) { i.Spec.Query = "resources=VCPU:3" },
			url.Values{"resources": {"VCPU:3"}}},
		{"its size", nil, url.Values{"resources": {"VCPU:1"}}},
		{"its networks", func(i *croft.Instance) { i.Spec.Networks = []string{croft.DefaultNetworks, "lab"} },
			url.Values{"resources": {"VCPU:1"}, "required": {string(croft.NetworkTrait("lab"))}}},
	} {
		w := away()
		_, err := w.fleet(t).MoveAll(t.Context(), hosts.Host{Host: w.known[1], Instances: w.web(c.change).Instances})
		got, _ := url.ParseQuery(w.query)
		if err != nil || got.Encode() != c.want.Encode() {
			t.Errorf("%s: asked %q, %v", c.name, w.query, err)
		}
	}
}

// The fence of a move shows whether it is complete: at its target, with no move pending.
func TestAFenceTellsWhereAMovedInstanceIs(t *testing.T) {
	for _, c := range []struct {
		name         string
		host, moving croft.HostID
		on           croft.HostID // the host with the claim at the end
		to           croft.HostID
	}{
		{"it is there", "b", "", "b", "b"},
		{"it is there and moves on", "b", "c", "b", ""},
		{"it is where it was", "a", "b", "a", ""},
	} {
		d, h := moving()
		d.fails["order running on b not on a"] = func() error {
			d.inst.Host, d.inst.Moving = c.host, c.moving
			return errPlanned
		}
		moved, err := d.fleet(t).MoveAll(t.Context(), h)
		if err != nil || len(moved) != 1 || moved[0].To.ID != c.to || d.on != c.on {
			t.Errorf("%s: got %+v, %v, and the claim on %s", c.name, moved, err, d.on)
		}
	}
}

// An instance near a location stays near when it is moved, and goes to the nearest host first.
func TestAMoveKeepsAnInstanceNear(t *testing.T) {
	for _, c := range []struct {
		name, near string
		to         croft.HostID
	}{
		{"as near as there is room", "s/r/k", "b"},
		{"in the rack", "s/r/k:rack", "b"},
		{"where there is no host in the other site", "t:site", ""},
		{"wherever more is left", "", "c"},
		{"as near as is stated", "s/r/m:8 by network", "c"},
		{"farther than is stated", "s/r/m:7 by network", ""},
	} {
		w := away()
		w.known[1].Location, w.known[2].Location = "s/r/k", "s/r/l"
		w.candidates = []croft.Candidate{offer("c", 4), offer("b", 1)}
		h := w.web(func(i *croft.Instance) {
			if c.near != "" {
				text, kind, _ := strings.Cut(c.near, " by ")
				all, err := croft.ParseNears([]string{text}, nil, kind)
				if err != nil {
					t.Fatal(err)
				}
				all[0].Location = all[0].To
				i.Spec.Near = all
			}
		})
		moved, err := w.fleet(t).MoveAll(t.Context(), hosts.Host{Host: w.known[1], Instances: h.Instances})
		if err != nil || len(moved) != 1 || moved[0].To.ID != c.to {
			t.Errorf("%s: got %+v, %v, want %q", c.name, moved, err, c.to)
		}
	}
}

// chooser returns hosts in a fixed order.
type chooser struct {
	order []croft.HostID
	err   error
}

func (c chooser) Order(context.Context, croft.Instance) ([]croft.HostID, error) {
	return c.order, c.err
}

// An instance whose host a policy chose moves to the next host of the policy, independent of the capacity of others.
func TestAPolicyChoosesWhereAnInstanceMoves(t *testing.T) {
	for _, c := range []struct {
		name    string
		chooser chooser
		to      croft.HostID
		refused []croft.Refusal
	}{
		{"the next in its order", chooser{order: []croft.HostID{"d", "b", "c"}}, "b",
			[]croft.Refusal{{Host: "d", Why: "it was moved away from there"}}},
		{"past what takes no orders and has no room", chooser{order: []croft.HostID{"e", "a", "x", "c", "b"}}, "c",
			[]croft.Refusal{{Host: "e", Why: "its agent is not running"}, {Host: "a", Why: "its agent is not running"},
				{Host: "x", Why: "it was forgotten"}}},
		{"to none that its policy does not choose", chooser{order: []croft.HostID{"d", "e"}}, "", nil},
		{"nowhere if its policy chooses none", chooser{err: croft.Errorf(croft.NoCapacity, "planned")}, "", nil},
	} {
		w := away()
		w.candidates = []croft.Candidate{offer("c", 9), offer("b", 1)}
		h := w.web(func(i *croft.Instance) { i.Spec.Policy = &croft.CrushPolicy{Name: "p"} })
		fleet := w.fleet(t)
		fleet.Chooser = c.chooser
		moved, err := fleet.MoveAll(t.Context(), h)
		if err != nil || len(moved) != 1 || moved[0].To.ID != c.to || (moved[0].Stays == "") != (c.to != "") {
			t.Errorf("%s: got %+v, %v", c.name, moved, err)
		}
		if c.to != "" && !slices.Equal(w.refused, c.refused) {
			t.Errorf("%s: the record says %+v, want %+v", c.name, w.refused, c.refused)
		}
	}
}
