package system

import (
	"context"
	"fmt"
	"testing"
	"time"

	"croft"
	"croft/internal/books"
	"croft/operator"
	"croft/schedule"
)

// operatorSide is what an operator sees of the world, through its gate.
type operatorSide struct {
	gate *gate
	hostBook
	operator.Records
	operator.Ledger
	claimBook
}

// Interfaces under names that none of their methods has.
type (
	hostBook  interface{ operator.Hosts }
	claimBook interface{ operator.Claims }
)

func (o *operatorSide) SetMoving(ctx context.Context, i croft.Instance, to croft.HostID) (croft.Instance, error) {
	return through(o.gate, "operator SetMoving", func() (croft.Instance, error) { return o.Records.SetMoving(ctx, i, to) })
}

func (o *operatorSide) Relocate(ctx context.Context, i croft.Instance, tombstone, order croft.Order) (croft.Instance, error) {
	return through(o.gate, "operator Relocate", func() (croft.Instance, error) { return o.Records.Relocate(ctx, i, tombstone, order) })
}

func (o *operatorSide) Bury(ctx context.Context, i croft.Instance, tombstone croft.Order) error {
	return o.gate.do("operator Bury", func() error { return o.Records.Bury(ctx, i, tombstone) })
}

func (o *operatorSide) Drain(ctx context.Context, h croft.HostID) error {
	return o.gate.do("operator Drain", func() error { return o.hostBook.Drain(ctx, h) })
}

func (o *operatorSide) ForgetHost(ctx context.Context, h croft.HostID) error {
	return o.gate.do("operator ForgetHost", func() error { return o.hostBook.ForgetHost(ctx, h) })
}

func (o *operatorSide) Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error) {
	return through(o.gate, "operator Candidates", func() ([]croft.Candidate, error) { return o.claimBook.Candidates(ctx, query, limit) })
}

func (o *operatorSide) Reorder(ctx context.Context, i croft.Instance, order croft.Order) (croft.Instance, error) {
	return through(o.gate, "operator Reorder", func() (croft.Instance, error) { return o.Records.Reorder(ctx, i, order) })
}

func (o *operatorSide) Fence(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(o.gate, "operator Fence", func() (croft.Instance, error) { return o.Records.Fence(ctx, i) })
}

func (o *operatorSide) ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error) {
	return through(o.gate, "operator ClaimOf", func() (croft.Claim, error) { return o.claimBook.ClaimOf(ctx, id) })
}

func (o *operatorSide) Reclaim(ctx context.Context, had croft.Claim, p croft.Project, c croft.Candidate) error {
	return o.gate.do("operator Reclaim", func() error { return o.claimBook.Reclaim(ctx, had, p, c) })
}

func (o *operatorSide) Release(ctx context.Context, id croft.InstanceID, on ...croft.HostID) error {
	return o.gate.do("operator Release", func() error { return o.claimBook.Release(ctx, id, on...) })
}

func (o *operatorSide) RemoveProvider(ctx context.Context, h croft.HostID) error {
	return o.gate.do("operator RemoveProvider", func() error { return o.claimBook.RemoveProvider(ctx, h) })
}

func (o *operatorSide) Drop(ctx context.Context, d books.Difference) error {
	return o.gate.do("operator Drop", func() error { return o.Ledger.Drop(ctx, d) })
}

func (o *operatorSide) PutName(ctx context.Context, i croft.Instance) error {
	return o.gate.do("operator PutName", func() error { return o.Ledger.PutName(ctx, i) })
}

func (o *operatorSide) PutMember(ctx context.Context, i croft.Instance) error {
	return o.gate.do("operator PutMember", func() error { return o.Ledger.PutMember(ctx, i) })
}

// machines are the agents of the world, asked without HTTP.
type machines struct{ w *world }

func (m machines) of(host croft.Host) (*machine, error) {
	for _, one := range m.w.hosts {
		if one.id == host.ID && one.agent != nil {
			return one, nil
		}
	}
	return nil, croft.Errorf(croft.Unavailable, "host %s does not answer", host.Name)
}

func (m machines) Holding(ctx context.Context, host croft.Host) (books.Holding, error) {
	one, err := m.of(host)
	if err != nil {
		return books.Holding{}, err
	}
	return one.agent.Holding(ctx)
}

func (m machines) RemoveFiles(ctx context.Context, host croft.Host, id croft.InstanceID) error {
	one, err := m.of(host)
	if err != nil {
		return err
	}
	return one.agent.RemoveFiles(ctx, id)
}

