package cluster

import (
	"fmt"
	"time"
)

// end destroys a cluster that expires, or that has been idle for KeepIdle, some time after it announced that.
func (p *plan) end() {
	if p.c.State == Deleting || p.c.State == Deleted {
		return
	}
	if p.c.KeepIdle > 0 && len(p.c.Uses) == 0 && p.c.IdleSince.IsZero() {
		p.c.IdleSince = p.now
	}
	end, why := p.ends()
	switch {
	case end.IsZero() || p.now.Before(end.Add(-WarnBefore)):
		p.c.Warned = time.Time{}
		if !end.IsZero() {
			p.at(end.Add(-WarnBefore))
		}
		return
	case p.c.Warned.IsZero():
		p.c.Warned = p.now
		p.note(fmt.Sprintf("it will be destroyed at %s, since %s", p.destroyed(end).UTC().Format(time.RFC3339), why))
	case p.over(p.destroyed(end)):
		p.c.State, p.c.Step = Deleting, "it is about to be removed"
		p.note("it is destroyed, since " + why)
		p.l = Learned{Timeout: p.l.Timeout, Held: p.l.Held}
		return
	}
	p.at(p.destroyed(end))
}

// destroyed returns when a cluster whose end was announced is destroyed.
func (p *plan) destroyed(end time.Time) time.Time {
	if soonest := p.c.Warned.Add(warnAtLeast); end.Before(soonest) {
		return soonest
	}
	return end
}

// ends returns when a cluster ends, and why; zero: never.
func (p *plan) ends() (time.Time, string) {
	end, why := p.c.Expires, "it expires"
	idle := p.c.State == Ready || p.c.State == Degraded || p.c.State == Failed
	if p.c.KeepIdle > 0 && len(p.c.Uses) == 0 && idle {
		if at := p.c.IdleSince.Add(p.c.KeepIdle); end.IsZero() || at.Before(end) {
			end, why = at, "nobody uses it"
		}
	}
	return end, why
}

// failed handles a cluster in ERROR. The remains on its site are removed after KeptUntil. A cluster that its site did
// not show comes back when the site shows it again.
func (p removal) failed() {
	switch {
	case p.c.Error != nil && p.c.Error.Code == FailedCredential && p.c.KeptUntil.IsZero():
		p.hidden()
	case p.c.KeptUntil.IsZero() || !p.c.Remote.Asked:
	case !p.over(p.c.KeptUntil):
		p.at(p.c.KeptUntil)
	default:
		p.remove(func() {
			p.c.Remote, p.c.Retry, p.c.KeptUntil, p.c.Members = Remote{}, Retry{}, time.Time{}, nil
			p.c.MasterIP, p.c.Outputs = "", nil
			p.note("its remains at site " + p.c.Site + " is gone")
			p.rest(0, "nothing is left of it")
		})
	}
}

// hidden looks whether the credential shows the cluster again.
func (p removal) hidden() {
	switch {
	case p.l.Did == "":
		p.do(ActLook, "the credential may have been mended")
	case p.l.Err != nil || p.l.Seen == nil || p.l.Seen.Elsewhere || p.l.Seen.Phase == Absent:
		p.rest(paceSettled, "")
	case p.c.Sizing.Taken && p.c.MasterIP != "":
		p.c.State, p.c.Error, p.c.Step = Ready, nil, ""
		if p.resizeWanted() {
			p.c.State = Resizing
			p.begin()
		}
		p.note("the site shows it again")
		p.rest(paceQuick, "")
	default:
		p.c.State, p.c.Error = Building, nil
		p.begin()
		p.note("the site shows it again")
		p.rest(paceQuick, "")
	}
}

func (p removal) deleting() {
	if p.c.Abandoned {
		message := "its user gave it up"
		if p.c.Remote.Asked {
			message += fmt.Sprintf("; %s may be left at site %s", p.c.Remote.Name, p.c.Site)
		}
		p.gone(message)
		return
	}
	p.remove(func() { p.gone("nothing of it is left") })
}

// gone turns the record into a tombstone.
func (p removal) gone(message string) {
	p.c.State, p.c.Step, p.c.Error, p.c.Ended = Deleted, "", nil, p.now
	p.c.Members, p.c.Uses, p.c.Sealed, p.c.Outputs, p.c.MasterIP = nil, nil, nil, nil, ""
	p.c.Deadline, p.c.Retry, p.c.KeptUntil, p.c.Warned = time.Time{}, Retry{}, time.Time{}, time.Time{}
	p.note(message)
	p.next.Do = ActRest
	p.next.At = p.now.Add(Remembered)
}

// remove asks the site to remove the cluster until nothing is left there, then calls gone. Absence counts only after
// the site accepted a removal: a launch whose call was abandoned may take effect later.
func (p removal) remove(gone func()) {
	p.c.Deadline = time.Time{}
	switch r := &p.c.Retry; {
	case !p.c.Remote.Asked, p.c.Remote.nothing():
		gone()
	case p.l.Did == ActDestroy:
		p.destroyAsked()
	case p.l.Did == ActLook && p.l.Err == nil && p.l.Seen != nil:
		p.removed(*p.l.Seen, gone)
	case p.l.Did == ActLook:
		p.unheard()
	case r.Taken && (p.l.Did == ""):
		p.do(ActLook, "it is being removed")
	case p.now.Before(r.Next):
		p.at(r.Next)
	default:
		p.do(ActDestroy, "it is to be removed from site "+p.c.Site)
	}
}

// destroyAsked counts a request to remove.
func (p removal) destroyAsked() {
	r := &p.c.Retry
	r.Tries++
	if r.Since.IsZero() {
		r.Since = p.now
	}
	r.Next = p.now.Add(min(retryFirst<<min(r.Tries-1, 10), retryMost))
	if p.l.Err == nil {
		r.Taken, p.c.Error = true, p.notCredential()
		p.c.Step = "site " + p.c.Site + " is removing it"
		p.rest(paceQuick, p.c.Step)
		return
	}
	p.unheard()
	p.next.Pace = 0
	p.at(r.Next)
}

// notCredential returns the error of the cluster, or nil if the error is about the credential, which works again.
func (p removal) notCredential() *Failure {
	if p.c.Error != nil && p.c.Error.Code == FailedCredential {
		return nil
	}
	return p.c.Error
}

// unheard sets a step that says why the site does not remove the cluster now.
func (p removal) unheard() {
	if !p.silent() {
		p.c.Step = fmt.Sprintf("site %s does not remove it: %.200s", p.c.Site, p.l.Err)
		p.rest(paceSlow, p.c.Step)
	}
}

// removed handles the observed state of a removal.
func (p removal) removed(seen Seen, gone func()) {
	r := &p.c.Retry
	next := r.Next
	if seen.Phase == Removing {
		next = next.Add(retryMost)
	}
	if !seen.Elsewhere {
		p.c.Error = p.notCredential()
	}
	switch {
	case seen.Elsewhere:
		message := "site " + p.c.Site + " does not show it: the credential sees another project now"
		p.blame(FailedCredential, message)
		p.c.Step = message
		p.rest(paceSettled, message)
	case seen.Phase == Absent && r.Taken:
		gone()
	case !p.now.Before(next):
		p.do(ActDestroy, "it is still at site "+p.c.Site)
	default:
		p.remote(seen)
		if seen.Phase == Stuck {
			p.c.Step = fmt.Sprintf("site %s could not remove it, and is asked again: %.200s", p.c.Site, seen.Failure)
		}
		p.rest(p.pace(r.Since), p.c.Step)
		p.at(next)
	}
}
