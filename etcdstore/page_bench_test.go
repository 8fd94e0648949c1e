package etcdstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// crowd is a cloud with three instances of the project few, which have properties, and many instances of other
// projects.
func crowd(b *testing.B, others int) *etcdstore.Store {
	b.Helper()
	store := etcdtest.Open(b, etcdtest.Server(b))
	work, ctx := errgroup.WithContext(b.Context())
	work.SetLimit(64)
	for i := range others + 3 {
		work.Go(func() error {
			inst := etcdtest.NewInstance(fmt.Sprintf("vm%d", i))
			inst.Project = croft.Project(fmt.Sprintf("p%d", i%10))
			if i < 3 {
				inst.Project = "few"
			}
			inst, err := store.Instances.Create(ctx, inst)
			if err != nil {
				return err
			}
			_, err = objects.New(store.Objects).Change(ctx, operator, access.Everything(), refOf(inst),
				objects.Change{AddTags: []string{"keep"}})
			return err
		})
	}
	if err := work.Wait(); err != nil {
		b.Fatal(err)
	}
	return store
}

var operator = access.Caller{Roles: []access.Role{access.PartitionAdmin}}

// BenchmarkListsOfASmallProject measures the cost of lists of three instances in a cloud of 10,000, as a ratio to the
// cost in a cloud without others.
func BenchmarkListsOfASmallProject(b *testing.B) {
	alone, crowded := crowd(b, 0), crowd(b, 10_000)
	for _, c := range []struct {
		name string
		list func(ctx context.Context, s *etcdstore.Store) (int, error)
	}{
		{"a page", func(ctx context.Context, s *etcdstore.Store) (int, error) {
			page, _, err := s.Instances.Page(ctx, "few", "", 500)
			return len(page), err
		}},
		{"the whole project", func(ctx context.Context, s *etcdstore.Store) (int, error) {
			all, err := s.Instances.List(ctx, "few")
			return len(all), err
		}},
		{"what is noted", func(ctx context.Context, s *etcdstore.Store) (int, error) {
			all, _, err := s.Objects.List(ctx, access.Within("few"), objects.Instance)
			return len(all), err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took [2]time.Duration
			for b.Loop() {
				for i, s := range []*etcdstore.Store{alone, crowded} {
					start := time.Now()
					if n, err := c.list(b.Context(), s); err != nil || n != 3 {
						b.Fatalf("listed %d, %v", n, err)
					}
					took[i] += time.Since(start)
				}
			}
			b.ReportMetric(float64(took[1])/float64(took[0]), "crowded/alone")
		})
	}
}
