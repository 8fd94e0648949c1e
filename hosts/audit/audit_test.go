package audit_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/hosts/audit"
)

// office has a cloud's records in memory, as far as these tests read them. Its other methods are never called.
type office struct {
	audit.Records // nil, as the next three
	audit.Instances
	audit.Registry
	audit.Fleet
	looks  func(n int) audit.Evidence // result of the n-th look
	looked int
	asked  []croft.HostID
	broken error // error of Placement
}

type (
	claims struct{ *office }
	agents struct{ *office }
)

func (o *office) List(context.Context, croft.Project) ([]croft.Status, error) { return nil, nil }

func (o *office) Evidence(context.Context) (audit.Evidence, error) {
	o.looked++
	e := o.looks(o.looked)
	e.Hosts = maps.Clone(e.Hosts)
	e.Claims, e.Contents = map[croft.HostID]map[croft.InstanceID]croft.Resources{}, map[croft.HostID]audit.Contents{}
	return e, nil
}

func (o claims) Claims(context.Context, croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return nil, o.broken
}
func (o claims) Providers(context.Context) ([]croft.Provider, error) { return nil, o.broken }

func (o claims) Release(context.Context, croft.InstanceID, croft.Permit) error { return o.broken }

func (o agents) Contents(_ context.Context, h croft.Host) (audit.Contents, error) {
	o.asked = append(o.asked, h.ID)
	return audit.Contents{}, nil
}

func (o agents) RemoveFiles(context.Context, croft.Host, croft.InstanceID) error { return nil }

func (o *office) auditor(t *testing.T) *audit.Auditor {
	t.Helper()
	a, err := audit.New(audit.Config{Records: o, Instances: o, Registry: o, Claims: claims{o}, Agents: agents{o},
		Fleet: o, Pause: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// always returns an office with constant records.
func always(e audit.Evidence) *office { return &office{looks: func(int) audit.Evidence { return e }} }

func withHosts(hosts ...croft.Host) audit.Evidence {
	e := audit.Evidence{Hosts: map[croft.HostID]croft.Host{}}
	for _, h := range hosts {
		e.Hosts[h.ID] = h
	}
	return e
}

var ghost = audit.Name{Project: "p", Name: "web", Instance: "ghost"}

func TestAHealthyAuditLooksOnce(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "h", Name: "one", Alive: true}))
	report, err := o.auditor(t).Audit(t.Context())
	if err != nil || len(report.Differences) != 0 || o.looked != 1 {
		t.Errorf("got %+v, %v after %d looks", report, err, o.looked)
	}
}

func TestAnAuditBelievesWhatTwoLooksFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passing := &office{looks: func(n int) audit.Evidence {
			if n == 1 {
				return audit.Evidence{Names: []audit.Name{ghost}}
			}
			return audit.Evidence{}
		}}
		if report, err := passing.auditor(t).Audit(t.Context()); err != nil || len(report.Differences) != 0 ||
			passing.looked != 2 {
			t.Errorf("what passed: got %+v, %v after %d looks", report, err, passing.looked)
		}
		lasting := always(audit.Evidence{Names: []audit.Name{ghost}})
		if report, err := lasting.auditor(t).Audit(t.Context()); err != nil || len(report.Differences) != 1 {
			t.Errorf("what lasts: got %+v, %v", report, err)
		}
	})
}

func TestSilentHostsAreUncheckedAndNotAsked(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "h", Name: "one"}))
	report, err := o.auditor(t).Audit(t.Context())
	if err != nil || len(report.Unchecked) != 1 || report.Unchecked[0].Why != "it is silent" || len(o.asked) != 0 {
		t.Errorf("got %+v, %v; asked %v", report, err, o.asked)
	}
}

func TestAnAuditWithoutPlacementIsNone(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "h", Name: "one", Alive: true}))
	o.broken = croft.Errorf(croft.Unavailable, "placement does not answer")
	if _, err := o.auditor(t).Audit(t.Context()); !errors.Is(err, croft.Unavailable) {
		t.Errorf("got %v, want that it cannot be told", err)
	}
}

func TestWhatMightHarmIsNotMended(t *testing.T) {
	o := always(audit.Evidence{})
	if err := o.auditor(t).Mend(t.Context(), audit.Difference{Kind: audit.LeakedClaim,
		Instance: "ghost"}); !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}

func TestWhatChangedSinceIsNotMended(t *testing.T) {
	o := always(audit.Evidence{})
	err := o.auditor(t).Mend(t.Context(), audit.Difference{Kind: audit.MissingOrder, Instance: "web", Revision: 7,
		Mendable: true})
	if !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}
