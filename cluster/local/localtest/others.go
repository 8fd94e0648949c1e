package localtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"croft"
	"croft/schedule"
)

// filler is the project of the instance that uses all room.
const filler croft.Project = "filler"

// Fill claims all free memory and the other resources that an instance needs, or releases them.
func Fill(t testing.TB, s *schedule.Scheduler, full bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if !full {
		all, err := s.View.List(ctx, filler)
		if err != nil {
			t.Error(err)
		}
		for _, st := range all {
			Remove(t, s, filler, string(st.Instance.ID))
		}
		return
	}
	for {
		all, err := s.Claims.Providers(ctx)
		if err != nil {
			t.Fatal(err)
		}
		most := int64(0)
		for _, p := range all {
			left := func(class croft.ResourceClass) int64 { return p.Inventories[class].Capacity() - p.Used[class] }
			if left(croft.VCPU) > 0 && left(croft.DiskGB) > 0 {
				most = max(most, min(p.Inventories[croft.MemoryMB].MaxUnit, left(croft.MemoryMB)))
			}
		}
		if most == 0 {
			return
		}
		q, err := schedule.ParseQuery(fmt.Sprintf("VCPU:1,DISK_GB:1,MEMORY_MB:%d", most))
		if err == nil {
			_, err = s.Request(ctx, schedule.Request{Project: filler, Query: q, Hold: time.Hour})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Occupy creates an instance that belongs to no cluster, and removes it at the end of the test. left reports whether it
// still exists.
func Occupy(t testing.TB, s *schedule.Scheduler, q schedule.Request) (left func() bool) {
	t.Helper()
	if _, err := s.Request(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(t, s, q.Project, q.Name) })
	return func() bool {
		st, err := s.View.Find(t.Context(), q.Project, q.Name)
		return err == nil && st.Instance.State == croft.StateScheduled && st.Instance.Cluster == ""
	}
}

// Remove destroys an instance, which may be gone already.
func Remove(t testing.TB, s *schedule.Scheduler, p croft.Project, idOrName string) {
	t.Helper()
	_, err := s.Destroy(context.WithoutCancel(t.Context()), p, idOrName, false)
	if err != nil && croft.KindOf(err) != croft.NotFound {
		t.Error(err)
	}
}

// Lose destroys a member at once, as operators do for lost hosts.
func Lose(t testing.TB, s *schedule.Scheduler, p croft.Project, id string) {
	t.Helper()
	if _, err := s.Destroy(context.WithoutCancel(t.Context()), p, id, true); err != nil {
		t.Error(err)
	}
}
