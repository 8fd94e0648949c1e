package placement_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/placement/ledger"
	"croft/placement/transfer"
	"croft/placement/transfer/transfertest"
	"croft/placementclient"
)

func noProgress(string, int, int) {}

// exported returns a store's state as exported, without its revision.
func exported(t *testing.T, store ledger.Store) string {
	t.Helper()
	state, err := (&ledger.Archive{Store: store}).Read(t.Context(), noProgress)
	if err != nil {
		t.Fatal(err)
	}
	return written(t, state)
}

func written(t *testing.T, state *transfer.State) string {
	t.Helper()
	plain := *state
	plain.Revision = 0
	var b bytes.Buffer
	if err := transfer.Encode(&b, &plain); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// differ reports the first line that differs.
func differ(t *testing.T, what, want, got string) {
	t.Helper()
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s, line %d:\nwant %s\ngot  %s", what, i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%s: %d lines, want %d", what, len(b), len(a))
	}
}

func importInto(ctx context.Context, store ledger.Store, want *transfer.State) (*transfer.Changes, error) {
	return transfer.Import(ctx, want, &ledger.Archive{Store: store}, false, noProgress)
}

func TestWhatIsImportedIsExportedAlike(t *testing.T) {
	want := transfertest.Sample(1, 60)
	store := etcdtest.Start(t).Placement(0)
	if _, err := importInto(t.Context(), store, want); err != nil {
		t.Fatal(err)
	}
	got := exported(t, store)
	differ(t, "exported", written(t, want), got)
	read, err := transfer.Decode(strings.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	again, err := importInto(t.Context(), store, read)
	if err != nil || !again.Empty() {
		t.Errorf("the second import: %v, changes %v", err, again)
	}
}

// cut is a store that fails after a number of transactions.
type cut struct {
	ledger.Store
	left int
}

// Commit implements ledger.Store.
func (c *cut) Commit(ctx context.Context, t ledger.Txn) (ledger.Outcome, error) {
	if c.left--; c.left < 0 {
		return ledger.Outcome{}, croft.Errorf(croft.Unavailable, "cut off")
	}
	return c.Store.Commit(ctx, t)
}

// small is a store with a low limit of writes per transaction.
type small struct {
	ledger.Store
	limit int
}

// Limit implements ledger.Store.
func (s small) Limit() int { return s.limit }

func TestAnInterruptedImportIsFinishedByTheNext(t *testing.T) {
	want := transfertest.Sample(2, 8)
	for n := 0; ; n++ {
		store := small{etcdtest.Start(t).Placement(0), 12}
		_, err := importInto(t.Context(), &cut{store, n}, want)
		if err == nil {
			differ(t, "uninterrupted", written(t, want), exported(t, store))
			if n < 10 {
				t.Fatalf("it took %d transactions only", n)
			}
			return
		}
		if !errors.Is(err, croft.Unavailable) || !strings.Contains(err.Error(), "what is missing comes when it is run "+
			"again") {
			t.Fatalf("interrupted after %d: %v", n, err)
		}
		nothingLeftToClaim(t, store, want)
		if _, err := importInto(t.Context(), store, want); err != nil {
			t.Fatalf("after an interruption at %d: %v", n, err)
		}
		differ(t, fmt.Sprintf("interrupted at %d", n), written(t, want), exported(t, store))
	}
}

// nothingLeftToClaim checks that no inventory exists while consumers are missing.
func nothingLeftToClaim(t *testing.T, store ledger.Store, want *transfer.State) {
	t.Helper()
	have, err := (&ledger.Archive{Store: store}).Read(t.Context(), noProgress)
	if err != nil {
		t.Fatal(err)
	}
	if len(have.Consumers) == len(want.Consumers) {
		return
	}
	for _, p := range have.Providers {
		if len(p.Inventories) > 0 {
			t.Fatalf("with %d of %d consumers provider %s can be claimed from", len(have.Consumers),
				len(want.Consumers), p.Name)
		}
	}
}

// meanwhile is a store that calls a function before the first transaction.
type meanwhile struct {
	ledger.Store
	do sync.Once
	it func()
}

// Commit implements ledger.Store.
func (m *meanwhile) Commit(ctx context.Context, t ledger.Txn) (ledger.Outcome, error) {
	m.do.Do(m.it)
	return m.Store.Commit(ctx, t)
}

func TestARivalsChangeIsNotOverwritten(t *testing.T) {
	want := transfertest.Sample(3, 3)
	want.Classes, want.Traits = nil, nil // so that providers are written first
	for i := range want.Providers {
		want.Providers[i].Traits = nil
		delete(want.Providers[i].Inventories, "CUSTOM_FPGA")
	}
	want.Consumers = nil
	store := etcdtest.Start(t).Placement(0)
	rival := transfertest.Sample(3, 3)
	rival.Providers, rival.Consumers = rival.Providers[:1], nil
	rival.Providers[0].Name = "the rival's"
	_, err := importInto(t.Context(), &meanwhile{Store: store, it: func() {
		if _, err := importInto(t.Context(), store, rival); err != nil {
			t.Error(err)
		}
	}}, want)
	if !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if got := exported(t, store); !strings.Contains(got, "the rival's") {
		t.Errorf("the rival's change is gone:\n%s", got)
	}
}

func TestWhatNoTransactionHoldsIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	want := transfertest.Sample(4, 20)
	wide := transfer.Consumer{ID: croft.NewInstanceID(), Project: "p", User: "u",
		Allocations: map[croft.HostID]croft.Resources{}}
	for _, p := range want.Providers {
		if _, ok := p.Inventories[croft.VCPU]; ok {
			wide.Allocations[p.ID] = croft.Resources{croft.VCPU: 1}
		}
	}
	want.Consumers = append(want.Consumers, wide)
	store := small{etcdtest.Start(t).Placement(0), 10}
	before := exported(t, store)
	_, err := importInto(t.Context(), store, want)
	told := fmt.Sprintf("import: consumer %s needs %d writes in one transaction and etcd takes 10 here", wide.ID,
		len(wide.Allocations)+1)
	if !errors.Is(err, croft.Invalid) || !strings.HasPrefix(err.Error(), told) {
		t.Errorf("got %v, want %s...", err, told)
	}
	differ(t, "after the refusal", before, exported(t, store))
}

