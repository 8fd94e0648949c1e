package audit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/hosts/audit"
)

func TestAnAuditorNeedsAllOfItsInterfaces(t *testing.T) {
	d := one()
	whole := audit.Config{Records: diaryRecords{diary: d}, Instances: diaryRecords{diary: d},
		Registry: diaryRecords{diary: d}, Claims: diaryClaims{diary: d}, Agents: diaryAgents{diary: d},
		Fleet: diaryFleet{d}}
	for name, lack := range map[string]func(*audit.Config){
		"records": func(c *audit.Config) { c.Records = nil }, "instances": func(c *audit.Config) { c.Instances = nil },
		"registry": func(c *audit.Config) { c.Registry = nil }, "claims": func(c *audit.Config) { c.Claims = nil },
		"agents": func(c *audit.Config) { c.Agents = nil }, "fleet": func(c *audit.Config) { c.Fleet = nil },
	} {
		c := whole
		lack(&c)
		if _, err := audit.New(c); !errors.Is(err, croft.Invalid) {
			t.Errorf("without %s: got %v", name, err)
		}
	}
}

// site is a complete cloud for an audit, parts of which can be made to fail.
type site struct {
	audit.Records
	audit.Instances
	audit.Registry
	evidence  audit.Evidence
	unread    error
	providers []croft.Provider
	unlisted  error // the providers cannot be listed
	claims    func(croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	contents  func(croft.HostID) (audit.Contents, error)
}

type siteClaims struct {
	placement
	*site
}

func (s *site) Evidence(context.Context) (audit.Evidence, error) {
	e := s.evidence
	e.Claims, e.Contents = map[croft.HostID]map[croft.InstanceID]croft.Resources{}, map[croft.HostID]audit.Contents{}
	return e, s.unread
}

func (s siteClaims) Providers(context.Context) ([]croft.Provider, error) {
	return s.providers, s.unlisted
}

func (s siteClaims) Claims(_ context.Context, h croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return s.site.claims(h)
}

func (s *site) Contents(ctx context.Context, h croft.Host) (audit.Contents, error) {
	return s.contents(h.ID)
}

func (s *site) RemoveFiles(context.Context, croft.Host, croft.InstanceID) error { return nil }

func (s *site) audit(t *testing.T) (audit.Report, error) {
	t.Helper()
	a, err := audit.New(audit.Config{Records: s, Instances: s, Registry: s, Claims: siteClaims{site: s}, Agents: s,
		Fleet: diaryFleet{one()}, Pause: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	return a.Audit(t.Context())
}

// sound is a site without differences, with shared storage.
func sound() *site {
	e := healthy()
	const shared croft.HostID = "storage"
	with(func(i *croft.Instance) { i.Spec.Resources = croft.Resources{croft.VCPU: 1, croft.DiskGB: 4} })(e)
	return &site{evidence: *e,
		providers: []croft.Provider{{ID: h1, Used: size}, {ID: h2}, {ID: shared,
			Used: croft.Resources{croft.DiskGB: 4}},
			{ID: "idle"}, {ID: "gone", Used: size}, {ID: "more", Used: croft.Resources{croft.DiskGB: 2}}},
		claims: func(h croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
			switch h {
			case h1:
				return map[croft.InstanceID]croft.Resources{web: {croft.VCPU: 1}}, nil
			case shared, "more":
				return map[croft.InstanceID]croft.Resources{web: {croft.DiskGB: 2}}, nil
			case "idle":
				return nil, errors.New("a provider of which nothing is used is not asked")
			}
			return nil, croft.Errorf(croft.NotFound, "no provider %s", h) // forgotten meanwhile
		},
		contents: func(h croft.HostID) (audit.Contents, error) { return e.Contents[h], nil },
	}
}

// Shared resources are claimed from providers other than hosts; a provider that was removed meanwhile has no
// claims.
func TestAnAuditAddsUpWhatIsClaimedElsewhere(t *testing.T) {
	report, err := sound().audit(t)
	if err != nil || report.Differences == nil || len(report.Differences) != 0 || len(report.Unchecked) != 0 {
		t.Errorf("got %+v, %v, want no difference", report, err)
	}
}

func TestAnAuditFindsWrongAmountsElsewhere(t *testing.T) {
	s := sound()
	before := s.claims
	s.claims = func(h croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
		if h == "more" {
			return map[croft.InstanceID]croft.Resources{web: {croft.DiskGB: 3}}, nil
		}
		return before(h)
	}
	report, err := s.audit(t)
	if err != nil || len(report.Differences) != 1 || report.Differences[0].Kind != audit.WrongClaim {
		t.Errorf("got %+v, %v, want a wrong claim", report.Differences, err)
	}
}

func TestAnAuditSaysWhatItCouldNotRead(t *testing.T) {
	for name, broken := range map[string]func(*site){
		"the records":   func(s *site) { s.unread = errPlanned },
		"the providers": func(s *site) { s.unlisted = errPlanned },
		"the claims on a host": func(s *site) {
			before := s.claims
			s.claims = func(h croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
				if h == h2 {
					return nil, errPlanned
				}
				return before(h)
			}
		},
		"the claims elsewhere": func(s *site) {
			before := s.claims
			s.claims = func(h croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
				if h == "storage" {
					return nil, errPlanned
				}
				return before(h)
			}
		},
	} {
		s := sound()
		broken(s)
		if _, err := s.audit(t); !errors.Is(err, errPlanned) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Hosts that do not answer are reported by name, and nothing is concluded about their guests.
func TestHostsThatDoNotAnswerAreUnchecked(t *testing.T) {
	s := sound()
	s.contents = func(croft.HostID) (audit.Contents, error) { return audit.Contents{}, errPlanned }
	s.evidence.Hosts["c"] = croft.Host{ID: "c", Name: "one", Alive: true}
	s.evidence.Hosts["b"] = croft.Host{ID: "b", Name: "aaa", Alive: true}
	why := errPlanned.Error()
	want := []string{"aaa b " + why, "one c " + why, "one host-1 " + why, "two host-2 " + why}
	for range 8 { // they answer in any order
		report, err := s.audit(t)
		var got []string
		for _, u := range report.Unchecked {
			got = append(got, u.Name+" "+string(u.Host)+" "+u.Why)
		}
		if err != nil || !slices.Equal(got, want) || len(report.Differences) != 0 {
			t.Errorf("got %q, %v and %v, want %q", got, report.Differences, err, want)
		}
	}
}

func TestWhatIsMended(t *testing.T) {
	for _, c := range []struct {
		kind  audit.Kind
		begin func(*diary)
		steps []string
	}{
		{audit.LostName, nil, []string{"drop lost name"}},
		{audit.StrayFiles, nil, []string{"hosts", "remove files of web by api of a"}},
		{audit.UnfinishedMove, nil, []string{"list", "end move of web"}},
		{audit.MissingName, nil, []string{"list", "put name of web"}},
		{audit.MissingMember, nil, []string{"list", "put member web"}},
		{audit.MissingAddress, nil, []string{"list", "put address of web"}},
		{audit.MissingClaim, nil, []string{"list", "reclaim for web"}},
		{audit.StrayClaim, nil, []string{"list", "reclaim for web"}},
		{audit.MissingOrder, nil, []string{"list", "order web running"}},
		{audit.MissingOrder, func(d *diary) { d.seen = croft.StateRunning }, []string{"list", "order web running"}},
		{audit.MissingOrder, func(d *diary) { d.seen = croft.StateStopped }, []string{"list", "order web stopped"}},
		{audit.MissingOrder, func(d *diary) { d.inst.State = croft.StateDestroying },
			[]string{"list", "order web gone"}},
	} {
		d := one()
		if c.begin != nil {
			c.begin(d)
		}
		diff := audit.Difference{Kind: c.kind, Instance: "web", Host: "a", Revision: 7, Mendable: true}
		if err := d.auditor(t).Mend(t.Context(), diff); err != nil {
			t.Errorf("%s: %v", c.kind, err)
		}
		d.want(t, c.steps...)
		for i, step := range c.steps { // the failing step is the last one, and is reported
			d.fails = map[string]func() error{step: planned}
			if err := d.auditor(t).Mend(t.Context(), diff); !errors.Is(err, errPlanned) {
				t.Errorf("%s, where %q fails: got %v", c.kind, step, err)
			}
			d.want(t, c.steps[:i+1]...)
		}
	}
	d := one()
	if err := d.auditor(t).Mend(t.Context(), audit.Difference{Kind: audit.WrongClaim, Instance: "web", Revision: 7,
		Mendable: true}); err == nil {
		t.Error("a wrong claim was mended, for which there is no way")
	}
}

// An instance is mended as the audit saw it, or not at all.
func TestAnInstanceThatChangedIsNotMended(t *testing.T) {
	for name, diff := range map[string]audit.Difference{
		"the record changed": {Kind: audit.MissingName, Instance: "web", Revision: 6, Mendable: true},
		"it is another one":  {Kind: audit.MissingName, Instance: "db", Revision: 7, Mendable: true},
	} {
		d := one()
		if err := d.auditor(t).Mend(t.Context(), diff); !errors.Is(err, croft.Conflict) {
			t.Errorf("%s: got %v", name, err)
		}
		d.want(t, "list")
	}
	d := one()
	d.inst.State, d.inst.Session = croft.StateScheduling, "7"
	d.fails["fence"] = func() error { d.inst.Session = "8"; return nil }
	err := d.auditor(t).Mend(t.Context(), audit.Difference{Kind: audit.AbandonedRequest, Instance: "web", Revision: 7,
		Mendable: true})
	if !errors.Is(err, croft.Conflict) {
		t.Errorf("another scheduler has the request: got %v", err)
	}
	d.want(t, "list", "fence")
	d = one()
	d.inst.State = croft.StateScheduling
	d.fails["fence"] = planned
	err = d.auditor(t).Mend(t.Context(), audit.Difference{Kind: audit.AbandonedRequest, Instance: "web", Revision: 7,
		Mendable: true})
	if !errors.Is(err, errPlanned) {
		t.Errorf("a fence that fails: got %v", err)
	}
}

// rounds is a caretaker whose looks and turns can differ from one to the next.
type rounds struct {
	nobodys
	looks []func() (audit.Evidence, error)
	turn  func() (bool, error)
	log   bytes.Buffer
	times []time.Duration // of the looks, since the first
	began time.Time
}

type roundsShared struct {
	nobodysRecords
	*rounds
}

func (r roundsShared) TakeTurn(context.Context, time.Duration) (bool, error) { return r.rounds.turn() }

func (r roundsShared) Evidence(context.Context) (audit.Evidence, error) {
	if len(r.times) == 0 {
		r.began = time.Now()
	}
	r.times = append(r.times, time.Since(r.began))
	if len(r.looks) == 0 {
		return audit.Evidence{}, nil
	}
	look := r.looks[0]
	r.looks = r.looks[1:]
	return look()
}

func (r roundsShared) Drop(_ context.Context, d audit.Difference) error {
	return r.nobodysRecords.step("drop " + string(d.Kind))
}

func (r roundsShared) Discard(context.Context, croft.Instance) error {
	return r.nobodysRecords.step("discard")
}

func (r *rounds) caretaker() *audit.Caretaker {
	shared := roundsShared{nobodysRecords{nobodys: &r.nobodys}, r}
	return &audit.Caretaker{Records: shared, Shared: shared, Inventory: nobodysClaims{nobodys: &r.nobodys},
		Log: slog.New(slog.NewTextHandler(&r.log, nil))}
}

func reads(e audit.Evidence) func() (audit.Evidence, error) {
	return func() (audit.Evidence, error) { return e, nil }
}

var (
	lostName = audit.Evidence{Names: []audit.Name{ghost}}
	unmended = audit.Evidence{Instances: map[croft.InstanceID]croft.Instance{
		"web": {ID: "web", Project: "p", Name: "web", State: croft.StateScheduled, Host: "nowhere"}},
		Hosts: map[croft.HostID]croft.Host{}, Names: []audit.Name{{Project: "p", Name: "web", Instance: "web"}}}
)

func TestACaretakerMendsWhatTwoLooksFind(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks []func() (audit.Evidence, error)
		fails string
		steps []string
		err   error
		seen  int
	}{
		{"nothing", []func() (audit.Evidence, error){reads(audit.Evidence{})}, "", nil, nil, 1},
		{"what lasts", []func() (audit.Evidence, error){reads(lostName), reads(lostName)}, "",
			[]string{"drop lost name"}, nil, 2},
		{"what passes", []func() (audit.Evidence, error){reads(lostName), reads(audit.Evidence{})}, "", nil, nil, 2},
		{"what cannot be dropped", []func() (audit.Evidence, error){reads(lostName), reads(lostName)},
			"drop lost name", []string{"drop lost name"}, errPlanned, 2},
		{"a first look that fails", []func() (audit.Evidence, error){
			func() (audit.Evidence, error) { return lostName, errPlanned }}, "", nil, errPlanned, 1},
		{"a second look that fails", []func() (audit.Evidence, error){reads(lostName),
			func() (audit.Evidence, error) { return lostName, errPlanned }}, "", nil, errPlanned, 2},
		{"what is for an operator", []func() (audit.Evidence, error){reads(unmended), reads(unmended)}, "", nil,
			nil, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &rounds{looks: c.looks}
			r.fails = map[string]error{c.fails: errPlanned}
			keeper := r.caretaker()
			keeper.Every = time.Minute
			if err := keeper.Sweep(t.Context()); !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("%s: got %v", c.name, err)
			}
			if !slices.Equal(r.steps, c.steps) || len(r.times) != c.seen {
				t.Errorf("%s: done %q after looks at %v", c.name, r.steps, r.times)
			}
			if len(r.times) == 2 && r.times[1] != 5*time.Second {
				t.Errorf("%s: the second look came after %v", c.name, r.times[1])
			}
		})
	}
}

func TestASweepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rounds{looks: []func() (audit.Evidence, error){reads(lostName), reads(lostName)}}
		keeper := r.caretaker()
		keeper.Every = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = keeper.Sweep(ctx)
		if len(r.times) != 1 || len(r.steps) > 0 {
			t.Errorf("done %q after looks at %v", r.steps, r.times)
		}
	})
}

