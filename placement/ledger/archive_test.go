package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/placement/transfer"
	"croft/placement/transfer/transfertest"
)

// importing imports a state into a store, and returns the progress messages.
func importing(s *liveStore, want *transfer.State) (progress []string, err error) {
	_, err = transfer.Import(s.t.Context(), want, &Archive{Store: s}, true, func(stage string, done, total int) {
		progress = append(progress, fmt.Sprintf("%s %d/%d", stage, done, total))
	})
	return progress, err
}

// exported returns a store's state as exported, without its revision.
func exported(s *liveStore) *transfer.State {
	s.t.Helper()
	state, err := (&Archive{Store: s}).Read(s.t.Context(), func(string, int, int) {})
	if err != nil {
		s.t.Fatal(err)
	}
	state.Revision, state.StandardClasses, state.StandardTraits = 0, nil, nil
	return state
}

// sound checks the stored data that an export does not show: each provider has its name and generation, and there are
// no other names.
func sound(s *liveStore) {
	s.t.Helper()
	names := map[string]string{}
	for key, value := range s.stored {
		switch key.Kind {
		case KindName:
			names[key.ID] = string(value)
		case KindGeneration:
			if s.providers[key.ID] == nil {
				s.t.Errorf("a generation of %s is left", key.ID)
			}
		}
	}
	for uuid, p := range s.providers {
		if names[p.Name] != uuid {
			s.t.Errorf("the name %s is that of %q, want %s", p.Name, names[p.Name], uuid)
		}
		delete(names, p.Name)
		if _, there := s.stored[Key{KindGeneration, uuid}]; !there {
			s.t.Errorf("%s has no generation", uuid)
		}
	}
	if len(names) > 0 {
		s.t.Errorf("names are left: %v", names)
	}
}

// same checks that a store exports what was imported.
func same(s *liveStore, want *transfer.State) {
	s.t.Helper()
	text := func(state *transfer.State) string {
		var b strings.Builder
		if err := transfer.Encode(&b, state); err != nil {
			s.t.Fatal(err)
		}
		return b.String()
	}
	if a, b := text(want), text(exported(s)); a != b {
		s.t.Errorf("exported\n%s\nwant\n%s", b, a)
	}
}

func TestWhatIsImportedIsExported(t *testing.T) {
	want := transfertest.Sample(7, 12)
	for n := 0; ; n++ {
		s := newLiveStore(t)
		s.limit = 8
		count := 0
		s.before = func(txn Txn) error {
			if len(txn.Then) > s.limit || !slices.IsSortedFunc(txn.Then, func(a, b Write) int {
				return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
			}) {
				t.Errorf("a transaction of %d writes: %v", len(txn.Then), txn.Then)
			}
			if count++; count > n {
				return errors.New("cut")
			}
			return nil
		}
		_, err := importing(s, want)
		if err == nil {
			if same(s, want); n < 10 {
				t.Errorf("it took %d transactions", n)
			}
			sound(s)
			s.before = func(Txn) error { return errors.New("asked") }
			if _, err := importing(s, want); err != nil {
				t.Errorf("imported again: %v", err)
			}
			return
		}
		if !strings.Contains(err.Error(), "what is missing comes when it is run again") {
			t.Fatalf("cut off after %d: %v", n, err)
		}
		if len(s.consumers) < len(want.Consumers) && slices.ContainsFunc(s.all, func(p *Provider) bool {
			return len(p.Inventories) > 0
		}) {
			t.Fatalf("cut off after %d, a provider can be claimed from", n)
		}
		s.before = nil
		if _, err := importing(s, want); err != nil {
			t.Fatalf("after it was cut off after %d: %v", n, err)
		}
		same(s, want)
		sound(s)
	}
}

// offering returns a provider with total VCPU.
func offering(id croft.HostID, total int64) transfer.Provider {
	return transfer.Provider{ID: id, Name: "name of " + string(id), Generation: 5,
		Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: {Total: total, MinUnit: 1, MaxUnit: total,
			StepSize: 1, AllocationRatio: 1}}}
}

const (
	host1     croft.HostID     = "11111111-0000-4000-8000-000000000001"
	host2     croft.HostID     = "11111111-0000-4000-8000-000000000002"
	host3     croft.HostID     = "11111111-0000-4000-8000-000000000003"
	instance1 croft.InstanceID = "22222222-0000-4000-8000-000000000001"
	instance2 croft.InstanceID = "22222222-0000-4000-8000-000000000002"
)

