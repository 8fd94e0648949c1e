package usage

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"croft"
	"croft/tenant"
)

// recording is the state of the acting recorder. It does not read the clock: callers pass the machine's time.
//
// A change counts from the time at which it is received. That is correct only if changes arrive soon. So each step is
// confirmed by receiving its own head: changes that were not received until then happened after the step was sent. And
// a tick comes every second, unless the process or the machine was suspended. Without either for a while, the time of
// received changes is unknown, and the recorder has to start again.
type recording struct {
	head      Head // as last written
	accounts  map[ID]Meter
	dirty     map[ID]bool
	over      []Finished
	seen      int64     // the last received revision
	sent      time.Time // when the unconfirmed step was sent; zero: all steps are confirmed
	asHead    int64     // the revision of that step; 0: unknown yet
	confirmed Head      // At and Revision for the next step
	heard     time.Time // the machine's time when the last confirmed step was sent
	ticked    time.Time // when the last tick came
}

// errLate ends a recording that cannot tell when changes happened.
var errLate = croft.Errorf(croft.Unavailable, "what projects use was not heard of for too long")

// begin compares the recorded levels with the current ones. now must not be after the call of Take.
func begin(t Taken, now time.Time) *recording {
	r := &recording{head: t.Head, accounts: map[ID]Meter{}, dirty: map[ID]bool{}, heard: now, ticked: now,
		confirmed: Head{At: later(t.Head.At, now), Revision: max(t.Head.Revision, t.Revision)}}
	for _, a := range t.Accounts {
		r.accounts[a.ID] = a.Meter
	}
	at, present := r.confirmed.At, map[ID]bool{}
	for _, l := range t.Levels {
		present[l.ID] = true
		m, known := r.accounts[l.ID]
		switch {
		case !known && len(l.Used) == 0 && (t.Head.At.IsZero() || l.Changed <= max(t.Head.Revision, l.Born)):
			// it never used anything
		case !known && t.Head.At.IsZero():
			r.put(l.ID, NewMeter(at).Set(l.Used, l.Changed), nil)
		case !known:
			m, over := NewMeter(t.Head.At).Between(t.Head.At, at, l.Used, l.Changed)
			r.put(l.ID, m, over)
		case l.Changed > max(t.Head.Revision, m.Revision) || !maps.Equal(m.Set(l.Used, 0).Used, m.Used):
			m, over := m.Between(t.Head.At, at, l.Used, l.Changed)
			r.put(l.ID, m, over)
		}
	}
	for id, m := range r.accounts {
		if !present[id] && !m.Ended {
			m, over := m.Between(t.Head.At, at, tenant.Amounts{}, t.Revision)
			r.put(id, m.end(t.Revision), over)
		}
	}
	return r
}

// put replaces the meter of an account.
func (r *recording) put(id ID, m Meter, over []Day) {
	r.accounts[id], r.dirty[id] = m, true
	for _, d := range over {
		r.over = append(r.over, Finished{id, d})
	}
}

// late returns an error if the time of changes that are received now is unknown.
func (r *recording) late(now time.Time) error {
	if now.Sub(r.heard) > unconfirmed || now.Sub(r.ticked) > suspended || now.Before(r.ticked.Add(-time.Second)) {
		return errLate
	}
	return nil
}

// tick reports that the recorder runs.
func (r *recording) tick(now time.Time) error {
	err := r.late(now)
	r.ticked = now
	return err
}

// note applies the changes of one revision, received at now.
func (r *recording) note(s Seen, now time.Time) error {
	if err := r.late(now); err != nil {
		return err
	}
	for _, l := range s.Levels {
		r.change(l, now)
	}
	for _, id := range s.Gone {
		if m, known := r.accounts[id]; known {
			m, over := m.Until(now)
			r.put(id, m.end(s.Revision), over)
		}
	}
	r.seen = s.Revision
	r.confirm()
	return nil
}

// confirm confirms the sent step, if everything up to its revision was received.
func (r *recording) confirm() {
	if r.asHead == 0 || r.seen < r.asHead {
		return
	}
	r.confirmed = Head{At: later(r.confirmed.At, r.sent), Revision: r.asHead}
	r.heard, r.sent, r.asHead = r.sent, time.Time{}, 0
}

func (r *recording) change(l Level, now time.Time) {
	m, known := r.accounts[l.ID]
	if !known && len(l.Used) == 0 {
		return
	}
	if !known {
		m = NewMeter(later(r.confirmed.At, now))
	}
	m, over := m.Until(now)
	r.put(l.ID, m.Set(l.Used, l.Changed), over)
}

// step returns the step to write now.
func (r *recording) step(now time.Time) (Step, error) {
	if err := r.late(now); err != nil {
		return Step{}, err
	}
	s := Step{Was: r.head, Next: Head{Recorder: r.head.Recorder, At: r.confirmed.At, Revision: r.confirmed.Revision},
		Days: r.over}
	for id := range r.dirty {
		s.Accounts = append(s.Accounts, Stored{id, r.accounts[id]})
	}
	slices.SortFunc(s.Accounts, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Born, b.Born))
	})
	r.over = nil
	clear(r.dirty)
	if r.sent.IsZero() {
		r.sent = now
	}
	return s, nil
}

// wrote reports that the last step was written.
func (r *recording) wrote(head Head) {
	if r.head = head; r.asHead == 0 {
		r.asHead = head.Generation
	}
	r.confirm()
}
