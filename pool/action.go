package pool

import "time"

// Op is what an action does.
type Op string

// The operations, in the order of a round.
const (
	OpExpire   Op = "expire"    // close an unused ticket
	OpFail     Op = "fail"      // fail a ticket whose resource must be deleted
	OpTakeBack Op = "take back" // remove a resource's owner, whose ticket ended
	OpRelease  Op = "release"   // clean the resource
	OpCondemn  Op = "condemn"   // request its deletion
	OpAbort    Op = "abort"     // abort its start
	OpDelete   Op = "delete"
	OpStart    Op = "start"
	OpList     Op = "list" // search for orphans
	OpAssign   Op = "assign"
	OpCheck    Op = "livecheck"
	OpForget   Op = "forget" // drop a pool without resources
)

// Action is one decision.
type Action struct {
	Op       Op
	Pool     Name
	Resource ResourceID
	Ticket   TicketID
	Reason   string // in English
}

// apply records a decision in the ledger.
func (l *Ledger) apply(a Action, now time.Time) Action {
	r, t, p := l.resources[a.Resource], l.tickets[a.Ticket], l.pools[a.Pool]
	switch a.Op {
	case OpExpire:
		l.end(t, TicketClosed, a.Reason, now)
	case OpFail:
		l.end(t, TicketFailed, a.Reason, now)
	case OpTakeBack:
		r.Ticket, r.Released = 0, now
		r.Releases++
		l.touchResource(r)
	case OpRelease:
		l.set(r, Releasing)
	case OpCondemn:
		l.condemn(r, a.Reason)
	case OpDelete:
		l.set(r, Deleting)
	case OpAbort:
		l.jobs[a.Resource] = true
	case OpStart:
		a.Resource = l.start(p, now).ID
		l.jobs[a.Resource] = false
	case OpList:
		l.listing[a.Pool] = true
		p.Listed = now
		l.touchPool(p)
	case OpAssign:
		l.serve(t, r, now)
	case OpCheck:
		l.busy[r.ID] = true
	case OpForget:
		delete(l.pools, a.Pool)
		l.changed.gonePools = append(l.changed.gonePools, a.Pool)
	}
	return a
}
