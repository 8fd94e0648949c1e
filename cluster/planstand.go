package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/wording"
)

// standing handles a cluster that is READY or DEGRADED.
func (p resizePlan) standing() {
	switch {
	case p.resizeWanted():
		p.c.State, p.c.Step = Resizing, "it is about to be resized"
		p.c.Sizing.Back = false
		p.begin()
		p.members(Seen{})
		if p.c.Good == p.c.Slaves {
			p.note(fmt.Sprintf("croft asks site %s again for %s", p.c.Site, wording.Count(p.c.Slaves, "slave")))
		} else {
			p.note(fmt.Sprintf("it is resized from %s to %s", wording.Count(p.c.Good, "slave"),
				wording.Count(p.c.Slaves, "slave")))
		}
		p.do(ActLook, "it is about to be resized")
	case p.l.Did == "":
		p.do(ActLook, "it is looked at now and then")
	case p.silent():
		p.rest(paceSettled, p.c.Step)
	case p.l.Err != nil || p.lost():
		p.rest(paceSettled, "")
	default:
		p.settled(*p.l.Seen)
		if p.c.State != Failed {
			p.rest(paceSettled, "")
		}
		if p.c.Sizing.Open > 0 {
			p.at(p.c.Sizing.Sent.Add(settleAfter))
		}
	}
}

// settleAfter is how long a resize without an answer may still take effect. After it the size is sent once more, which
// overrides any effect of the old request.
const settleAfter = 10 * time.Minute

// resizeWanted reports whether a size has to be sent to the site. Several changes are combined into one resize.
func (p *plan) resizeWanted() bool {
	s := p.c.Sizing
	unsettled := s.Open > 0 && !p.now.Before(s.Sent.Add(settleAfter))
	return !s.Taken || unsettled || !slices.Equal(s.Told, p.c.Indexes)
}

// resizeSent counts a request before it is sent. The new request settles the requests that were sent at least
// settleAfter ago.
func (p resizePlan) resizeSent() {
	s := &p.c.Sizing
	if !p.now.Before(s.Sent.Add(settleAfter)) {
		s.Open = 0
	}
	s.Open, s.Sent = s.Open+1, p.now
}

func (p resizePlan) resizeAnswered() { p.c.Sizing.Open = max(0, p.c.Sizing.Open-1) }

// settled derives the state of a cluster from its members.
func (p resizePlan) settled(seen Seen) {
	p.remote(seen)
	p.c.Step = ""
	if seen.Phase != Standing && seen.Phase != Unsized || len(seen.Members) == 0 {
		return
	}
	p.unwanted(seen)
	p.members(seen)
	master := p.c.Members[0].State
	var missing []string
	for _, m := range p.c.Members[1:] {
		if m.State != MemberReady {
			missing = append(missing, name(m))
		}
	}
	switch {
	case master == MemberGone:
		p.noteMembers()
		p.fail(FailedMaster, "its master no longer exists")
	case len(missing) > 0 && p.c.State == Ready:
		p.c.State = Degraded
		p.noteMembers()
		p.note(strings.Join(missing, ", ") + " not there")
	case p.c.State == Degraded && p.slaveGone() && !p.now.Before(p.c.Sizing.Sent.Add(recreateAgain)):
		p.c.Sizing.Taken = false
		p.note(fmt.Sprintf("site %s is asked to make %s again", p.c.Site, strings.Join(missing, ", ")))
		p.at(p.now)
	case len(missing) == 0 && p.c.State == Degraded && seen.Phase == Standing && master == MemberReady:
		p.c.State, p.c.Good, p.c.Sizing.Good = Ready, len(p.c.Indexes), slices.Clone(p.c.Indexes)
		p.note("all its members are there again")
	}
}

// recreateAgain is the minimum time after the last resize request before the site is asked again for lost slaves. A
// slave is asked for once two looks found it gone.
const recreateAgain = 10 * time.Minute

// slaveGone reports whether the site has lost a slave. A slave that failed or is booting still exists.
func (p *plan) slaveGone() bool {
	return slices.ContainsFunc(p.c.Members[1:], func(m Member) bool {
		return m.State == MemberGone && slices.Contains(p.c.Indexes, m.Index)
	})
}

// unwantedAgain is the minimum time after the last resize request before the same unwanted slaves cause another one:
// the outputs of a template may name hosts that do not exist.
const unwantedAgain = time.Hour