// TestImportBesideClaimsIsNeverOver imports into an etcd while clients claim through servers on it.
func TestImportBesideClaimsIsNeverOver(t *testing.T) {
	want := transfertest.Sample(5, 12)
	store := etcdtest.Start(t)
	client, err := placementclient.New(placementclient.Config{Endpoint: serveOn(t, store)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				p := want.Providers[n%len(want.Providers)]
				take := croft.Resources{}
				for class, offer := range p.Inventories {
					take[class] = max(offer.MinUnit, offer.Capacity()/2)
				}
				_ = client.Claim(ctx, croft.NewInstanceID(), croft.Owner{Project: "p"},
					croft.Candidate{Allocations: map[croft.HostID]croft.Resources{p.ID: take}})
			}
		})
	}
	_, err = importInto(t.Context(), small{store.Placement(0), 12}, want)
	stop()
	work.Wait()
	if err != nil && !errors.Is(err, croft.Conflict) {
		t.Fatal(err)
	}
	notOver(t, store.Placement(0), want)
}

// notOver checks that a provider filled by imported consumers has no other consumers.
func notOver(t *testing.T, store ledger.Store, want *transfer.State) {
	t.Helper()
	have, err := (&ledger.Archive{Store: store}).Read(t.Context(), noProgress)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[croft.InstanceID]bool{}
	for _, c := range want.Consumers {
		imported[c.ID] = true
	}
	sums, foreign := map[croft.HostID]croft.Resources{}, map[croft.HostID]bool{}
	for _, c := range have.Consumers {
		for id, r := range c.Allocations {
			foreign[id] = foreign[id] || !imported[c.ID]
			if sums[id] == nil {
				sums[id] = croft.Resources{}
			}
			for class, n := range r {
				sums[id][class] += n
			}
		}
	}
	for _, p := range have.Providers {
		for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
			if sum, most := sums[p.ID][class], p.Inventories[class].Capacity(); foreign[p.ID] && sum > most {
				t.Errorf("%d of %d %s of provider %s are claimed", sum, most, class, p.Name)
			}
		}
	}
}