func taking(id croft.InstanceID, n int64, from ...croft.HostID) transfer.Consumer {
	c := transfer.Consumer{ID: id, Generation: 1, Project: "p", User: "u", Type: "INSTANCE",
		Allocations: map[croft.HostID]croft.Resources{}}
	for _, host := range from {
		c.Allocations[host] = croft.Resources{croft.VCPU: n}
	}
	return c
}

func TestAnImportTellsItsStages(t *testing.T) {
	s := newLiveStore(t)
	s.limit = 6
	want := &transfer.State{Classes: []croft.ResourceClass{"CUSTOM_B", "CUSTOM_A"}, Traits: []croft.Trait{"CUSTOM_T"},
		Providers: []transfer.Provider{offering(host1, 8), offering(host2, 8), offering(host3, 8)},
		Consumers: []transfer.Consumer{taking(instance1, 2, host1), taking(instance2, 2, host1, host2)}}
	got, err := importing(s, want)
	if err != nil || !slices.Equal(got, []string{"reading etcd 0/1", "reading etcd 1/1", "resource classes 1/2",
		"resource classes 2/2", "traits 1/1", "providers 2/3", "providers 3/3", "consumers 2/2",
		"inventories 2/3", "inventories 3/3"}) {
		t.Errorf("told %q, %v", got, err)
	}
	same(s, want)
	for i, fail := range []error{errors.New("away"), ErrTooLarge} {
		s = newLiveStore(t)
		s.before = func(Txn) error { return fail }
		got, err := importing(s, want)
		if kind := error(croft.Invalid); len(got) != 2 || err == nil || errors.Is(err, kind) != (i == 1) {
			t.Errorf("told %q, %v although nothing was written", got, err)
		}
	}
}

func TestAnImportIsWrittenInAsFewTransactionsAsFit(t *testing.T) {
	for name, test := range map[string]struct {
		bytes int // of each of four consumers
		limit int
		want  []int // writes by transaction
	}{
		"all at once":               {10, 100, []int{3, 5, 3}},
		"at most the limit":         {10, 6, []int{3, 5, 3}},
		"less than the limit":       {10, 5, []int{3, 4, 2, 3}},
		"not too many bytes":        {300_000, 100, []int{3, 3, 3, 3}},
		"one of too many bytes too": {600_000, 100, []int{3, 2, 2, 2, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLiveStore(t)
			s.limit = test.limit
			archive := &Archive{Store: s}
			have, err := archive.Read(t.Context(), func(string, int, int) {})
			if err != nil {
				t.Fatal(err)
			}
			changes := &transfer.Changes{Have: have, Providers: []transfer.Provider{offering(host1, 8)},
				Want: &transfer.State{Providers: []transfer.Provider{offering(host1, 8)}}}
			for n := range 4 {
				c := taking(croft.InstanceID(fmt.Sprint(instance1, n)), 1, host1)
				c.User = strings.Repeat("u", test.bytes)
				changes.Consumers = append(changes.Consumers, c)
			}
			if err := archive.Write(t.Context(), changes, func(string, int, int) {}); err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, entries := range s.changes {
				got = append(got, len(entries))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("writes by transaction: %v, want %v", got, test.want)
			}
		})
	}
	s := newLiveStore(t)
	s.limit = 3
	want := &transfer.State{Providers: []transfer.Provider{offering(host1, 8), offering(host2, 8), offering(host3, 8)},
		Consumers: []transfer.Consumer{taking(instance1, 1, host1, host2)}}
	if _, err := importing(s, want); err != nil {
		t.Errorf("three writes where three fit: %v", err)
	}
	s = newLiveStore(t)
	s.limit = 3
	want.Consumers[0] = taking(instance1, 1, host1, host2, host3)
	if _, err := importing(s, want); !errors.Is(err, croft.Invalid) || len(s.changes) > 0 {
		t.Errorf("four writes where three fit: %v, %d transactions", err, len(s.changes))
	}
}