// unwanted makes the manager send the size again if the site has unwanted slaves. Such slaves remain when an older
// resize takes effect after newer ones.
func (p resizePlan) unwanted(seen Seen) {
	var extra []int
	for _, m := range seen.Members {
		if m.Role == Slave && m.State != MemberGone && !slices.Contains(p.c.Indexes, m.Index) {
			extra = append(extra, m.Index)
		}
	}
	slices.Sort(extra)
	s := &p.c.Sizing
	if slices.Equal(extra, s.Unwanted) && (len(extra) == 0 || p.now.Before(s.Sent.Add(unwantedAgain))) {
		return
	}
	if s.Unwanted = extra; len(extra) > 0 {
		s.Taken = false
		p.note(fmt.Sprintf("site %s has %s more than requested: croft sends it the size again", p.c.Site,
			wording.Count(len(extra), "slave")))
		p.at(p.now)
	}
}

func (p resizePlan) resizing() {
	switch {
	case p.l.Did != "" && p.silent() && !p.late() && !p.faulty():
	case p.l.Did == ActResize && p.l.Err == nil:
		p.resizeAnswered()
		p.c.Sizing.Told, p.c.Sizing.Taken = slices.Clone(p.c.Indexes), true
		p.c.PartialSince = time.Time{}
		p.wait("site " + p.c.Site + " is resizing it")
	case p.l.Did == ActResize && refused(p.l.Err):
		p.resizeAnswered()
		if kind := croft.KindOf(p.l.Err); kind == croft.Conflict || kind == croft.NotFound {
			p.wait(fmt.Sprintf("site %s cannot resize it yet: %.200s", p.c.Site, p.l.Err))
			break
		}
		p.unsized(p.l.Err.Error())
	case p.l.Did == ActLook && p.l.Err == nil && p.l.Seen != nil && p.resized():
	case p.faulty():
		p.unsized(p.l.Err.Error())
	case p.late():
		p.unsized(fmt.Sprintf("site %s did not resize it within %s", p.c.Site, wording.Duration(p.timeout)))
	case p.l.Did != "":
		p.wait(cmp.Or(p.c.Step, "site "+p.c.Site+" is resizing it"))
	default:
		p.do(ActLook, "it is being resized")
	}
}

// resized handles the observed state of a resize, and returns false while the resize goes on.
func (p resizePlan) resized() bool {
	seen := *p.l.Seen
	if p.lost() {
		return true
	}
	p.remote(seen)
	if seen.Phase != Standing && seen.Phase != Unsized && seen.Phase != Broken {
		p.members(seen)
		if !p.masterGone(seen) {
			p.c.PartialSince = time.Time{}
			return false // an operation is in progress
		}
		if _, over := p.partial(); !over {
			return false
		}
	}
	if p.masterGone(seen) {
		p.members(seen)
		p.noteMembers()
		p.fail(FailedMaster, "its master no longer exists")
		return true
	}
	if p.resizeWanted() {
		if p.late() {
			return false
		}
		p.members(Seen{})
		p.c.Step = fmt.Sprintf("site %s is asked to resize it to %s", p.c.Site,
			wording.Count(len(p.c.Indexes), "slave"))
		p.resizeSent()
		p.do(ActResize, p.c.Step)
		return true
	}
	p.members(seen)
	if seen.Phase != Standing {
		p.unsized("site " + p.c.Site + " could not resize it: " + seen.Failure)
		return true
	}
	if why := unusable(seen); why != "" {
		p.unsized(why)
		return true
	}
	if p.whole() {
		p.ready(seen)
		return true
	}
	if why, over := p.partial(); over {
		p.unsized(why)
		return true
	}
	return false
}

// unsized undoes a failed resize, once. Slaves that were to be added are given up; a removal of slaves is asked for
// once more.
func (p resizePlan) unsized(message string) {
	p.blame(FailedResize, message)
	p.noteMembers()
	if p.c.Sizing.Back {
		p.c.State, p.c.Deadline, p.c.Sizing.Back = Degraded, time.Time{}, false
		p.c.Sizing.Told, p.c.Sizing.Taken = slices.Clone(p.c.Indexes), true
		p.note("the resize could not be taken back: " + p.c.Error.Message)
		p.rest(paceSettled, p.c.Error.Message)
		return
	}
	var kept, added []int
	for _, i := range p.c.Indexes {
		if slices.Contains(p.c.Sizing.Good, i) {
			kept = append(kept, i)
		} else {
			added = append(added, i)
		}
	}
	if len(added) > 0 {
		p.c.Indexes, p.c.Slaves = kept, len(kept)
		p.c.Removed = slices.Concat(p.c.Removed, added)
	}
	p.c.Sizing.Taken, p.c.Sizing.Back = false, true
	p.begin()
	p.members(Seen{})
	p.c.Step = "the resize failed, and is being taken back"
	p.note(p.c.Error.Message + "; it goes back to " + wording.Count(len(kept), "slave"))
	p.do(ActLook, p.c.Step)
}
