package cluster

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"croft"
)

// FuzzPlan simulates the life of a cluster with random observations, then with a site that works, while the user
// destroys the cluster. The argument is the seed.
func FuzzPlan(f *testing.F) {
	for range 500 {
		f.Add(rand.Uint64())
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := &life{T: t, r: r, now: noon, c: record(States[r.IntN(len(States)-1)])}
		for range r.IntN(60) {
			if l.step(l.anything); r.IntN(10) == 0 {
				l.user()
			}
		}
		if l.c.State != Deleted && r.IntN(3) > 0 {
			l.c.State = Deleting
		}
		for n := 0; ; n++ {
			if l.step(l.truth); l.c.State == Deleted || l.c.State == Failed && l.acts[len(l.acts)-1] == ActRest {
				break
			}
			if settled := l.c.State == Ready || l.c.State == Degraded; settled && n > 100 {
				l.c.State = Deleting
			}
			if n > 400 {
				t.Fatalf("it does not end: %+v after %v", l.c, l.acts[len(l.acts)-20:])
			}
		}
		if l.c.State == Deleted && l.has && !l.c.Abandoned {
			t.Errorf("it is deleted, and the site still has it: %v", l.acts)
		}
	})
}

// life is a cluster, its site, and a manager that performs the decisions of Plan.
type life struct {
	*testing.T
	r    *rand.Rand
	now  time.Time
	c    Cluster
	acts []Act
	has  bool // the site has the cluster
	size []int
}

// step is one pass of the manager, up to a rest.
func (l *life) step(world func(a Act, c Cluster) Learned) {
	var learned Learned
	for n := 0; ; n++ {
		was := l.c
		next := Plan(l.c, learned, l.now)
		l.check(was, learned, next)
		again := next.Record
		again.Updated = l.c.Updated
		l.c = next.Record
		l.acts = append(l.acts, next.Do)
		if next.Do == ActRest || next.Do == ActForget {
			l.rest(next)
			return
		}
		if n > 20 {
			l.Fatalf("a pass never rests: %v", l.acts[len(l.acts)-20:])
		}
		learned = world(next.Do, l.c)
		learned.Did = next.Do
		switch {
		case next.Do == ActLaunch && learned.Err == nil:
			l.has, l.size = true, l.c.Indexes
		case next.Do == ActDestroy && learned.Err == nil:
			l.has = false
		}
	}
}

func (l *life) rest(next Next) {
	to := l.now.Add(max(next.Pace, time.Second))
	if !next.At.IsZero() && (next.Pace == 0 || next.At.Before(to)) {
		to = next.At
	}
	if !to.After(l.now) {
		to = l.now.Add(time.Second)
	}
	l.now = to
}

// check checks the invariants that hold for every observation.
func (l *life) check(was Cluster, learned Learned, next Next) {
	l.Helper()
	c := next.Record
	switch next.Do {
	case ActDestroy:
		failed := c.State == Failed && !c.KeptUntil.IsZero() && !l.now.Before(c.KeptUntil)
		fallback := c.State == Scheduling && len(c.Attempts) > 0 && !c.Retry.Since.IsZero()
		if c.State != Deleting && !failed && !fallback {
			l.Errorf("it destroys in state %s (%s)", c.State, next.Reason)
		}
	case ActLaunch:
		if c.Remote.ID != "" || c.State != Building || !c.Remote.Asked || c.Remote.Name == "" {
			l.Errorf("it launches %+v in state %s", c.Remote, c.State)
		}
		if slices.ContainsFunc(c.Attempts, func(a Tried) bool { return a.Site == c.Site }) {
			l.Errorf("it launches at %s again, where it failed: %+v", c.Site, c.Attempts)
		}
	case ActResize:
		if learned.Did != ActLook || learned.Seen == nil || learned.Seen.Phase == Updating ||
			learned.Seen.Phase == Working || learned.Seen.Phase == Removing {
			l.Errorf("it resizes after it learned %+v", learned)
		}
	}
	silent := learned.Err != nil && errors.Is(learned.Err, croft.Unavailable)
	late := !was.Deadline.IsZero() && !l.now.Before(was.Deadline)
	if silent && learned.Did != ActChoose && c.State != was.State && !late {
		l.Errorf("without an answer it went from %s to %s", was.State, c.State)
	}
	if !slices.IsSorted(c.Indexes) || c.Slaves != len(c.Indexes) {
		l.Errorf("%d slaves have the indexes %v", c.Slaves, c.Indexes)
	}
	if len(c.Attempts) > MaxAttempts {
		l.Errorf("it was attempted %d times", len(c.Attempts))
	}
	if c.State == Ready && was.State != Ready && !l.whole(c) {
		l.Errorf("it is ready with %+v", c.Members)
	}
}