// An existing provider keeps its place and the time of its creation.
func TestAnImportChangesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLiveStore(t)
		first := &transfer.State{Providers: []transfer.Provider{offering(host2, 8), offering(host1, 8),
			offering(host3, 8)}, Consumers: []transfer.Consumer{taking(instance1, 2, host1)}}
		if _, err := importing(s, first); err != nil {
			t.Fatal(err)
		}
		begin := time.Now().Unix()
		time.Sleep(time.Hour)
		one, two, three := offering(host1, 9), offering(host2, 9), offering(host3, 8)
		one.Name, two.Name = "new", "name of "+string(host1) // this name passes from one provider to the other
		one.Generation, two.Generation = 6, 6
		second := &transfer.State{Providers: []transfer.Provider{two, one, three},
			Consumers: []transfer.Consumer{taking(instance1, 3, host1), taking(instance2, 1, host3)}}
		second.Consumers[0].Generation = 2
		if _, err := importing(s, second); err != nil {
			t.Fatal(err)
		}
		same(s, second)
		sound(s)
		for i, c := range []*Consumer{s.State.consumers[string(instance1)], s.State.consumers[string(instance2)]} {
			if want := []int64{begin, begin + 3600}; c.Created != want[i] || c.Updated != want[1-i]*int64(1-i) {
				t.Errorf("consumer %d was created at %d and updated at %d", i, c.Created, c.Updated)
			}
		}
		for _, id := range []croft.HostID{host1, host2} {
			if p := s.State.providers[string(id)]; p.Created != begin || p.Updated != begin+3600 {
				t.Errorf("%s was created at %d and updated at %d", id, p.Created, p.Updated)
			}
		}
		if p := s.State.providers[string(host3)]; p.Created != begin || p.Updated != begin && p.Updated != 0 {
			t.Errorf("what is as it was: created at %d and updated at %d", p.Created, p.Updated)
		}
	})
}

// Claims decided before an import, and an import planned before a claim, never take the same resources.
func TestAnImportAndAClaimNeverTakeTheSame(t *testing.T) {
	begin := func() (*liveStore, *transfer.State) {
		s := newLiveStore(t)
		if _, err := importing(s, &transfer.State{Providers: []transfer.Provider{offering(host1, 2)}}); err != nil {
			t.Fatal(err)
		}
		want := exported(s)
		want.Consumers = []transfer.Consumer{taking(instance1, 2, host1)}
		return s, want
	}
	s, want := begin()
	claim, errs := s.decide(takes(string(instance2), string(host1), "VCPU", 1))
	if _, err := importing(s, want); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	if s.history.commit(claim) {
		t.Error("a claim does not see the import")
	}
	s, want = begin()
	s.before = func(Txn) error {
		s.before = nil
		s.other(takes(string(instance2), string(host1), "VCPU", 1))
		return nil
	}
	if _, err := importing(s, want); !errors.Is(err, croft.Conflict) || len(s.consumers) != 1 {
		t.Errorf("an import that does not see a claim: %v", err)
	}
}

func TestWhatCannotBeReadIsNotExported(t *testing.T) {
	s := newLiveStore(t)
	for text, load := range map[string]func(*Snapshot) error{
		"away": func(*Snapshot) error { return errors.New("away") },
		"CUSTOM_BROKEN": func(out *Snapshot) error {
			out.Entries = []Entry{{Key: Key{KindTrait, "CUSTOM_BROKEN"}, Value: []byte("no JSON")}}
			return nil
		},
	} {
		s.loading = load
		_, err := (&Archive{Store: s}).Read(t.Context(), func(string, int, int) {})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWhatAnyHistoryLeavesIsExported(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for range 20 {
		seed++
		s := newLiveStore(t)
		s.Rand = rand.New(rand.NewPCG(seed, 3))
		for range 60 {
			txn, _ := s.decide(s.request(true))
			s.put(txn)
		}
		out := exported(s)
		for _, p := range out.Providers {
			have := s.providers[string(p.ID)]
			traits := make([]croft.Trait, 0, len(have.Traits))
			for _, id := range have.Traits {
				traits = append(traits, croft.Trait(s.TraitName(id)))
			}
			slices.Sort(traits)
			if p.Name != have.Name || p.Generation != have.Generation || string(p.Parent) != have.Parent ||
				len(p.Inventories) != len(have.Inventories) || !slices.Equal(p.Traits, traits) {
				t.Fatalf("seed %d: exported %+v, is %+v", seed, p, have.ProviderData)
			}
		}
		custom := 0
		for _, symbols := range []*Symbols{s.classes, s.traits} {
			custom += symbols.custom()
		}
		if len(out.Classes)+len(out.Traits) != custom || len(out.Providers) != len(s.all) ||
			len(out.Consumers) != len(s.consumers) {
			t.Fatalf("seed %d: exported %+v, is %s", seed, out, dump(s.State))
		}
		for _, c := range out.Consumers {
			have := s.consumers[string(c.ID)]
			allocations := map[croft.HostID]croft.Resources{}
			for _, a := range have.Allocations {
				if allocations[croft.HostID(a.Provider)] == nil {
					allocations[croft.HostID(a.Provider)] = croft.Resources{}
				}
				allocations[croft.HostID(a.Provider)][croft.ResourceClass(s.ClassName(a.Class))] = a.N
			}
			if !reflect.DeepEqual(c.Allocations, allocations) {
				t.Fatalf("seed %d: exported %+v, is %+v", seed, c, have.ConsumerData)
			}
		}
	}
}
