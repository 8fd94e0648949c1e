package usage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"croft"
	"croft/tenant"
)

// world is a cloud in memory: the usage of projects, its changes, and the recorded history. Its time advances in
// seconds.
type world struct {
	*rand.Rand
	now      time.Time
	revision int64
	levels   map[ID]Level
	events   []Seen
	head     Head
	accounts map[ID]Meter
	days     map[ID]map[string]Day
	writes   int
	safe     bool // no answer is lost, as at the start
	always   bool // nor later

	begun    bool
	exact    map[ID]int64 // the integral of VCPU since the start of the recording
	most     map[ID]int64
	recorded time.Time // start of the recording
}

// always is a project that never changes.
var always = ID{"always", 1}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 7)), now: time.Date(2026, 1, 31, 22, 0, 0, 0, time.UTC), revision: 5,
		levels: map[ID]Level{always: {always, 1, tenant.Amounts{"VCPU": 3}}}, accounts: map[ID]Meter{},
		days: map[ID]map[string]Day{}, exact: map[ID]int64{}, most: map[ID]int64{}, safe: true}
	return w
}

// charge changes the usage of a random project, or removes it.
func (w *world) charge() {
	p := croft.Project(fmt.Sprint("p", w.IntN(4)))
	w.revision++
	s := Seen{Revision: w.revision}
	var id ID
	for known := range w.levels {
		if known.Project == p {
			id = known
		}
	}
	switch {
	case id.Born == 0:
		id = ID{p, w.revision}
	case w.IntN(20) == 0:
		delete(w.levels, id)
		s.Gone = []ID{id}
		w.events = append(w.events, s)
		return
	}
	l := Level{id, w.revision, tenant.Amounts{"VCPU": int64(w.IntN(10))}.Plus(nil)}
	w.levels[id], w.most[id] = l, max(w.most[id], l.Used["VCPU"])
	s.Levels = []Level{l}
	w.events = append(w.events, s)
}

// second advances the time by a second.
func (w *world) second() {
	if w.begun {
		for id, l := range w.levels {
			w.exact[id] += l.Used["VCPU"]
		}
	}
	w.now = w.now.Add(time.Second)
}

var errLost = errors.New("the answer is lost")

// put writes the head, in a separate revision.
func (w *world) put(was, next Head) (Head, error) {
	if was.Generation != w.head.Generation {
		return Head{}, croft.Errorf(croft.Conflict, "replaced")
	}
	w.revision++
	next.Generation = w.revision
	w.head = next
	if w.recorded.IsZero() && !next.At.IsZero() {
		w.recorded, w.safe = next.At, w.always
	}
	w.events = append(w.events, Seen{Revision: w.revision})
	return next, nil
}

func (w *world) take(was Head, name string) (Taken, error) {
	was.Recorder = name
	head, err := w.put(Head{Generation: was.Generation}, was)
	if err != nil {
		return Taken{}, err
	}
	t := Taken{Head: head, Revision: w.revision}
	for id, m := range w.accounts {
		t.Accounts = append(t.Accounts, Stored{id, m})
	}
	for _, l := range w.levels {
		t.Levels = append(t.Levels, l)
	}
	return t, nil
}

// write writes a step, possibly only a part of it, possibly without an answer.
func (w *world) write(s Step) (Head, error) {
	if s.Was.Generation != w.head.Generation {
		return Head{}, croft.Errorf(croft.Conflict, "replaced")
	}
	w.writes++
	for _, d := range s.Days {
		if w.days[d.ID] == nil {
			w.days[d.ID] = map[string]Day{}
		}
		w.days[d.ID][d.Day.Date] = d.Day
	}
	for _, a := range s.Accounts {
		if !w.safe && w.IntN(30) == 0 {
			return Head{}, errLost
		}
		w.accounts[a.ID] = a.Meter
	}
	head, err := w.put(s.Was, s.Next)
	if !w.safe && w.IntN(30) == 0 {
		return Head{}, errLost
	}
	return head, err
}

// actor is a recorder with its own clock.
type actor struct {
	*world
	name   string
	ahead  time.Duration
	frozen int // seconds
	state  *recording
	next   int // index of the next event
	looked Head
	since  time.Time
}

func (a *actor) clock() time.Time { return a.now.Add(a.ahead) }

// second performs the actions of a recorder in one second.
func (a *actor) second() {
	if a.frozen--; a.frozen > 0 {
		return
	}
	if a.state == nil {
		a.begin()
	}
	if a.state != nil && a.state.tick(a.clock()) != nil {
		a.state, a.looked = nil, Head{}
	}
	a.hear()
	if a.state == nil || a.now.Unix()%3 != 0 {
		return
	}
	step, err := a.state.step(a.clock())
	var head Head
	if err == nil {
		head, err = a.write(step)
	}
	if err != nil {
		a.state, a.looked = nil, Head{}
		return
	}
	a.state.wrote(head)
	a.hear()
}