// A lasting difference is logged once, and counted while it lasts.
func TestACaretakerReportsOnceAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rounds{}
		keeper := r.caretaker()
		keeper.Every = time.Minute
		numbers := prometheus.NewRegistry()
		numbers.MustRegister(keeper.Collector())
		count := func(name, kind string) (n float64, found bool) {
			all, err := numbers.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range all {
				for _, m := range family.Metric {
					if family.GetName() == name && (kind == "" || m.GetLabel()[0].GetValue() == kind) {
						return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
					}
				}
			}
			return 0, false
		}
		if n, found := count("croft_caretaker_differences", string(audit.UnknownHost)); n != 0 || !found {
			t.Errorf("before the first sweep there are %v unknown hosts (known: %v)", n, found)
		}
		for i := range 2 {
			r.looks = []func() (audit.Evidence, error){reads(unmended), func() (audit.Evidence, error) {
				if n, _ := count("croft_caretaker_differences", string(audit.UnknownHost)); n != float64(i) {
					t.Errorf("between the looks of sweep %d there are %v unknown hosts", i, n)
				}
				return unmended, nil
			}}
			if err := keeper.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			if n, _ := count("croft_caretaker_differences", string(audit.UnknownHost)); n != 1 {
				t.Errorf("%v unknown hosts", n)
			}
		}
		if n := strings.Count(r.log.String(), "the records differ from the state of the hosts"); n != 1 {
			t.Errorf("told %d times:\n%s", n, &r.log)
		}
		r.looks = []func() (audit.Evidence, error){func() (audit.Evidence, error) {
			return audit.Evidence{},
				errPlanned
		}}
		_ = keeper.Sweep(t.Context())
		if n, _ := count("croft_caretaker_differences", string(audit.UnknownHost)); n != 1 {
			t.Errorf("after a sweep that could not read: %v unknown hosts", n)
		}
		if err := keeper.Sweep(t.Context()); err != nil { // no differences
			t.Error(err)
		}
		if n, _ := count("croft_caretaker_differences", string(audit.UnknownHost)); n != 0 {
			t.Errorf("afterwards: %v unknown hosts", n)
		}
		abandoned := audit.Evidence{Instances: map[croft.InstanceID]croft.Instance{
			"web": {ID: "web", State: croft.StateScheduling, Session: "7"}}}
		for i, fails := range []string{"", "discard", "release"} {
			r.fails = map[string]error{fails: errPlanned}
			r.looks = []func() (audit.Evidence, error){reads(abandoned)}
			if err := keeper.Sweep(t.Context()); (fails == "") != (err == nil) {
				t.Errorf("%q fails: got %v", fails, err)
			}
			if n, _ := count("croft_caretaker_requests_undone_total", ""); n != 1 {
				t.Errorf("after %d requests, of which one was undone: counted %v", i+1, n)
			}
		}
		r.fails = map[string]error{"discard": croft.Errorf(croft.Conflict, "planned")}
		r.looks = []func() (audit.Evidence, error){reads(abandoned)}
		if err := keeper.Sweep(t.Context()); err != nil {
			t.Errorf("another request was faster: %v", err)
		}
	})
}

