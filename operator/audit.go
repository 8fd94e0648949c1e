package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/internal/books"
)

// asks is how many agents are asked at once.
const asks = 32

// Report is what an audit found.
type Report struct {
	Differences []books.Difference `json:"differences"`
	Unchecked   []Unchecked        `json:"unchecked,omitempty"`
}

// Unchecked is a host whose guests and disks could not be compared with the books.
type Unchecked struct {
	Host croft.HostID `json:"host"`
	Name string       `json:"name"`
	Why  string       `json:"why"`
}

// Audit compares records, orders, observations, claims, guests and disks of all hosts.
// A healthy system has no differences. What is under way is none: where a look finds
// something, a second one a moment later has to find it too.
func (o *Operator) Audit(ctx context.Context) (Report, error) {
	first, err := o.look(ctx)
	if err != nil || len(first.Differences) == 0 {
		return first, err
	}
	select {
	case <-time.After(o.Pause):
	case <-ctx.Done():
		return first, ctx.Err()
	}
	second, err := o.look(ctx)
	second.Differences = append([]books.Difference{}, books.Confirm(first.Differences, second.Differences)...)
	return second, err
}

// look reads everything once and compares it.
func (o *Operator) look(ctx context.Context) (Report, error) {
	b, err := o.Ledger.Books(ctx)
	if err != nil {
		return Report{}, err
	}
	report := Report{}
	var mu sync.Mutex
	err = o.each(b.Hosts, func(h croft.Host) error {
		claims, err := o.Claims.Claims(ctx, h.ID)
		if err != nil && !errors.Is(err, croft.NotFound) {
			return err
		}
		holding, why := o.ask(ctx, h)
		mu.Lock()
		defer mu.Unlock()
		b.Claims[h.ID] = claims
		if why == "" {
			b.Holdings[h.ID] = holding
		} else {
			report.Unchecked = append(report.Unchecked, Unchecked{h.ID, h.Name, why})
		}
		return nil
	})
	if err == nil {
		b.Elsewhere, err = o.claimsElsewhere(ctx, b.Hosts)
	}
	if err != nil {
		return report, err
	}
	slices.SortFunc(report.Unchecked, func(a, b Unchecked) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Host, b.Host))
	})
	report.Differences = append([]books.Difference{}, books.Compare(b)...)
	return report, nil
}

// claimsElsewhere is what instances claim on providers that are no hosts.
func (o *Operator) claimsElsewhere(ctx context.Context,
	hosts map[croft.HostID]croft.Host) (map[croft.InstanceID]croft.Resources, error) {
	providers, err := o.Claims.Providers(ctx)
	if err != nil {
		return nil, err
	}
	all := map[croft.InstanceID]croft.Resources{}
	for _, p := range providers {
		if _, isHost := hosts[p.ID]; isHost || len(p.Used) == 0 {
			continue
		}
		claims, err := o.Claims.Claims(ctx, p.ID)
		if err != nil && !errors.Is(err, croft.NotFound) {
			return nil, err
		}
		for id, amounts := range claims {
			if all[id] == nil {
				all[id] = croft.Resources{}
			}
			for class, amount := range amounts {
				all[id][class] += amount
			}
		}
	}
	return all, nil
}

// each does something for every host, several at once, and returns what went wrong.
func (o *Operator) each(hosts map[croft.HostID]croft.Host, do func(croft.Host) error) error {
	var work sync.WaitGroup
	places := make(chan struct{}, asks)
	errs := make(chan error, len(hosts))
	for _, h := range hosts {
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			if err := do(h); err != nil {
				errs <- err
			}
		})
	}
	work.Wait()
	close(errs)
	return <-errs // nil where none is in it
}

// ask has a host's agent tell what the host has, or says why it cannot.
func (o *Operator) ask(ctx context.Context, h croft.Host) (holding books.Holding, why string) {
	if !h.Alive {
		return holding, "it is silent"
	}
	ctx, cancel := context.WithTimeout(ctx, o.AskTimeout)
	defer cancel()
	holding, err := o.Agents.Holding(ctx, h)
	if err != nil {
		return holding, err.Error()
	}
	return holding, ""
}

