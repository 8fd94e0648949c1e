package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// pausedStore stops each transaction until the test releases it.
type pausedStore struct {
	*commitStore
	arrived chan Txn
	release chan error // nil: the transaction is done and answered
	lost    bool       // done, although the answer is an error
}

// Commit implements Store.
func (s *pausedStore) Commit(ctx context.Context, t Txn) (Outcome, error) {
	s.arrived <- t
	err := <-s.release
	if err != nil && !s.lost {
		return Outcome{}, err
	}
	out, _ := s.commitStore.Commit(ctx, t)
	return out, err
}

// servingPaused runs a committer whose transactions the test releases one by one. a has 2 VCPU.
func servingPaused(t *testing.T, test func(c *committer, s *pausedStore, ask func(...func(*Tx) error) []*request)) {
	synctest.Test(t, func(t *testing.T) {
		c, inner := newCommitter(t)
		s := &pausedStore{commitStore: inner, arrived: make(chan Txn), release: make(chan error)}
		c.store = s
		requests, stop, ended := make(chan *request), make(chan struct{}), make(chan struct{})
		go func() { c.serve(t.Context(), requests, stop); close(ended) }()
		test(c, s, func(decide ...func(*Tx) error) []*request {
			list := asked(t, decide...)
			for _, r := range list {
				requests <- r
			}
			return list
		})
		close(stop)
		<-ended
	})
}

func TestTheNextBatchIsDecidedOnTopOfTheOneThatIsWritten(t *testing.T) {
	servingPaused(t, func(c *committer, s *pausedStore, ask func(...func(*Tx) error) []*request) {
		first := ask(takes("x", "a", "VCPU", 1))
		<-s.arrived
		tries := 0
		second := ask(func(tx *Tx) error { tries++; return takes("y", "a", "VCPU", 1)(tx) },
			takes("z", "a", "VCPU", 1), releases("x"))
		synctest.Wait()
		if tries != 1 || len(answers(second)) != 0 {
			t.Errorf("decided %d times while the first batch is written; %v", tries, answers(second))
		}
		s.release <- nil
		next := <-s.arrived
		if !s.holds(next) {
			t.Errorf("the second batch relies on other revisions: %+v", next.If)
		}
		s.release <- nil
		synctest.Wait()
		got := answers(slices.Concat(first, second))
		if len(got) != 4 || got[0] != nil || got[1] != nil || !errors.Is(got[2], croft.Conflict) || got[3] != nil {
			t.Errorf("answers %v, want that only the third claim finds no room", got)
		}
		if tries != 1 || len(s.stored) != 2 || c.used(t) != 1 {
			t.Errorf("%d tries, %d transactions, %d used", tries, len(s.stored), c.used(t))
		}
	})
}

func TestABatchOnTopOfOneThatFailedIsDecidedAgain(t *testing.T) {
	for name, lost := range map[string]bool{"it was not done": false, "it was done, and the answer was lost": true} {
		t.Run(name, func(t *testing.T) {
			servingPaused(t, func(c *committer, s *pausedStore, ask func(...func(*Tx) error) []*request) {
				first := ask(takes("x", "a", "VCPU", 2))
				<-s.arrived
				second := ask(takes("y", "a", "VCPU", 1)) // refused on top of the first
				synctest.Wait()
				s.lost = lost
				s.release <- errors.New("no answer")
				<-s.arrived
				s.lost = false
				if lost { // what the watch would report
					c.memory.write(func(*State) *State { return s.copy() })
				}
				s.release <- nil
				if lost { // its comparisons did not hold
					<-s.arrived
					s.release <- nil
				}
				synctest.Wait()
				got := answers(slices.Concat(first, second))
				if len(got) != 2 || !errors.Is(got[0], croft.Unavailable) || errors.Is(got[1], croft.Conflict) != lost {
					t.Errorf("answers %v", got)
				}
			})
		})
	}
}

func TestABatchThatWritesProvidersIsDecidedAgainstByNone(t *testing.T) {
	servingPaused(t, func(c *committer, s *pausedStore, ask func(...func(*Tx) error) []*request) {
		ask(create("b", ""))
		<-s.arrived
		var second []*request
		asking := make(chan struct{})
		go func() {
			defer close(asking)
			second = ask(offers("b", "VCPU", 4))
		}()
		synctest.Wait()
		s.release <- nil
		<-s.arrived
		s.release <- nil
		<-asking
		synctest.Wait()
		if got := answers(second); len(got) != 1 || got[0] != nil || c.conflicts.Load() != 0 {
			t.Errorf("answers %v, %d conflicts", got, c.conflicts.Load())
		}
	})
}

