package usage

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"croft"
	"croft/tenant"
)

// recording is what the one recorder knows that acts. It has no clock: times are given, as the machine tells them.
//
// What it hears of takes effect when it is heard. That is right only as long as changes arrive soon. So each step is
// confirmed by hearing of its own head: what was not heard until then happened after the step was sent. And a tick
// comes every second, unless the process or the machine was suspended. Without either for a while, nothing that is
// heard has a known time, and the recorder has to begin again.
type recording struct {
	head      Head // as written last
	accounts  map[ID]Meter
	dirty     map[ID]bool
	over      []Finished
	seen      int64     // the last revision that was heard of
	sent      time.Time // when the step was sent that is not confirmed yet; zero: all are
	asHead    int64     // the revision of that step; 0: it is not known yet
	confirmed Head      // what the next step may say: At and Revision
	heard     time.Time // when the machine had that time
	ticked    time.Time // when the last tick came
}

// errLate ends a recording that does not know when things happened.
var errLate = croft.Errorf(croft.Unavailable, "what projects use was not heard of for too long")

// begin compares what was recorded with what is used now. now is not after Take was called.
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

// late returns an error if it is not known when happened what is heard now.
func (r *recording) late(now time.Time) error {
	if now.Sub(r.heard) > unconfirmed || now.Sub(r.ticked) > suspended || now.Before(r.ticked.Add(-time.Second)) {
		return errLate
	}
	return nil
}

// tick says that the recorder runs.
func (r *recording) tick(now time.Time) error {
	err := r.late(now)
	r.ticked = now
	return err
}

// note takes what one revision changed, heard at a time.
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

// confirm confirms the step that was sent, if everything until its revision was heard.
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

// step returns what is to be written now.
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

// wrote says that the last step was written.
func (r *recording) wrote(head Head) {
	if r.head = head; r.asHead == 0 {
		r.asHead = head.Generation
	}
	r.confirm()
}