// noVolumes cannot undo a request for a volume.
type noVolumes struct{ audit.Volumes }

func (noVolumes) Undo(context.Context, croft.Volume) error { return errPlanned }

func TestARecordThatCannotBeMendedKeepsNoOtherWaiting(t *testing.T) {
	r := &rounds{}
	keeper := r.caretaker()
	keeper.Volumes = noVolumes{}
	e := lostName
	e.Volumes = map[croft.VolumeID]croft.Volume{"data": {ID: "data", SizeGB: 2, Session: "7"}}
	e.Sessions = map[string]bool{}
	r.looks = []func() (audit.Evidence, error){reads(e), reads(e)}
	if err := keeper.Sweep(t.Context()); !errors.Is(err, errPlanned) {
		t.Errorf("got %v", err)
	}
	if !slices.Equal(r.steps, []string{"drop lost name"}) {
		t.Errorf("done: %q", r.steps)
	}
}

func TestMendLeavesAloneWhatMightHarm(t *testing.T) {
	r := &rounds{}
	err := r.caretaker().Mend(t.Context(), []audit.Difference{{Kind: audit.LeakedClaim, Instance: "web", Host: "h"},
		{Kind: audit.LostOrder, Instance: "web", Host: "h"}, {Kind: audit.StrayFiles, Instance: "web", Mendable: true}})
	if n := strings.Count(r.log.String(), "the records differ from the state of the hosts"); err != nil ||
		len(r.steps) != 0 || n != 3 {
		t.Errorf("done %q, %v; logged\n%s", r.steps, err, &r.log)
	}
}

