package etcdstore_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/etcdstore/etcdtest"
)

func TestPoliciesAreKept(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	ctx, s := t.Context(), store.Policies
	if all, err := s.List(ctx); err != nil || len(all) != 0 {
		t.Fatalf("got %+v, %v", all, err)
	}
	_, err := s.Find(ctx, "db")
	wantKind(t, err, croft.NotFound)
	none := int64(0)
	first, err := s.Set(ctx, croft.CrushPolicy{Name: "db", Text: "take 1"}, &none)
	if err != nil || first.Generation == 0 {
		t.Fatalf("got %+v, %v", first, err)
	}
	if same, err := s.Set(ctx, croft.CrushPolicy{Name: "db", Text: "take 1"}, nil); err != nil || same != first {
		t.Errorf("the same once more: %+v, %v", same, err)
	}
	_, err = s.Set(ctx, croft.CrushPolicy{Name: "db", Text: "take 2"}, &none)
	wantKind(t, err, croft.Conflict)
	second, err := s.Set(ctx, croft.CrushPolicy{Name: "db", Text: "take 2"}, &first.Generation)
	if err != nil || second.Generation <= first.Generation {
		t.Fatalf("got %+v, %v", second, err)
	}
	if found, err := s.Find(ctx, "db"); err != nil || found != second {
		t.Errorf("found %+v, %v", found, err)
	}
	_, err = s.Set(ctx, croft.CrushPolicy{Name: "a/b", Text: "take 1"}, nil)
	wantKind(t, err, croft.Invalid)
	wantKind(t, s.Remove(ctx, "db", &first.Generation), croft.Conflict)
	if err := s.Remove(ctx, "db", &second.Generation); err != nil {
		t.Error(err)
	}
	wantKind(t, s.Remove(ctx, "db", nil), croft.NotFound)
}

// TestNumbersStay assigns numbers through many connections at once while hosts are added and removed: no number is
// assigned twice, and none changes.
func TestNumbersStay(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	ctx := t.Context()
	var ids []croft.HostID
	for i := range 70 { // more than fit into one transaction
		id := croft.NewHostID()
		if err := store.Registry.PutHost(ctx, croft.Host{ID: id, Name: fmt.Sprint("host", i)}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	var work errgroup.Group
	for i := range 8 {
		work.Go(func() error {
			return store.Policies.Number(ctx, ids[i*5:], []string{"s1", fmt.Sprint("s1.r", i)})
		})
	}
	// not a host
	work.Go(func() error { return store.Policies.Number(ctx, []croft.HostID{croft.NewHostID()}, nil) })
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	before, err := store.Policies.Numbers(ctx)
	if err != nil || len(before.Hosts) != 70 || len(before.Locations) != 9 {
		t.Fatalf("got %d hosts and %d locations, %v", len(before.Hosts), len(before.Locations), err)
	}
	for i, n := range slices.Sorted(maps.Values(before.Hosts)) {
		if int(n) != i {
			t.Fatalf("the numbers of hosts are %v", slices.Sorted(maps.Values(before.Hosts)))
		}
	}
	if err := store.Registry.ForgetHost(ctx, ids[10]); err != nil {
		t.Fatal(err)
	}
	back := croft.Host{ID: ids[10], Name: "again"}
	if err := store.Registry.PutHost(ctx, back); err != nil {
		t.Fatal(err)
	}
	if err := store.Policies.Number(ctx, ids, nil); err != nil {
		t.Fatal(err)
	}
	after, err := store.Policies.Numbers(ctx)
	if err != nil || after.Hosts[back.ID] != 70 {
		t.Errorf("a host that was forgotten has number %d now, %v; want one that none had", after.Hosts[back.ID], err)
	}
	delete(before.Hosts, back.ID)
	delete(after.Hosts, back.ID)
	if !maps.Equal(before.Hosts, after.Hosts) || !maps.Equal(before.Locations, after.Locations) {
		t.Error("numbers of others changed")
	}
}

func wantKind(t *testing.T, err error, kind croft.Kind) {
	t.Helper()
	if err == nil || croft.KindOf(err) != kind {
		t.Errorf("got %v, want an error of kind %s", err, kind)
	}
}
