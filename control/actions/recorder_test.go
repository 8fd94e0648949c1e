package actions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/control/actions"
	"croft/tenant/access"
)

// memory stores batches. It implements actions.Store.
type memory struct {
	mu      sync.Mutex
	batches []actions.Batch
	tries   int
	trimmed [][]croft.Project
	away    bool
	lose    bool // lose answers after writing
	block   chan struct{}
}

func (m *memory) Append(ctx context.Context, b actions.Batch) error {
	if m.block != nil {
		select {
		case <-m.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tries++
	if m.away {
		return croft.Errorf(croft.Unavailable, "it is away")
	}
	if !slices.ContainsFunc(m.batches, func(o actions.Batch) bool { return o.Nonce == b.Nonce && o.At.Equal(b.At) }) {
		m.batches = append(m.batches, b)
	}
	if m.lose {
		m.lose = false
		return errors.New("no answer came")
	}
	return ctx.Err()
}

func (m *memory) List(context.Context, access.Scope, actions.Filter) (actions.Page, error) {
	return actions.Page{}, nil
}

func (m *memory) Trim(_ context.Context, _ time.Time, projects ...croft.Project) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trimmed = append(m.trimmed, projects)
	return nil
}

func (m *memory) set(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
}

// entries lists the written entries.
func (m *memory) entries() (all []actions.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.batches {
		all = append(all, b.Entries...)
	}
	return all
}

func entry(project croft.Project, n int) actions.Entry {
	return actions.Entry{Time: time.Now(), Project: project, User: fmt.Sprint(n), Result: actions.Done}
}

// running runs a recorder in a bubble; stop ends it in order.
func running(t *testing.T, m *memory) (r *actions.Recorder, stop func() error) {
	t.Helper()
	r = actions.NewRecorder(m, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	synctest.Wait()
	return r, func() error { cancel(); return <-ended }
}

func TestManyEntriesShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r, stop := running(t, m)
		for i := range 300 {
			r.Add(entry("lab", i))
		}
		time.Sleep(time.Second)
		if all := m.entries(); len(all) != 300 || len(m.batches) != 1 || all[7].User != "7" {
			t.Errorf("%d entries in %d batches", len(all), len(m.batches))
		}
		r.Add(entry("lab", 300))
		if err := stop(); err != nil || len(m.entries()) != 301 || r.Lost() != 0 {
			t.Errorf("an orderly stop leaves %d entries, %d lost, %v", len(m.entries()), r.Lost(), err)
		}
		if r.Add(entry("lab", 301)); r.Lost() != 1 {
			t.Error("what comes later is not counted as lost")
		}
	})
}

func TestAnOrderlyStopWritesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{away: true}
		r, stop := running(t, m)
		for i := range 2_500 {
			r.Add(entry(croft.Project(fmt.Sprint("p", i%3)), i))
		}
		time.Sleep(10 * time.Second)
		m.set(false) // the next try would be within a second
		if err := stop(); err != nil || len(m.entries()) != 2_500 {
			t.Errorf("%d entries, %v", len(m.entries()), err)
		}
	})
}

func TestAStopWithoutTheStoreSaysWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{away: true}
		r, stop := running(t, m)
		for i := range 700 {
			r.Add(entry("lab", i))
		}
		time.Sleep(10 * time.Second)
		if err := stop(); croft.KindOf(err) != croft.Unavailable || r.Lost() != 700 {
			t.Errorf("%v; %d are lost", err, r.Lost())
		}
	})
}

func TestAHangingStoreEndsAStopInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{block: make(chan struct{})}
		r, stop := running(t, m)
		r.Add(entry("lab", 1))
		time.Sleep(time.Minute)
		begun := time.Now()
		if err := stop(); err == nil || time.Since(begun) > 10*time.Second || r.Lost() != 1 {
			t.Errorf("after %s: %v; %d are lost", time.Since(begun), err, r.Lost())
		}
	})
}

func TestALostAnswerWritesNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{lose: true}
		r, stop := running(t, m)
		r.Add(entry("lab", 1))
		time.Sleep(10 * time.Second)
		if all := m.entries(); len(all) != 1 || m.tries != 2 {
			t.Errorf("%d entries after %d tries", len(all), m.tries)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestABusyProjectLosesEntriesBeforeOthersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{away: true}
		r, stop := running(t, m)
		time.Sleep(time.Second)
		for i := range 50_000 {
			r.Add(entry("busy", i))
		}
		for i := range 10 {
			r.Add(entry("quiet", i))
		}
		m.set(false)
		time.Sleep(time.Minute)
		r.Add(entry("busy", -1))
		if err := stop(); err != nil {
			t.Error(err)
		}
		kept, missed := map[croft.Project]int{}, 0
		for _, e := range m.entries() {
			kept[e.Project]++
			missed += e.Missed
		}
		if kept["quiet"] != 10 || kept["busy"] != 1_001 || missed != 49_000 || r.Lost() != 49_000 {
			t.Errorf("kept %v, %d missed, %d lost", kept, missed, r.Lost())
		}
	})
}

func TestProjectsOfABusyTreeLoseEntriesBeforeOthersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{away: true}
		r, stop := running(t, m)
		time.Sleep(time.Second)
		for i := range 30_000 {
			r.Add(entry(croft.Project(fmt.Sprint("busy.p", i%100)), i))
		}
		for i := range 10 {
			r.Add(entry("quiet", i))
		}
		m.set(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		kept := map[croft.Project]int{}
		for _, e := range m.entries() {
			kept[e.Project.Root()]++
		}
		if kept["quiet"] != 10 || kept["busy"] != 4_000 || r.Lost() != 26_000 {
			t.Errorf("kept %v, %d lost", kept, r.Lost())
		}
	})
}

func TestWhatWaitsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{away: true}
		r, stop := running(t, m)
		for i := range 30_000 {
			r.Add(entry(croft.Project(fmt.Sprint("p", i%300)), i))
		}
		if r.Lost() != 10_000 {
			t.Errorf("%d are lost", r.Lost())
		}
		m.set(false)
		time.Sleep(time.Minute)
		if got := len(m.entries()); got != 20_000 {
			t.Errorf("%d are written", got)
		}
		for _, b := range m.batches {
			projects := map[croft.Project]bool{}
			for _, e := range b.Entries {
				projects[e.Project] = true
				if e.Time.After(b.At) {
					t.Fatal("a batch is older than an entry of it")
				}
			}
			if len(b.Entries) > 500 || len(projects) > 100 {
				t.Fatalf("a batch has %d entries of %d projects", len(b.Entries), len(projects))
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestTheBoundsAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r, stop := running(t, m)
		for i := range 600 {
			r.Add(entry("busy", i))
		}
		r.Add(entry("quiet", 1))
		time.Sleep(2*time.Hour + time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		want := "[[] [busy] [] []]"
		if got := fmt.Sprint(m.trimmed); got != want {
			t.Errorf("trimmed %s, want %s", got, want)
		}
	})
}

func TestTheLogIsNotTrimmedAtTheStartOfACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r := actions.NewRecorder(m, nil)
		r.Brief()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		if len(m.trimmed) > 0 {
			t.Errorf("trimmed %v, want nothing", m.trimmed)
		}
		cancel()
		if err := <-ended; err != nil || len(m.trimmed) > 0 {
			t.Errorf("a command that changes nothing trims %v, %v", m.trimmed, err)
		}
	})
}

func TestManyCommandsTogetherTrimTheLogOfABusyProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		const commands = 20_000 // each has the probability 1/500; none in all has the probability e^-40
		for i := range commands {
			r := actions.NewRecorder(m, nil)
			r.Brief()
			r.Add(entry("busy", i))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.Run(ctx); err != nil {
				t.Fatal(err)
			}
			m.batches = nil
		}
		if n := len(m.trimmed); n == 0 || n > commands/50 || fmt.Sprint(m.trimmed[0]) != "[busy]" {
			t.Errorf("%d commands trim %d times", commands, n)
		}
	})
}
