package hosts_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/hosts"
)

func TestAFleetNeedsAllOfItsConfiguration(t *testing.T) {
	d, _ := moving()
	whole := hosts.Config{Partition: "p", Hosts: diaryHosts{diary: d}, Members: &office{},
		Instances: diaryInstances{diary: d}, Orders: diaryInstances{diary: d}, Claims: diaryClaims{diary: d}}
	for name, lack := range map[string]func(*hosts.Config){
		"partition": func(c *hosts.Config) { c.Partition = "" }, "hosts": func(c *hosts.Config) { c.Hosts = nil },
		"members":   func(c *hosts.Config) { c.Members = nil },
		"instances": func(c *hosts.Config) { c.Instances = nil }, "orders": func(c *hosts.Config) { c.Orders = nil },
		"claims": func(c *hosts.Config) { c.Claims = nil },
	} {
		c := whole
		lack(&c)
		if _, err := hosts.New(c); !errors.Is(err, croft.Invalid) {
			t.Errorf("without %s: got %v", name, err)
		}
	}
}

// world is a cloud whose parts can each be made to fail.
type world struct {
	known      []croft.Host
	instances  []croft.Status
	claimed    map[croft.InstanceID]croft.Resources // on the first host
	candidates []croft.Candidate
	remains    bool
	members    []croft.EtcdMember
	steps      []string
	refused    []croft.Refusal // in the record of the last moved instance
	fails      map[string]error
	failAt     int               // number of the failing step, from 1; 0: none
	meanwhile  map[string]func() // done by others during a step
	query      string
}

type (
	worldHosts     struct{ *world }
	worldMembers   struct{ *world }
	worldInstances struct {
		hosts.Instances
		*world
	}
	worldClaims struct {
		*world
	}
)

func (w *world) step(words ...string) error {
	s := strings.Join(words, " ")
	w.steps = append(w.steps, s)
	if others := w.meanwhile[s]; others != nil {
		others()
	}
	if len(w.steps) == w.failAt {
		return errPlanned
	}
	return w.fails[s]
}