func (l *life) whole(c Cluster) bool {
	return len(c.Members) == 1+len(c.Indexes) || c.Error != nil || c.MasterIP != ""
}

func (l *life) oneOf(errs ...error) error { return errs[l.r.IntN(len(errs))] }

// anything returns a random result of an act.
func (l *life) anything(a Act, c Cluster) Learned {
	learned := Learned{Err: l.oneOf(nil, nil, nil, silence, refusal, noRoom, croft.Errorf(croft.Conflict, "x"),
		croft.Errorf(croft.NotFound, "x"), errors.New("x"))}
	if learned.Err != nil {
		return learned
	}
	switch a {
	case ActLook:
		phases := []Phase{Absent, Working, Updating, Standing, Standing, Broken, Unsized, Removing, Stuck}
		learned = looked(phases[l.r.IntN(len(phases))], func(s *Seen) {
			s.Elsewhere = l.r.IntN(30) == 0
			s.NoRoom = l.r.IntN(3) == 0
			if len(s.Members) > 0 && l.r.IntN(3) == 0 {
				s.Members[l.r.IntN(len(s.Members))].State = MemberGone
			}
		})
	case ActChoose:
		learned = l.choice(c)
	case ActBring:
		learned.Placed.State = []ImageState{ImageReady, ImageUploading, ImageFailed}[l.r.IntN(3)]
	case ActLaunch:
		learned.Remote.ID = "stack"
	case ActResize:
		l.size = c.Indexes
	}
	return learned
}

// choice offers sites that were not tried yet.
func (l *life) choice(c Cluster) Learned {
	var sites []string
	for _, s := range []string{"there", "a", "b", "c"} {
		if l.r.IntN(2) == 0 && !slices.ContainsFunc(c.Attempts, func(a Tried) bool { return a.Site == s }) {
			sites = append(sites, s)
		}
	}
	return candidates(sites...)
}

// user changes the size, as a request would.
func (l *life) user() {
	if l.c.State != Ready && l.c.State != Degraded && l.c.State != Resizing {
		return
	}
	if l.r.IntN(2) == 0 || len(l.c.Indexes) == 0 {
		l.c.Indexes = append(slices.Clone(l.c.Indexes), l.c.NextIndex)
		l.c.NextIndex++
	} else {
		l.c.Indexes = slices.Delete(slices.Clone(l.c.Indexes), 0, 1)
	}
	l.c.Slaves = len(l.c.Indexes)
}

// truth returns the result of an act at a site that works.
func (l *life) truth(a Act, c Cluster) Learned {
	switch a {
	case ActLaunch:
		return Learned{Remote: Remote{ID: "stack"}}
	case ActResize:
		l.size = c.Indexes
	case ActChoose:
		return l.choice(c)
	case ActBring:
		return Learned{Placed: Placed{State: ImageReady}}
	case ActLook:
		if !l.has {
			return looked(Absent)
		}
		return looked(Standing, func(s *Seen) { s.Members = members(MemberReady, l.size...) })
	}
	return Learned{}
}