// A version that the client knows cannot be compared with one that the store has not assigned yet.
func TestARequestThatReadsAVersionWaitsForIt(t *testing.T) {
	servingPaused(t, func(c *committer, s *pausedStore, ask func(...func(*Tx) error) []*request) {
		first := ask(takes("x", "a", "VCPU", 1))
		<-s.arrived
		var version int64
		second := ask(func(tx *Tx) error { version = tx.ConsumerVersion("x"); return nil })
		synctest.Wait()
		s.release <- nil
		<-s.arrived
		s.release <- nil
		synctest.Wait()
		if got := answers(slices.Concat(first, second)); len(got) != 2 ||
			version != s.modified[Key{KindConsumer, "x"}] {
			t.Errorf("answers %v, version %d", got, version)
		}
	})
}

// faultyStore answers some transactions late, some not at all, and does some of the latter at any later time.
type faultyStore struct {
	*liveStore
	random *rand.Rand
	work   sync.WaitGroup
}

// Commit implements Store.
func (s *faultyStore) Commit(ctx context.Context, t Txn) (Outcome, error) {
	s.mu.Lock()
	kind, wait := s.random.IntN(12), time.Duration(s.random.IntN(20))*time.Millisecond
	s.mu.Unlock()
	if len(t.Then) == 0 {
		kind = 11 // only reads, as the ledger's question for the revision
	}
	switch kind {
	case 0: // never done
		return Outcome{}, errors.New("lost on the way")
	case 1: // done, and the answer lost
		_, _ = s.liveStore.Commit(ctx, t)
		return Outcome{}, errors.New("the answer is lost")
	case 2: // done after the caller has given up
		s.work.Go(func() {
			time.Sleep(wait)
			_, _ = s.liveStore.Commit(context.WithoutCancel(ctx), t)
		})
		return Outcome{}, errors.New("not answered in time")
	case 3: // the watch fails before the answer
		select {
		case s.breaks <- errors.New("the watch is cut"):
		default:
		}
	}
	time.Sleep(wait)
	out, err := s.liveStore.Commit(ctx, t)
	time.Sleep(wait)
	return out, err
}

// However transactions fail, no provider is claimed beyond its capacity, a granted claim is stored, and a refused one
// never is.
func TestNoFailureBetweenBatchesGrantsTooMuch(t *testing.T) {
	begin := uint64(time.Now().UnixNano())
	granted := 0
	for seed := begin; seed < begin+30; seed++ {
		synctest.Test(t, func(t *testing.T) {
			s := &faultyStore{liveStore: newLiveStore(t), random: rand.New(rand.NewPCG(seed, 1))}
			for p := range 3 {
				s.other(create(fmt.Sprint("p", p), ""), offers(fmt.Sprint("p", p), "VCPU", 40))
			}
			var running sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			var ledgers []*Ledger
			for range 2 {
				l, err := New(Config{Store: s, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				ledgers = append(ledgers, l)
				running.Go(func() { _ = l.Run(ctx) })
			}
			random, answers := rand.New(rand.NewPCG(seed, 2)), make([]error, 200)
			var asking sync.WaitGroup
			for n := range answers {
				l, p := ledgers[random.IntN(2)], fmt.Sprint("p", random.IntN(3))
				pause := time.Duration(random.IntN(500)) * time.Millisecond
				asking.Go(func() {
					time.Sleep(pause)
					answers[n] = l.Change(t.Context(), takes(fmt.Sprint("x", n), p, "VCPU", 1))
				})
			}
			asking.Wait()
			s.work.Wait()
			cancel()
			running.Wait()
			used := 0
			for n, err := range answers {
				stored := s.consumers[fmt.Sprint("x", n)] != nil
				used += count(stored)
				switch {
				case err == nil && !stored:
					t.Errorf("seed %d: claim %d was granted, and is not stored", seed, n)
				case err != nil && !errors.Is(err, croft.Unavailable) && stored:
					t.Errorf("seed %d: claim %d was refused, and is stored: %v", seed, n, err)
				}
				granted += count(err == nil)
			}
			sum := 0
			for _, p := range s.providers {
				n := int(p.Used(s.classes.Get("VCPU").id))
				if sum += n; n > 40 {
					t.Errorf("seed %d: %d of 40 are claimed", seed, n)
				}
			}
			if sum != used {
				t.Errorf("seed %d: %d are claimed by %d consumers", seed, sum, used)
			}
		})
	}
	if granted < 1000 {
		t.Errorf("%d claims were granted; the test shows too little", granted)
	}
}
