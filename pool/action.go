package pool

import "time"

// Op is what an action does.
type Op string

// The operations, in the order of a round.
const (
	OpExpire   Op = "expire"    // close a ticket that nobody used
	OpFail     Op = "fail"      // fail a ticket whose resource has to go
	OpTakeBack Op = "take back" // a resource whose ticket ended has no owner any more
	OpRelease  Op = "release"   // clean it
	OpCondemn  Op = "condemn"   // have it deleted
	OpAbort    Op = "abort"     // its start
	OpDelete   Op = "delete"
	OpStart    Op = "start"
	OpList     Op = "list" // look for orphans
	OpAssign   Op = "assign"
	OpCheck    Op = "livecheck"
	OpForget   Op = "forget" // a pool of which nothing is left
)

// Action is one decision.
type Action struct {
	Op       Op
	Pool     Name
	Resource ResourceID
	Ticket   TicketID
	Reason   string // in English
}

// apply makes a decision part of the ledger.
func (s *Ledger) apply(a Action, now time.Time) Action {
	r, t, p := s.resources[a.Resource], s.tickets[a.Ticket], s.pools[a.Pool]
	switch a.Op {
	case OpExpire:
		s.end(t, TicketClosed, a.Reason, now)
	case OpFail:
		s.end(t, TicketFailed, a.Reason, now)
	case OpTakeBack:
		r.Ticket, r.Released = 0, now
		r.Releases++
		s.touchResource(r)
	case OpRelease:
		s.set(r, Releasing)
	case OpCondemn:
		s.condemn(r, a.Reason)
	case OpDelete:
		s.set(r, Deleting)
	case OpAbort:
		s.jobs[a.Resource] = true
	case OpStart:
		a.Resource = s.start(p, now).ID
		s.jobs[a.Resource] = false
	case OpList:
		s.listing[a.Pool] = true
		p.Listed = now
		s.touchPool(p)
	case OpAssign:
		s.serve(t, r, now)
	case OpCheck:
		s.busy[r.ID] = true
	case OpForget:
		delete(s.pools, a.Pool)
		s.changed.gonePools = append(s.changed.gonePools, a.Pool)
	}
	return a
}