func (w *world) fleet(t *testing.T) *hosts.Fleet {
	t.Helper()
	f, err := hosts.New(hosts.Config{Partition: "p", Hosts: worldHosts{w}, Members: worldMembers{w},
		Instances: worldInstances{world: w}, Orders: worldInstances{world: w}, Claims: worldClaims{world: w},
		Distances: worldDistances{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// worldDistances are the distances of type network.
type worldDistances struct{}

func (worldDistances) Stated(context.Context, ...string) (map[string]croft.Distances, error) {
	return map[string]croft.Distances{"network": {Type: "network", Generation: 1, Distances: []croft.Distance{
		{A: "s/r/k", B: "s/r/m", Distance: 9}, {A: "s/r/l", B: "s/r/m", Distance: 8}}}}, nil
}

func (w worldHosts) Hosts(context.Context, ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	all := map[croft.HostID]croft.Host{}
	for _, h := range w.known {
		all[h.ID] = h
	}
	return all, w.step("hosts")
}
func (w worldHosts) Drain(_ context.Context, h croft.HostID) error { return w.step("drain", string(h)) }
func (w worldHosts) Enable(_ context.Context, h croft.HostID) error {
	return w.step("enable", string(h))
}
func (w worldHosts) Accept(_ context.Context, h croft.HostID) error {
	return w.step("accept", string(h))
}
func (w worldHosts) ForgetHost(_ context.Context, h croft.HostID) error {
	return w.step("forget", string(h))
}

func (w worldHosts) BeginDeath(_ context.Context, h croft.HostID) (croft.Death, error) {
	return croft.Death{}, w.step("begin death", string(h))
}
func (w worldHosts) DeclareDead(_ context.Context, h croft.HostID, d croft.Death, how croft.FenceResult) (croft.Death,
	error) {
	d.Declared, d.How = time.Unix(1, 0), how
	return d, w.step("declare dead", string(h))
}
func (w worldHosts) EndDeath(_ context.Context, h croft.HostID, _ croft.Death) error {
	return w.step("end death", string(h))
}

func (w worldMembers) EtcdMembers(context.Context) ([]croft.EtcdMember, error) {
	return w.members, w.step("members")
}
func (w worldMembers) MayRemoveEtcdMember(_ context.Context, h croft.HostID) error {
	return w.step("may leave", string(h))
}
func (w worldMembers) RemoveEtcdMember(_ context.Context, h croft.HostID) error {
	return w.step("leave", string(h))
}

func (w worldInstances) List(context.Context, croft.Project) ([]croft.Status, error) {
	return w.instances, w.step("list")
}

func (w worldInstances) Overview(context.Context, croft.Project) ([]*croft.Status, error) {
	return overviewOf(w.instances), w.step("list")
}

func (w worldInstances) Some(_ context.Context, ids []croft.InstanceID) ([]croft.Status, error) {
	return someOf(w.instances, ids), nil
}

// overviewOf and someOf return what a store with these instances returns.
func overviewOf(all []croft.Status) (seen []*croft.Status) {
	for i := range all {
		seen = append(seen, &all[i])
	}
	return seen
}

func someOf(all []croft.Status, ids []croft.InstanceID) (some []croft.Status) {
	for _, st := range all {
		if slices.Contains(ids, st.Instance.ID) {
			some = append(some, st)
		}
	}
	return some
}

func (w worldInstances) Instance(_ context.Context, id croft.InstanceID) (croft.Instance, error) {
	err := w.step("read", string(id))
	for _, st := range w.instances {
		if st.Instance.ID == id {
			return st.Instance, err
		}
	}
	if err == nil {
		err = croft.Errorf(croft.NotFound, "no instance %s", id)
	}
	return croft.Instance{}, err
}

func (w worldInstances) Remains(_ context.Context, h croft.HostID, id croft.InstanceID) (bool, error) {
	return w.remains, w.step("remains of", string(id), "on", string(h))
}

func (w worldInstances) Leftovers(_ context.Context, h croft.HostID) ([]croft.Status, error) {
	return nil, w.step("leftovers of", string(h))
}

func (w worldInstances) RemoveLeftover(_ context.Context, o croft.Order) error {
	return w.step("remove leftover of", string(o.Instance))
}

func (w worldInstances) Reorder(_ context.Context, i croft.Instance, o croft.Order) (croft.Instance, error) {
	return i, w.step("order", string(o.Instance), string(o.Want), "on", string(o.Host))
}

func (w worldInstances) Bury(_ context.Context, i croft.Instance, _ croft.Order) error {
	return w.step("bury", string(i.ID))
}

func (w worldInstances) Lose(_ context.Context, i croft.Instance, why croft.Loss, o croft.Order) (croft.Instance,
	error) {
	i.State, i.Lost, i.Host, i.Moving = croft.StateLost, &why, "", ""
	return i, w.step("lose", string(i.ID), string(o.Want), "on", string(o.Host))
}

func (w worldInstances) SetMoving(_ context.Context, i croft.Instance, to croft.HostID) (croft.Instance, error) {
	i.Moving = to
	return i, w.step("moving to", string(to))
}

func (w worldInstances) Relocate(_ context.Context, i croft.Instance, _, o croft.Order) (croft.Instance, error) {
	w.refused = i.Refused
	return i, w.step("relocate to", string(o.Host), string(o.Want))
}

func (w worldInstances) Fence(_ context.Context, i croft.Instance) (croft.Instance, error) {
	return i, w.step("fence")
}

func (w worldClaims) Providers(context.Context) ([]croft.Provider, error) {
	return nil, w.step("providers")
}

func (w worldClaims) Provider(context.Context, croft.HostID) (croft.Provider, error) {
	return croft.Provider{}, w.step("provider")
}

func (w worldClaims) Claims(context.Context, croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return w.claimed, w.step("claims")
}

func (w worldClaims) Candidates(_ context.Context, query string, _ int) ([]croft.Candidate, error) {
	w.query = query
	return w.candidates, w.step("candidates")
}

func (w worldClaims) ClaimOf(_ context.Context, id croft.InstanceID) (croft.Claim, error) {
	return croft.Claim{Instance: id}, w.step("claim of", string(id))
}

func (w worldClaims) Reclaim(_ context.Context, _ croft.Claim, _ croft.Owner, c croft.Candidate) error {
	for h, amounts := range c.Allocations {
		if amounts[croft.VCPU] > 0 {
			return w.step("claim on", string(h))
		}
	}
	return w.step("claim nothing")
}

func (w worldClaims) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	on, err := may(ctx)
	if err != nil {
		return err
	}
	for _, h := range on {
		id += croft.InstanceID(" on " + h)
	}
	return w.step("release", string(id))
}

func (w worldClaims) RemoveProvider(_ context.Context, h croft.HostID) error {
	return w.step("remove provider", string(h))
}

// away returns a world of hosts a to f, where a is silent and empty.
func away() *world {
	return &world{known: []croft.Host{{ID: "a", Name: "one"}, {ID: "b", Name: "two", Alive: true},
		{ID: "c", Name: "three", Alive: true}, {ID: "d", Name: "four", Alive: true, Drained: true},
		{ID: "e", Name: "five"}}, fails: map[string]error{}}
}

// A host is forgotten step by step; a failure is reported and nothing follows it.
func TestForgettingGoesOnlyAsFarAsItCan(t *testing.T) {
	steps := []string{"hosts", "list", "members", "may leave a", "list", "drain a", "list", "claims", "read ghost",
		"release ghost on a", "remove provider a", "forget a", "leave a"}
	begin := func() *world {
		w := away()
		w.claimed = map[croft.InstanceID]croft.Resources{"ghost": {croft.VCPU: 1}}
		return w
	}
	for n := range len(steps) + 1 { // 0: nothing fails
		w := begin()
		w.failAt = n
		_, err := w.fleet(t).Forget(t.Context(), "one", false)
		want := steps
		if n > 0 {
			want = steps[:n]
		}
		if (err == nil) != (n == 0) || err != nil && !errors.Is(err, errPlanned) || !slices.Equal(w.steps, want) {
			t.Errorf("step %d fails: done %q, %v", n, w.steps, err)
		}
	}
	w := begin()
	w.fails["claims"] = croft.Errorf(croft.NotFound, "no provider")
	w.claimed = nil
	if _, err := w.fleet(t).Forget(t.Context(), "one", false); err != nil {
		t.Errorf("a host without a provider: %v", err)
	}
	for name, ghost := range map[string]croft.Instance{"comes": {ID: "ghost", Host: "b", Moving: "a"},
		"is being scheduled": {ID: "ghost", State: croft.StateScheduling}, "is elsewhere": {ID: "ghost", Host: "b"}} {
		w = begin()
		w.instances = []croft.Status{{Instance: ghost}}
		if _, err := w.fleet(t).Forget(t.Context(), "one", false); err != nil ||
			slices.Contains(w.steps, "release ghost on a") != (name == "is elsewhere") {
			t.Errorf("a claim of an instance that %s: done %q, %v", name, w.steps, err)
		}
	}
}

// The others are lost.
func TestAnInstanceThatIsRemovedWhileItsHostIsForgottenHindersNothing(t *testing.T) {
	gone := croft.Errorf(croft.NotFound, "no instance")
	w := away()
	w.instances = []croft.Status{
		{Instance: croft.Instance{ID: "web", Name: "web", Host: "a", State: croft.StateScheduled}},
		{Instance: croft.Instance{ID: "old", Name: "old", State: croft.StateLost, Lost: &croft.Loss{Host: "a"}}},
		{Instance: croft.Instance{ID: "job", Name: "job", Host: "a", State: croft.StateDestroying}},
		{Instance: croft.Instance{ID: "db", Name: "db", Host: "a", State: croft.StateScheduled}},
	}
	w.fails = map[string]error{"lose web left on a": gone, "release old": gone, "bury job": gone}
	h, err := w.fleet(t).Forget(t.Context(), "one", true)
	if err != nil || len(h.Lost) != 1 || h.Lost[0].ID != "db" {
		t.Errorf("lost %+v, %v", h.Lost, err)
	}
	for step := range w.fails {
		if !slices.Contains(w.steps, step) {
			t.Errorf("%q was not done: %q", step, w.steps)
		}
	}
}

// The host's own instances are lost, and buried if they are being destroyed or held; an instance that arrived after the
// operator looked is not lost without force. The claim of an instance that an earlier call marked as lost is released.
func TestWhatIsLostWithAHost(t *testing.T) {
	all := []croft.Status{
		{Instance: croft.Instance{ID: "web", Name: "web", Project: "shop", Host: "a", State: croft.StateScheduled}},
		{Instance: croft.Instance{ID: "db", Name: "db", Host: "b", State: croft.StateScheduled}},
		{Instance: croft.Instance{ID: "held", Name: "held", Host: "a", State: croft.StateHeld}},
		{Instance: croft.Instance{ID: "old", Name: "old", State: croft.StateLost, Lost: &croft.Loss{Host: "a"}}},
		{Instance: croft.Instance{ID: "older", Name: "older", State: croft.StateLost, Lost: &croft.Loss{Host: "c"}}},
		{Instance: croft.Instance{ID: "job", Name: "job", Host: "a", Moving: "b", State: croft.StateDestroying}},
	}
	w := away()
	w.instances = all
	h, err := w.fleet(t).Forget(t.Context(), "one", true)
	if err != nil {
		t.Error(err)
	}
	want := []string{"lose web left on a", "release web", "order held gone on a", "release held on a", "bury held",
		"release old", "release job on a on b", "bury job"}
	got := slices.DeleteFunc(slices.Clone(w.steps), func(s string) bool {
		word, _, _ := strings.Cut(s, " ")
		return !slices.Contains([]string{"lose", "order", "release", "bury"}, word)
	})
	if !slices.Equal(got, want) {
		t.Errorf("done: %q, want %q", got, want)
	}
	lost := []hosts.LostInstance{{ID: "web", Project: "shop", Name: "web", Lacks: "its disk"},
		{ID: "old", Name: "old", Lacks: "its disk"}}
	if !slices.Equal(h.Lost, lost) {
		t.Errorf("lost are %+v, want %+v", h.Lost, lost)
	}
	w = away()
	w.meanwhile = map[string]func(){"drain a": func() { w.instances = all[:2] }}
	if _, err := w.fleet(t).Forget(t.Context(), "one", false); !errors.Is(err, croft.Conflict) ||
		w.steps[len(w.steps)-1] != "list" {
		t.Errorf("an instance that has just come: %v, done %q", err, w.steps)
	}
	w = away()
	w.meanwhile = map[string]func(){"drain a": func() { w.instances = all[1:2] }}
	if _, err := w.fleet(t).Forget(t.Context(), "one", false); err != nil {
		t.Errorf("an instance that has just come to another host: %v, done %q", err, w.steps)
	}
}

// The target of an earlier attempt comes first, then the host with the most capacity left; hosts that accept no orders
// are left out.
func TestTheOrderInWhichTargetsAreTried(t *testing.T) {
	on := func(h croft.HostID, used int64) croft.Candidate {
		return croft.Candidate{Allocations: map[croft.HostID]croft.Resources{h: {croft.VCPU: 1, croft.DiskGB: 1}},
			Summaries: map[croft.HostID]croft.Summary{h: {Capacity: croft.Resources{croft.VCPU: 8},
				Used: croft.Resources{croft.VCPU: used}}}}
	}
	for _, c := range []struct {
		moving croft.HostID
		want   []string
	}{
		{"", []string{"claim on c", "claim on b", "claim on g"}},
		{"c", []string{"claim on c", "claim on b", "claim on g"}},
		{"b", []string{"claim on b", "claim on c", "claim on g"}},
		{"g", []string{"claim on g", "claim on c", "claim on b"}},
	} {
		w := away()
		w.known[0].Alive = true
		w.known = append(w.known, croft.Host{ID: "g", Name: "six", Alive: true})
		w.candidates = []croft.Candidate{on("b", 4), on("a", 0), on("d", 0), on("unknown", 0), on("g", 6), on("e", 0),
			on("c", 2)}
		for _, claim := range c.want {
			w.fails[claim] = croft.Errorf(croft.NoCapacity, "planned")
		}
		inst := croft.Instance{ID: "web", Name: "web", Host: "a", Moving: c.moving, Spec: croft.Spec{
			InstanceSettings: croft.InstanceSettings{Ephemeral: true}, Resources: croft.Resources{croft.VCPU: 1}}}
		h := hosts.Host{Host: w.known[0], Instances: []croft.Status{{Instance: inst}}}
		if all, err := w.fleet(t).MoveAll(t.Context(), h); err != nil || all[0].Stays == "" {
			t.Errorf("moving to %q: %+v, %v", c.moving, all, err)
		}
		tried := slices.DeleteFunc(slices.Clone(w.steps), func(s string) bool {
			return !strings.HasPrefix(s, "claim on") || s == "claim on a"
		})
		if !slices.Equal(tried, c.want) {
			t.Errorf("moving to %q: tried %q, want %q", c.moving, tried, c.want)
		}
	}
}

// An instance that was moved away may still run on a silent host; once that host is forgotten, the new host
// no longer waits.
func TestAHostThatIsWaitedForIsNotForgotten(t *testing.T) {
	web := croft.Status{Instance: croft.Instance{ID: "web", Name: "web", Host: "b", MovedFrom: "a"}}
	stranger := croft.Status{Instance: croft.Instance{ID: "db", Name: "db", Host: "b", MovedFrom: "c"}}
	const asks = "remains of web on a"
	for _, c := range []struct {
		name    string
		remains bool
		err     error
		kind    croft.Kind
		force   bool
	}{
		{"something remains", true, nil, croft.Conflict, false},
		{"nothing remains", false, nil, "", false},
		{"nobody can tell", false, errPlanned, croft.Unavailable, false},
		{"it is gone for good", true, nil, "", true},
	} {
		w := away()
		w.instances, w.remains, w.fails[asks] = []croft.Status{stranger, web}, c.remains, c.err
		_, err := w.fleet(t).Forget(t.Context(), "one", c.force)
		if croft.KindOf(err) != c.kind || slices.Contains(w.steps, "forget a") != (c.kind == "") {
			t.Errorf("%s: done %q, %v", c.name, w.steps, err)
		}
		if slices.Contains(w.steps, asks) == c.force || slices.Contains(w.steps, "remains of db on a") {
			t.Errorf("%s: asked %q", c.name, w.steps)
		}
	}
	w := away()
	w.known[0].Alive = true
	if _, err := w.fleet(t).Forget(t.Context(), "one", false); !errors.Is(err, croft.Conflict) {
		t.Errorf("a host that is alive: %v", err)
	}
	for n, sentence := range []string{"", "one instance is on it", "2 instances are on it"} {
		w := away()
		for range n {
			w.instances = append(w.instances, croft.Status{Instance: croft.Instance{ID: "web", Host: "a"}})
		}
		_, err := w.fleet(t).Forget(t.Context(), "one", false)
		if (err == nil) != (n == 0) || err != nil && !strings.Contains(err.Error(), sentence) {
			t.Errorf("%d instances: %v", n, err)
		}
	}
}

// An operator names a host, and one operation is performed on it.
func TestWhatIsDoneToAHost(t *testing.T) {
	for verb, do := range map[string]func(*hosts.Fleet, context.Context, string) (hosts.Host, error){
		"drain": (*hosts.Fleet).Drain, "enable": (*hosts.Fleet).Enable, "accept": (*hosts.Fleet).Accept,
	} {
		w := away()
		h, err := do(w.fleet(t), t.Context(), "one")
		if err != nil || h.ID != "a" || w.steps[len(w.steps)-1] != verb+" a" {
			t.Errorf("%s: %v, done %q", verb, err, w.steps)
		}
		w.fails[verb+" a"] = errPlanned
		if _, err := do(w.fleet(t), t.Context(), "one"); !errors.Is(err, errPlanned) ||
			!strings.HasPrefix(err.Error(), verb+" host one: ") {
			t.Errorf("%s, which fails: %v", verb, err)
		}
		w = away()
		if _, err := do(w.fleet(t), t.Context(), "other"); !errors.Is(err, croft.NotFound) ||
			slices.ContainsFunc(w.steps, func(s string) bool { return strings.HasPrefix(s, verb) }) {
			t.Errorf("%s of no host: %v, done %q", verb, err, w.steps)
		}
	}
	w := away()
	if _, err := w.fleet(t).Accept(t.Context(), "two"); !errors.Is(err, croft.Conflict) ||
		slices.Contains(w.steps, "accept b") {
		t.Errorf("a host that is served was given to another: %v, done %q", err, w.steps)
	}
	for _, fails := range []error{nil, errPlanned} {
		w := away()
		w.fails["leave a"] = fails
		err := w.fleet(t).RemoveMember(t.Context(), hosts.Host{Host: w.known[0], Etcd: croft.MemberFollows})
		if !errors.Is(err, fails) || !slices.Equal(w.steps, []string{"leave a"}) {
			t.Errorf("a server that is taken out: %v, done %q", err, w.steps)
		}
	}
}

// A list has the data that could be read; without the records of hosts it is an error.
func TestAListWithoutRecordsIsNone(t *testing.T) {
	for _, broken := range []string{"hosts", "list", "members"} {
		w := away()
		w.fails[broken] = errPlanned
		if all, err := w.fleet(t).List(t.Context()); !errors.Is(err, errPlanned) || all != nil {
			t.Errorf("%s: got %v, %v", broken, all, err)
		}
		if _, err := w.fleet(t).Drain(t.Context(), "one"); !errors.Is(err, errPlanned) {
			t.Errorf("%s: a drain got %v", broken, err)
		}
	}
	w := away()
	w.known = []croft.Host{{ID: "1", Name: "b"}, {ID: "2", Name: "a"}, {ID: "3", Name: "b"}, {ID: "4", Name: "a"},
		{ID: "5", Name: "c"}}
	all, err := w.fleet(t).List(t.Context())
	var got []string
	for _, h := range all {
		got = append(got, h.Name+string(h.ID)+strings.Repeat("!", len(h.Problems)))
	}
	if want := []string{"a2!", "a4!", "b1!", "b3!", "c5"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for role, alive := range map[croft.MemberRole]bool{croft.MemberLeads: true, croft.MemberFollows: true,
		croft.MemberSilent: false} {
		w := &world{members: []croft.EtcdMember{{Host: "x", Name: "x", Role: role, Alone: true}}}
		if all, err := w.fleet(t).List(t.Context()); err != nil || len(all) != 1 || all[0].Alive != alive {
			t.Errorf("a machine that only serves etcd and is %s: %+v, %v", role, all, err)
		}
	}
}
