package etcdstore_test

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/etcdstore/etcdtest"
)

// TestConcurrentChangesOfDistancesAllCount states and removes distances through many connections at once.
func TestConcurrentChangesOfDistancesAllCount(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	ctx := t.Context()
	var work errgroup.Group
	for i := range 20 {
		work.Go(func() error {
			rack := fmt.Sprint("s/r/k", i)
			_, err := store.Distances.Set(ctx, "network", croft.Distance{A: rack, B: "t", Distance: i}, nil)
			if err == nil && i%2 == 1 {
				err = store.Distances.Remove(ctx, "network", "t", rack, nil)
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	all := etcdtest.Must(store.Distances.Stated(ctx, "network", "failure"))(t)
	if len(all) != 1 || len(all["network"].Distances) != 10 {
		t.Fatalf("got %+v", all)
	}
	for _, d := range all["network"].Distances {
		if d.A != fmt.Sprint("s/r/k", d.Distance) || d.B != "t" || d.Distance%2 == 1 {
			t.Errorf("got %+v", d)
		}
	}
}

func TestDistancesOfAGeneration(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	ctx := t.Context()
	none := int64(0)
	first := etcdtest.Must(store.Distances.Set(ctx, "network", croft.Distance{A: "b", B: "a", Distance: 5}, &none))(t)
	if same := etcdtest.Must(store.Distances.Set(ctx, "network", croft.Distance{A: "a", B: "b", Distance: 5},
		&first))(t); same != first {
		t.Errorf("nothing is changed, and the generation is %d, not %d", same, first)
	}
	_, err := store.Distances.Set(ctx, "network", croft.Distance{A: "a", B: "b", Distance: 6}, &none)
	if !errors.Is(err, croft.Conflict) {
		t.Errorf("of another generation: %v", err)
	}
	if err := store.Distances.Remove(ctx, "network", "a", "c", nil); !errors.Is(err, croft.NotFound) {
		t.Errorf("of another pair: %v", err)
	}
	if err := store.Distances.Remove(ctx, "network", "a", "b", &first); err != nil {
		t.Fatal(err)
	}
	if all := etcdtest.Must(store.Distances.List(ctx))(t); len(all) != 0 {
		t.Errorf("after the last is removed there is %+v", all)
	}
	for i := range croft.MaxDistanceTypes {
		etcdtest.Must(store.Distances.Set(ctx, fmt.Sprint("t", i), croft.Distance{A: "a", B: "b"}, nil))(t)
	}
	_, err = store.Distances.Set(ctx, "one-more", croft.Distance{A: "a", B: "b"}, nil)
	if !errors.Is(err, croft.Invalid) {
		t.Errorf("of one more type: %v", err)
	}
}