// operate runs something as one operator's command would, which may die in the middle.
func (w *world) operate(last int, do func(*operator.Operator) error) error {
	store, g := w.open(), w.gate(last)
	defer func() { _ = store.Close() }()
	defer g.late.Wait()
	side := &operatorSide{gate: g, hostBook: store, Records: store, Ledger: store, claimBook: w.claims}
	o, err := operator.New(operator.Config{
		Partition: store.Partition(), Hosts: side, Members: store, Records: side, Ledger: side, Claims: side, Agents: machines{w}, Pause: 100 * time.Millisecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return do(o)
}

// tend does one random thing that an operator would do.
func (a *actor) tend() {
	ctx, cancel := context.WithTimeout(a.t.Context(), limit)
	defer cancel()
	host := a.hosts[a.rng.IntN(len(a.hosts))].id
	_ = a.operate(a.lifetime(), func(o *operator.Operator) error {
		if a.rng.IntN(3) == 0 {
			_, err := o.Enable(ctx, string(host))
			return err
		}
		h, err := o.Drain(ctx, string(host))
		if err == nil && a.rng.IntN(2) == 0 {
			_, err = o.MoveAll(ctx, h)
		}
		if err == nil && a.rng.IntN(2) == 0 { // what was moved moves on
			if err = o.Hosts.Enable(ctx, host); err == nil {
				next := a.hosts[a.rng.IntN(len(a.hosts))].id
				if h, err = o.Drain(ctx, string(next)); err == nil {
					_, err = o.MoveAll(ctx, h)
				}
			}
		}
		return err // whatever it is, an audit has to find and mend what it left
	})
}

// repair is what an operator does after a bad day: all hosts enabled, and croft audit
// --fix.
func (w *world) repair(ctx context.Context) error {
	return w.operate(0, func(o *operator.Operator) error {
		for _, m := range w.hosts {
			if err := o.Hosts.Enable(ctx, m.id); err != nil {
				return err
			}
		}
		report, err := o.Audit(ctx)
		if err != nil {
			return err
		}
		for _, d := range report.Differences {
			if d.Mendable {
				_ = o.Mend(ctx, d) // what is left is told by the last audit
			}
		}
		return nil
	})
}

// audit tells what an audit of the whole finds.
func (w *world) audit(ctx context.Context) []string {
	var found []string
	err := w.operate(0, func(o *operator.Operator) error {
		report, err := o.Audit(ctx)
		for _, d := range report.Differences {
			found = append(found, fmt.Sprintf("audit: %+v", d))
		}
		for _, u := range report.Unchecked {
			found = append(found, fmt.Sprintf("audit: host %s is unchecked: %s", u.Name, u.Why))
		}
		return err
	})
	if err != nil {
		found = append(found, fmt.Sprintf("audit: %v", err))
	}
	return found
}

// throwaway requests an ephemeral instance and waits until it runs.
func (w *world) throwaway(ctx context.Context) croft.Instance {
	var inst croft.Instance
	err := w.scheduler(0, func(s *schedule.Scheduler) error {
		d, err := s.Request(ctx, schedule.Request{Query: query, Image: simulated, Name: "throw", Ephemeral: true})
		inst = d.Instance
		if err != nil {
			return err
		}
		return s.Wait(ctx, inst, schedule.Running, nil)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.facts[inst.ID] = &fact{name: "throw", created: true}
	return inst
}

// TestAMoveThatDiesAnywhereCanBeEnded kills the command at each of its writes.
func TestAMoveThatDiesAnywhereCanBeEnded(t *testing.T) {
	for last := 4; last <= 11; last++ { // the first crossings write nothing
		for _, how := range []string{"by the same command", "by an audit"} {
			t.Run(fmt.Sprintf("after %d crossings, %s", last-1, how), func(t *testing.T) {
				w := newWorld(t, uint64(last), 2, 0)
				inst := w.throwaway(t.Context())
				drain := func(o *operator.Operator) error {
					if _, err := o.Drain(t.Context(), string(inst.Host)); err != nil {
						return err
					}
					h, err := o.Find(t.Context(), string(inst.Host))
					if err != nil {
						return err
					}
					_, err = o.MoveAll(t.Context(), h)
					return err
				}
				died := w.operate(last, drain)
				if how == "by the same command" {
					if err := w.operate(0, drain); err != nil {
						t.Fatal(err)
					}
					st, err := w.store.Find(t.Context(), inst.Project, string(inst.ID))
					if err != nil || st.Instance.Host == inst.Host {
						t.Fatalf("it stays on host %s: %v", st.Instance.Host, err)
					}
				}
				w.settle()
				t.Log(died)
			})
		}
	}
}