// Mend does what is safe about a difference: it removes no guest and no disk that
// anybody has on record. Conflict: what it was concluded from has changed.
func (o *Operator) Mend(ctx context.Context, d books.Difference) error {
	if !d.Mendable {
		return croft.Errorf(croft.Conflict, "mending it might harm a guest or its disk")
	}
	switch d.Kind {
	case books.LostName, books.LostUserData, books.LostMember, books.LostOrder, books.LostObservation:
		return o.Ledger.Drop(ctx, d)
	case books.LeakedClaim:
		return o.releaseLeaked(ctx, d)
	case books.StrayFiles:
		hosts, err := o.Hosts.Hosts(ctx, d.Host)
		if err != nil {
			return err
		}
		return o.Agents.RemoveFiles(ctx, hosts[d.Host], d.Instance)
	}
	st, err := o.instance(ctx, d)
	if err != nil {
		return err
	}
	return o.mendInstance(ctx, d, st)
}

// instance reads an instance as it is now. Conflict: it has changed since.
func (o *Operator) instance(ctx context.Context, d books.Difference) (croft.Status, error) {
	all, err := o.Records.List(ctx, "")
	if err != nil {
		return croft.Status{}, err
	}
	for _, st := range all {
		if st.Instance.ID == d.Instance && st.Instance.Revision == d.Revision {
			return st, nil
		}
	}
	return croft.Status{}, croft.Errorf(croft.Conflict, "the instance has changed meanwhile; audit again")
}

func (o *Operator) mendInstance(ctx context.Context, d books.Difference, st croft.Status) error {
	inst := st.Instance
	switch d.Kind {
	case books.AbandonedRequest:
		return o.undo(ctx, inst)
	case books.UnfinishedMove:
		return o.endMove(ctx, st)
	case books.MissingName:
		return o.Ledger.PutName(ctx, inst)
	case books.MissingMember:
		return o.Ledger.PutMember(ctx, inst)
	case books.MissingOrder:
		_, err := o.Records.Reorder(ctx, inst, o.order(inst, inst.Host, wanted(st), inst.Generation+1))
		return err
	case books.MissingClaim, books.StrayClaim:
		_, err := o.reclaim(ctx, inst)
		return err
	}
	return fmt.Errorf("there is no way to mend %q", d.Kind)
}

// undo ends a request whose scheduler died: the fence first, since one that was only suspended may go on, then
// the claim, while there is a record to repeat this by.
func (o *Operator) undo(ctx context.Context, inst croft.Instance) error {
	now, err := o.Records.Fence(ctx, inst)
	if err != nil {
		return err
	}
	if now.State != croft.StateScheduling || now.Session != inst.Session {
		return croft.Errorf(croft.Conflict, "its scheduler was in time")
	}
	if err := o.Claims.Release(ctx, inst.ID); err != nil {
		return err
	}
	return o.Records.Discard(ctx, now)
}

// wanted is what an instance without an order was last known to be.
func wanted(st croft.Status) croft.Want {
	switch {
	case st.Instance.State == croft.StateDestroying:
		return croft.WantGone
	case st.Observation != nil && st.Observation.State == croft.StateStopped:
		return croft.WantStopped
	}
	return croft.WantRunning
}

// endMove ends a move that somebody else began: elsewhere where there is room, else
// where the guest is.
func (o *Operator) endMove(ctx context.Context, st croft.Status) error {
	hosts, err := o.Hosts.Hosts(ctx, st.Instance.Host)
	if err != nil {
		return err
	}
	if hosts[st.Instance.Host].Alive && hosts[st.Instance.Host].Drained {
		_, err := o.move(ctx, st)
		if !errors.Is(err, croft.NoCapacity) {
			return err
		}
		return nil // it stays
	}
	return o.stay(ctx, st.Instance)
}

// releaseLeaked frees a claim, unless somebody began to use its UUID meanwhile.
func (o *Operator) releaseLeaked(ctx context.Context, d books.Difference) error {
	b, err := o.Ledger.Books(ctx)
	if err != nil {
		return err
	}
	if _, exists := b.Instances[d.Instance]; exists {
		return croft.Errorf(croft.Conflict, "somebody has an instance of this UUID now")
	}
	return o.Claims.Release(ctx, d.Instance, d.Host)
}