// begin starts recording if it is this recorder's turn.
func (a *actor) begin() {
	if a.looked.Generation != a.head.Generation || a.since.After(a.clock()) {
		a.looked, a.since = a.head, a.clock()
	}
	if a.head.Recorder != "" && a.head.Recorder != a.name && a.clock().Sub(a.since) < 3*every {
		return
	}
	began := a.clock()
	t, err := a.take(a.head, a.name)
	if err != nil {
		panic(err) // no event happens in between
	}
	a.state, a.next = begin(t, began), len(a.events)
	a.begun = true
}

// hear receives all events since the last time.
func (a *actor) hear() {
	for a.state != nil && a.next < len(a.events) {
		if a.state.note(a.events[a.next], a.clock()) != nil {
			a.state, a.looked = nil, Head{}
		}
		a.next++
	}
}

// sum adds up the history of an account.
func (w *world) sum(id ID) Day {
	var over []Day
	for _, d := range w.days[id] {
		over = append(over, d)
	}
	return Sum(Filter{}.Present(over, w.accounts[id], w.head.At))
}

// run lets recorders work for some hours, past midnight, while they are killed and suspended and their clocks jump.
func run(t *testing.T, seed uint64, troubles, jumps bool) *world {
	t.Helper()
	w := newWorld(seed)
	w.always = !troubles
	actors := []*actor{{world: w, name: "a"}, {world: w, name: "b"}}
	for n := range 4 * 3600 {
		if w.IntN(15) == 0 {
			w.charge()
		}
		for i, a := range actors {
			a.second()
			switch {
			case troubles && w.IntN(900) == 0: // killed, and started again
				actors[i] = &actor{world: w, name: fmt.Sprint("n", n, i), ahead: a.ahead}
			case troubles && w.IntN(900) == 0:
				a.frozen = 7 + w.IntN(300)
			case jumps && w.IntN(1800) == 0:
				a.ahead -= time.Duration(w.IntN(3600)) * time.Second
			case jumps && w.IntN(1800) == 0:
				a.ahead += time.Duration(w.IntN(600)) * time.Second
			}
		}
		w.second()
	}
	for range 200 { // so that pending changes are written, if any recorder can act
		for _, a := range actors {
			a.second()
		}
		w.second()
	}
	if w.writes < 100 {
		t.Fatalf("only %d steps were written", w.writes)
	}
	return w
}

// checkAlways checks that the project always is measured from the start of the recording to the time up to which it is
// complete: no second is missing, and none is counted twice, whatever happens to recorders and clocks.
func checkAlways(t *testing.T, w *world) {
	t.Helper()
	want := int64(w.head.At.Sub(w.recorded)/time.Second) * 3
	if got := w.sum(always); got.UnitSeconds["VCPU"] != want || got.Estimated != 0 || got.Peak["VCPU"] != 3 {
		t.Errorf("what never changes is measured as %+v, want %d", got, want)
	}
	for id, days := range w.days {
		for _, d := range days {
			if d.UnitSeconds["VCPU"] > 86400*d.Peak["VCPU"] || d.Estimated > 86400 {
				t.Errorf("%v has a day of %+v", id, d)
			}
		}
	}
}

func TestASumOverDaysIsTheIntegral(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	estimated := int64(0)
	for n := range uint64(12) {
		w := run(t, seed+n, n > 0, false)
		checkAlways(t, w)
		unknown := 0
		for id, exact := range w.exact {
			if _, known := w.accounts[id]; !known {
				unknown++ // it was created and removed while no recorder ran
				continue
			}
			got := w.sum(id)
			// The recorders know only the time up to the head.
			exact -= int64(w.now.Sub(w.head.At)/time.Second) * w.levels[id].Used["VCPU"]
			off := got.UnitSeconds["VCPU"] - exact
			if off < 0 {
				off = -off
			}
			if off > got.Estimated*w.most[id] {
				t.Errorf("seed %d: %v used %d, measured as %+v", seed+n, id, exact, got)
			}
			if got.Peak["VCPU"] > max(w.most[id], 3) {
				t.Errorf("seed %d: %v used at most %d, measured as %+v", seed+n, id, w.most[id], got)
			}
			estimated += got.Estimated
			if n == 0 && got.Estimated > 0 {
				t.Errorf("without troubles, %v is estimated: %+v", id, got)
			}
		}
		if unknown > 2 || n == 0 && unknown > 0 {
			t.Errorf("seed %d: %d accounts of %d are not known", seed+n, unknown, len(w.accounts))
		}
	}
	if estimated == 0 {
		t.Error("nothing is estimated although recorders were killed")
	}
}

func TestNoSecondIsCountedTwiceWhateverTheClocksSay(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for n := range uint64(12) {
		checkAlways(t, run(t, seed+n, true, true))
	}
}
