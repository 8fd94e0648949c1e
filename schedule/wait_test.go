package schedule_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/schedule"
)

func TestWaitEndsWithTheFirstVerdict(t *testing.T) {
	c := newCloud(t, 1)
	inst, calls := scheduled(t, c, "web"), 0
	err := c.Wait(t.Context(), inst, func(*croft.Status) (bool, error) {
		calls++
		return false, errPlanned
	}, nil)
	if !errors.Is(err, croft.Unavailable) || calls != 1 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}

func TestWaitForTheEndTellsNoProgressOfIt(t *testing.T) {
	c := newCloud(t, 1)
	inst, told := scheduled(t, c, "web"), 0
	if err := c.store.Bury(t.Context(), inst, croft.Order{}); err != nil {
		t.Fatal(err)
	}
	err := c.Wait(t.Context(), inst, schedule.Gone, func(croft.Status) { told++ })
	if err != nil || told != 0 {
		t.Errorf("got %v, told %d times", err, told)
	}
}

// later is a view in which an ID belongs to a later instance.
type later struct {
	schedule.View
	st *croft.Status
}

func (l later) WatchInstance(_ context.Context, _ croft.InstanceID, changed func(*croft.Status) bool) error {
	changed(l.st)
	return nil
}

// Clients choose IDs. A wait for an instance must not continue with a later one that another project created.
func TestWaitEndsWhereTheIDBelongsToALaterInstance(t *testing.T) {
	for name, change := range map[string]func(*croft.Instance){
		"of another project":  func(i *croft.Instance) { i.Project = "mallory" },
		"of the same project": func(i *croft.Instance) { i.Created = i.Created.Add(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			c, told := newCloud(t, 1), 0
			inst := scheduled(t, c, "web")
			next := inst
			change(&next)
			st := croft.Status{Instance: next, Observation: &croft.Observation{State: croft.StateRunning,
				Generation: inst.Generation}}
			c.Scheduler.View = later{c.View, &st}
			err := c.Wait(t.Context(), inst, schedule.Running, func(croft.Status) { told++ })
			if croft.KindOf(err) != croft.NotFound || told != 0 {
				t.Errorf("got %v, told %d times of the later instance", err, told)
			}
		})
	}
}

func TestWaitEndsWhereTheWatchFailsForGood(t *testing.T) {
	c, watches := newCloud(t, 1), 0
	inst := scheduled(t, c, "web")
	c.fail(faulty{watch: func() error { watches++; return croft.Errorf(croft.Invalid, "planned") }})
	err := c.Wait(t.Context(), inst, schedule.Running, nil)
	if croft.KindOf(err) != croft.Invalid || watches != 1 {
		t.Errorf("got %v after %d watches", err, watches)
	}
}

// The wait checks once more at its end: a host that falls silent does not wake the watch.
func TestWaitLooksOnceMoreAtItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		st   func(croft.Instance) (croft.Status, error)
		want string
	}{
		"and finds the goal reached": {func(inst croft.Instance) (croft.Status, error) {
			return croft.Status{Instance: inst, Observation: &croft.Observation{State: croft.StateRunning,
				Generation: inst.Generation}}, nil
		}, ""},
		"and finds that it never will be": {func(inst croft.Instance) (croft.Status, error) {
			inst.State = croft.StateDestroying
			return croft.Status{Instance: inst}, nil
		}, "instance web: waited long enough; it is destroying"},
		"and finds nothing out": {func(croft.Instance) (croft.Status, error) {
			return croft.Status{}, errPlanned
		}, "instance web: waited long enough; its state cannot be read: planned"},
		"and finds a failure that another goal ignores": {func(inst croft.Instance) (croft.Status, error) {
			return croft.Status{Instance: inst, Observation: &croft.Observation{State: croft.StateFailed,
				Error: "no", Generation: inst.Generation}}, nil
		}, "instance web: waited long enough; it is failed: no"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newCloud(t, 1)
			inst := scheduled(t, cloud, "web")
			ctx, cancel := context.WithDeadline(t.Context(), time.Now())
			defer cancel()
			cloud.fail(faulty{find: func() (croft.Status, error) { return c.st(inst) },
				watch: func() error { return ctx.Err() }})
			err := cloud.Wait(ctx, inst, schedule.Running, nil)
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestWaitForReadinessSaysThatTheGuestReportsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		goal  schedule.Goal
		state croft.State
		want  string
	}{
		"a running guest without a report": {schedule.Ready, croft.StateRunning,
			"it is running, and its guest has not reported"},
		"a guest that boots":      {schedule.Ready, croft.StateBooting, "it is booting"},
		"a guest that is to stop": {schedule.Stopped, croft.StateRunning, "it is running"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newCloud(t, 1)
			inst := scheduled(t, cloud, "web")
			ctx, cancel := context.WithDeadline(t.Context(), time.Now())
			defer cancel()
			cloud.fail(faulty{find: func() (croft.Status, error) {
				return croft.Status{Instance: inst, Observation: &croft.Observation{State: c.state,
					Generation: inst.Generation}}, nil
			}, watch: func() error { return ctx.Err() }})
			err := cloud.Wait(ctx, inst, c.goal, nil)
			if err == nil || !strings.HasPrefix(err.Error(), "instance web: waited long enough; "+c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