func TestATurnIsTakenWhenItIsMine(t *testing.T) {
	for _, c := range []struct {
		name  string
		mine  bool
		err   error
		looks int
	}{
		{"mine", true, nil, 1}, {"another one's", false, nil, 0}, {"of which nothing is known", true, errPlanned, 0},
	} {
		r := &rounds{turn: func() (bool, error) { return c.mine, c.err }}
		if err := r.caretaker().TakeTurn(t.Context()); !errors.Is(err, c.err) || len(r.times) != c.looks {
			t.Errorf("a turn that is %s: %d looks, %v", c.name, len(r.times), err)
		}
	}
	alone := audit.Caretaker{Log: slog.New(slog.DiscardHandler)}
	if err := alone.TakeTurn(t.Context()); err != nil {
		t.Errorf("behind a gate: %v", err)
	}
}

// A failed turn is logged, unless the context has ended.
func TestACaretakerLogsATurnThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &rounds{}
		turns := 0
		r.turn = func() (bool, error) {
			switch turns++; turns {
			case 1:
				return false, errPlanned
			case 2:
				return false, nil
			}
			cancel()
			return false, ctx.Err()
		}
		if err := r.caretaker().Run(ctx); !errors.Is(err, context.Canceled) || turns != 3 {
			t.Errorf("ended with %v after %d turns", err, turns)
		}
		if n := strings.Count(r.log.String(), "the shared records could not be checked"); n != 1 ||
			!strings.Contains(r.log.String(), errPlanned.Error()) {
			t.Errorf("told %d times:\n%s", n, &r.log)
		}
	})
}
