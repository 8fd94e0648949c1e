package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/placing"
	"croft/etcdstore/tenants"
	"croft/placement/ledger"
	"croft/schedule"
)

// Placer places instances in a cloud whose Placement is croft's own on the same etcd, through a ledger in this process.
type Placer struct {
	conn   *conn
	rounds *placing.BatchWriter
}

var _ schedule.Placer = (*Placer)(nil)

// NewPlacer makes a Placer. The Store of the ledger must be the Placement of this store.
func (s *Store) NewPlacer(l *ledger.Ledger) *Placer {
	return &Placer{s.conn, placing.New(s.shared(), l, s.Projects,
		placing.Sessions{Begin: s.sessionKey, Retire: s.retireSession, Key: s.keys.session})}
}

// Place implements schedule.Placer.
func (s *Placer) Place(ctx context.Context, inst croft.Instance, o croft.Order, c croft.Candidate) (croft.Instance,
	error) {
	if err := s.conn.canStore(inst); err != nil {
		return inst, err
	}
	next := inst
	next.State, next.Host, next.Generation = croft.StateScheduled, o.Host, o.Generation
	stored, o, more, err := s.userData(ctx, next, o)
	if err != nil {
		return inst, err
	}
	for {
		stored.Seats = next.Seats
		p := s.piece(next, encode(stored), o)
		p.Then = append(p.Then, more...)
		next.Revision, err = s.rounds.Write(ctx, next, claimOf(s.conn.partition, next, c), p)
		if again, ok := errors.AsType[*renumbered](err); ok {
			next.Seats = again.seats
			continue
		}
		if err != nil {
			return inst, placeError(next, err)
		}
		return next, nil
	}
}

// userData returns record and order in the form to store, and the operations that store the user-data of a new
// instance.
func (s *Placer) userData(ctx context.Context, next croft.Instance, o croft.Order) (croft.Instance, croft.Order,
	[]clientv3.Op, error) {
	u := userData{s.conn}
	if len(next.Spec.UserData) == 0 {
		return next, o, []clientv3.Op{u.putUserData(next)}, nil
	}
	stored, o, more, err := u.keepUserData(ctx, next, o)
	if err == nil && len(stored.Spec.UserData) == 0 {
		more = []clientv3.Op{u.putUserData(next)} // also removes user-data that an earlier instance left
	}
	return stored, o, more, err
}

// renumbered reports that other requests took the numbers of seats. Each time another request got its order, so the
// retries end.
type renumbered struct{ seats []croft.Seat }

// Error implements error.
func (*renumbered) Error() string { return "seats were taken by others" }

// piece returns the part of a transaction that writes an instance. stored is the record in the form to store, without
// user-data.
func (s *Placer) piece(next croft.Instance, stored string, o croft.Order) placing.Piece {
	k := s.conn.keys
	name := k.name(next.Project, next.Name)
	p := placing.Piece{
		Record: k.instance(next.ID),
		If:     append(append(orderable(k, next), absent(name)), k.macsFree(next)...),
		Then: append(slices.Concat(k.groups().join(next), k.putMACs(next), k.takeAddress(next, next.Host)),
			clientv3.OpPut(k.instance(next.ID), stored),
			clientv3.OpPut(name, string(next.ID)),
			clientv3.OpPut(k.order(o.Host, next.ID), s.conn.encodeOrder(o))),
		Otherwise: slices.Concat([]clientv3.Op{clientv3.OpGet(name), clientv3.OpGet(k.order(o.Host, next.ID))},
			k.readMACs(next), readOrderable(k, next)),
		Alone: append(tenants.MACs(next), name),
		Mine: func(record []byte) bool {
			var inst croft.Instance
			return json.Unmarshal(record, &inst) == nil && inst.Spec.HostKey == next.Spec.HostKey &&
				inst.Created.Equal(next.Created)
		},
	}
	for _, a := range next.Spec.Affinities { // comparisons do not see other writes of the same transaction
		p.Alone = append(p.Alone, k.groups().group(next.Project, a.Group))
	}
	if next.Spec.FixedAddress != "" {
		p.Alone = append(p.Alone, k.address(next.Spec.FixedAddress, next.Host))
	}
	p.Refused = func(record *mvccpb.KeyValue, answers []*etcdserverpb.ResponseOp) error {
		macs := answers[2 : 2+len(tenants.MACs(next))]
		if err := tenants.TakenBy(next, record != nil, answers[0], macs); err != nil {
			return err
		}
		seats, collided, err := unorderable(next, answers[2+len(macs):])
		switch {
		case err == nil && answers[1].GetResponseRange().Count > 0:
			return croft.Errorf(croft.Unavailable, "%w: %w", schedule.ErrClosed, s.conn.occupied(o.Host, answers[1]))
		case errors.Is(err, croft.Unavailable):
			return croft.Errorf(croft.Unavailable, "%w: %w", schedule.ErrClosed, err)
		case err == nil && collided:
			return &renumbered{seats}
		}
		return err
	}
	return p
}

// claimOf returns the claim of a candidate for an instance that has no claim.
func claimOf(home croft.PartitionID, inst croft.Instance, c croft.Candidate) ledger.ClaimRequest {
	owner := croft.Owner{Partition: home, Project: inst.Project}
	claim := ledger.ClaimRequest{Consumer: string(inst.ID), Project: owner.String(), User: string(inst.Project),
		Type: croft.ConsumerType}
	for provider, amounts := range c.Allocations {
		for class, n := range amounts {
			claim.Demands = append(claim.Demands, ledger.Demand{Provider: string(provider),
				NamedAmount: ledger.NamedAmount{Class: string(class), N: n}})
		}
	}
	return claim
}

// placeError gives a refusal of the ledger its kind.
func placeError(inst croft.Instance, err error) error {
	refusal, is := errors.AsType[*ledger.Error](err)
	switch {
	case !is:
		return err
	case refusal.Kind == croft.Conflict && refusal.Code == "":
		return croft.Errorf(croft.NoCapacity, "%w: %w", schedule.ErrFull, err)
	case refusal.Kind == croft.Conflict:
		return croft.Errorf(croft.Conflict, "there is a claim of an instance %s already, or its hosts are claimed on all "+
			"the while: choose another UUID or none, or try again: %w", inst.ID, err)
	}
	return croft.Errorf(refusal.Kind, "claim for instance %s: %w", inst.ID, err)
}
