package audit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/hosts/audit"
)

// diary is a cloud with at most one instance. It records reads and writes in order, and fails the planned
// ones.
type diary struct {
	inst  *croft.Instance // nil: no instance
	seen  croft.State     // the instance's state; empty: not observed
	steps []string
	fails map[string]func() error // by step; a step whose function returns nil is executed
}

type (
	diaryRecords struct {
		audit.Records // nil, as the next: methods not defined here are never called
		*diary
	}
	placement   = audit.Claims // a type, because the field would have the name of a method
	diaryClaims struct {
		placement
		*diary
	}
	diaryAgents struct {
		audit.Agents
		*diary
	}
	diaryFleet struct{ *diary }
)

var errPlanned = croft.Errorf(croft.Unavailable, "planned")

func planned() error { return errPlanned }

func (d *diary) step(words ...string) error {
	s := strings.Join(words, " ")
	d.steps = append(d.steps, s)
	if fail := d.fails[s]; fail != nil {
		return fail()
	}
	return nil
}

func (d *diary) auditor(t *testing.T) *audit.Auditor {
	t.Helper()
	a, err := audit.New(audit.Config{Records: diaryRecords{diary: d}, Instances: diaryRecords{diary: d},
		Registry: diaryRecords{diary: d}, Claims: diaryClaims{diary: d},
		Agents: diaryAgents{diary: d}, Fleet: diaryFleet{d}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// want compares the steps and clears them.
func (d *diary) want(t *testing.T, steps ...string) {
	t.Helper()
	if !slices.Equal(d.steps, steps) {
		t.Errorf("done: %q, want %q", d.steps, steps)
	}
	d.steps = nil
}

func (d diaryRecords) Evidence(context.Context) (audit.Evidence, error) {
	e := audit.Evidence{}
	if d.inst != nil {
		e.Instances = map[croft.InstanceID]croft.Instance{d.inst.ID: *d.inst}
	}
	return e, d.step("evidence")
}

func (d diaryRecords) Hosts(_ context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	all := map[croft.HostID]croft.Host{}
	for _, id := range ids {
		all[id] = croft.Host{ID: id, API: "api of " + string(id)}
	}
	return all, d.step("hosts")
}

func (d diaryRecords) List(context.Context, croft.Project) ([]croft.Status, error) {
	if d.inst == nil {
		return nil, d.step("list")
	}
	st := croft.Status{Instance: *d.inst}
	if d.seen != "" {
		st.Observation = &croft.Observation{State: d.seen}
	}
	return []croft.Status{{Instance: croft.Instance{ID: "other"}}, st}, d.step("list")
}

func (d diaryRecords) Fence(context.Context, croft.Instance) (croft.Instance, error) {
	if err := d.step("fence"); err != nil {
		return croft.Instance{}, err
	}
	return *d.inst, nil
}

func (d diaryRecords) Discard(context.Context, croft.Instance) error { return d.step("discard") }

func (d diaryRecords) Drop(_ context.Context, of audit.Difference) error {
	return d.step("drop", string(of.Kind))
}

func (d diaryRecords) PutName(_ context.Context, i croft.Instance) error {
	return d.step("put name of", string(i.ID))
}

func (d diaryRecords) PutAddress(_ context.Context, i croft.Instance) error {
	return d.step("put address of", string(i.ID))
}

func (d diaryRecords) PutMember(_ context.Context, i croft.Instance) error {
	return d.step("put member", string(i.ID))
}

func (d diaryClaims) Release(ctx context.Context, _ croft.InstanceID, may croft.Permit) error {
	on, err := may(ctx)
	if err != nil {
		return err
	}
	words := []string{"release"}
	for _, h := range on {
		words = append(words, string(h))
	}
	return d.step(words...)
}

func (d diaryAgents) RemoveFiles(_ context.Context, h croft.Host, id croft.InstanceID) error {
	return d.step("remove files of", string(id), "by", h.API)
}

func (d diaryFleet) EndMove(_ context.Context, st croft.Status) error {
	return d.step("end move of", string(st.Instance.ID))
}

func (d diaryFleet) Reclaim(_ context.Context, i croft.Instance) error {
	return d.step("reclaim for", string(i.ID))
}

func (d diaryFleet) Reorder(_ context.Context, i croft.Instance, want croft.Want) error {
	return d.step("order", string(i.ID), string(want))
}

// one is a cloud with an instance on host a.
func one() *diary {
	return &diary{inst: &croft.Instance{ID: "web", Name: "web", Host: "a", State: croft.StateScheduled, Revision: 7},
		fails: map[string]func() error{}}
}

func TestALeakedClaimIsReleasedAfterAnotherLook(t *testing.T) {
	leak := audit.Difference{Kind: audit.LeakedClaim, Instance: "web", Host: "a", Mendable: true}
	d := one() // the UUID is in use again
	if err := d.auditor(t).Mend(t.Context(), leak); !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	d.want(t, "evidence")
	d.inst = nil
	d.fails["evidence"] = planned
	if err := d.auditor(t).Mend(t.Context(), leak); !errors.Is(err, errPlanned) {
		t.Errorf("got %v, want that it cannot be told", err)
	}
	d.want(t, "evidence")
	d.fails = nil
	if err := d.auditor(t).Mend(t.Context(), leak); err != nil {
		t.Error(err)
	}
	d.want(t, "evidence", "release a") // and not elsewhere
	d.fails = map[string]func() error{"release a": planned}
	if err := d.auditor(t).Mend(t.Context(), leak); !errors.Is(err, errPlanned) {
		t.Errorf("got %v, want that it is claimed still", err)
	}
}

func TestAnAbandonedRequestKeepsItsRecordForItsClaim(t *testing.T) {
	abandoned := audit.Difference{Kind: audit.AbandonedRequest, Instance: "web", Revision: 7, Mendable: true}
	d := one()
	d.inst.State = croft.StateScheduling
	for i, broken := range []string{"fence", "release", "discard", ""} {
		d.fails = map[string]func() error{broken: planned}
		if err := d.auditor(t).Mend(t.Context(), abandoned); (broken == "") != (err == nil) {
			t.Errorf("%q fails: got %v", broken, err)
		}
		d.want(t, []string{"list", "fence", "release", "discard"}[:min(i+2, 4)]...)
	}
	d.fails["fence"] = func() error { d.inst.State = croft.StateScheduled; return nil }
	if err := d.auditor(t).Mend(t.Context(), abandoned); !errors.Is(err, croft.Conflict) {
		t.Errorf("its scheduler was in time: got %v", err)
	}
	d.want(t, "list", "fence")
}

// An operator's command that dies after it marked an instance as lost leaves the claim, and then no attempt to recreate
// the instance can claim.
func TestTheClaimOfALostInstanceIsReleased(t *testing.T) {
	e := healthy()
	inst := e.Instances[web]
	inst.State, inst.Host, inst.Lost = croft.StateLost, "", &croft.Loss{Host: h1, HostName: "one"}
	e.Instances[web] = inst
	leaks := 0
	for _, diff := range audit.Compare(*e) {
		if diff.Kind == audit.LeakedClaim && diff.Instance == web && diff.Host == h1 && diff.Mendable {
			leaks++
		}
	}
	if leaks != 1 {
		t.Errorf("%d leaked claims are found, want one", leaks)
	}
	d := one()
	d.inst.State, d.inst.Host = croft.StateLost, ""
	leak := audit.Difference{Kind: audit.LeakedClaim, Instance: "web", Host: "a", Mendable: true}
	if err := d.auditor(t).Mend(t.Context(), leak); err != nil {
		t.Error(err)
	}
	d.want(t, "evidence", "release a")
}
