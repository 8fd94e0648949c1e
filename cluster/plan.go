package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/wording"
)

// Act is the next action of a manager for a cluster.
type Act string

// The acts. After each act but ActRest, Plan runs again with the result of the act.
const (
	ActRest    Act = "rest"    // do nothing until the time in Next, or until the record changes
	ActLook    Act = "look"    // Driver.Observe
	ActChoose  Act = "choose"  // choose a site with Choose
	ActBring   Act = "bring"   // Driver.Bring for the image that the implementation names
	ActLaunch  Act = "launch"  // Driver.Launch
	ActResize  Act = "resize"  // Driver.Resize, to Indexes
	ActDestroy Act = "destroy" // Driver.Destroy
	ActForget  Act = "forget"  // Records.Forget
)

// Learned is the input of Plan in addition to the record. The zero value means that nothing is known yet.
type Learned struct {
	Did Act   // the last act, which is complete
	Err error // error of the act; its kind counts

	Seen       *Seen       // result of ActLook; nil: the state could not be read
	Candidates []Candidate // of ActChoose, best first
	Dropped    []Dropped   // of ActChoose
	Placed     Placed      // result of ActBring; ImageReady if the implementation names no image
	Remote     Remote      // of ActLaunch

	Image   string        // image that the implementation names, for messages
	Timeout time.Duration // timeout of builds at the site; 0: BuildTimeout

	// ClocksDiffer reports that the clocks of this machine and of a host differ, so that Plan must not end anything
	// because of the time.
	ClocksDiffer bool
	// Held is when this manager started to hold the cluster. Short periods of patience are measured from then at the
	// earliest, because the clock of the previous manager may differ.
	Held time.Time
}

// Next is the decision of Plan. The manager writes the record first, then performs Do.
type Next struct {
	Record  Cluster
	Changed bool           // the record differs from the input
	Secrets map[string]any // secret outputs, to be sealed into the record
	Events  []Event        // to be appended after the record is written
	Do      Act
	Reason  string        // reason of Do, in English
	Pace    time.Duration // for ActRest: look again after about this time; 0: not needed
	At      time.Time     // for ActRest: look again at this time; zero: not needed
	Over    bool          // the decision depends on a time of the record having passed
}

// The durations in the life of a cluster.
const (
	KeepFailed  = time.Hour        // how long the remains of a failed build stay on the site, for inspection
	WarnBefore  = 10 * time.Minute // how long before its end the end of a cluster is announced
	warnAtLeast = time.Minute      // minimum time between the announcement and the end of a cluster
	paceQuick   = 2 * time.Second
	paceSlow    = 10 * time.Second
	paceSettled = time.Minute
	quickFor    = time.Minute
	retryFirst  = 5 * time.Second
	retryMost   = 10 * time.Minute
)

// Plan decides the next step in the life of a cluster from its record and from what was learned. It is pure. It relies
// on two promises of its caller: the holder writes the record before it performs the act, and acts may be repeated.
func Plan(c Cluster, l Learned, now time.Time) Next {
	p := &plan{was: c, c: c, l: l, now: now, timeout: cmp.Or(l.Timeout, BuildTimeout), next: Next{Do: ActRest}}
	p.c.Members = slices.Clone(c.Members)
	p.end()
	switch p.c.State {
	case Scheduling:
		p.scheduling()
	case Building:
		p.building()
	case Ready, Degraded:
		resizePlan{p}.standing()
	case Resizing:
		resizePlan{p}.resizing()
	case Failed:
		removal{p}.failed()
	case Deleting:
		removal{p}.deleting()
	case Deleted:
		p.deleted()
	}
	return p.finish()
}

// plan is the state of one call of Plan.
type plan struct {
	was, c  Cluster
	l       Learned
	now     time.Time
	timeout time.Duration
	next    Next
}

// resizePlan decides about a cluster that is built.
type resizePlan struct{ *plan }

// removal decides about a cluster that is to be removed from its site.
type removal struct{ *plan }

func (p *plan) finish() Next {
	if p.l.ClocksDiffer && !p.next.At.IsZero() && !p.now.Before(p.next.At) {
		p.next.At = p.now.Add(paceSettled)
	}
	if p.c.State != Building && p.c.State != Resizing {
		p.c.FaultSince, p.c.PartialSince = time.Time{}, time.Time{}
	}
	if p.c.State.Settled() && p.c.State != p.was.State {
		p.c.Step = ""
	}
	if p.c.State != p.was.State && !slices.ContainsFunc(p.next.Events,
		func(e Event) bool { return e.State == p.c.State }) {
		p.note(cmp.Or(p.next.Reason, "it is "+string(p.c.State)))
	}
	if p.next.Changed = !reflect.DeepEqual(p.c, p.was); p.next.Changed {
		p.c.Updated = p.now
		if visible(p.c) != visible(p.was) {
			p.c.Generation++
		}
	}
	p.next.Record = p.c
	return p.next
}

// visible returns a text of the fields whose change is visible to users.
func visible(c Cluster) string {
	var failure Failure
	if c.Error != nil {
		failure = *c.Error
	}
	return fmt.Sprint(c.State, c.Slaves, c.Indexes, failure, c.MasterIP, c.Members, c.Outputs, c.Site)
}

func (p *plan) do(a Act, reason string) {
	p.next.Do, p.next.Reason, p.next.Pace, p.next.At = a, reason, 0, time.Time{}
}

// rest waits, and looks again after about pace.
func (p *plan) rest(pace time.Duration, reason string) {
	p.next.Do, p.next.Reason, p.next.Pace = ActRest, reason, pace
}

// at makes the manager look again at t at the latest.
func (p *plan) at(t time.Time) {
	if p.next.At.IsZero() || t.Before(p.next.At) {
		p.next.At = t
	}
}

func (p *plan) note(message string) {
	p.next.Events = append(p.next.Events, Event{At: p.now, State: p.c.State, Message: message})
}

// pace returns how often to look at an operation that started at began.
func (p *plan) pace(began time.Time) time.Duration {
	if p.now.Sub(began) < quickFor {
		return paceQuick
	}
	return paceSlow
}

// begin sets the deadline of an operation that starts now.
func (p *plan) begin() {
	p.c.Deadline, p.c.FaultSince, p.c.PartialSince = p.now.Add(p.timeout), time.Time{}, time.Time{}
}

func (p *plan) began() time.Time { return p.c.Deadline.Add(-p.timeout) }

func (p *plan) late() bool { return !p.c.Deadline.IsZero() && p.over(p.c.Deadline) }

// over reports whether t has passed, after which something is removed or given up. While the clocks of machines differ,
// it reports false.
func (p *plan) over(t time.Time) bool {
	if p.now.Before(t) {
		return false
	}
	p.next.Over = true
	return !p.l.ClocksDiffer
}

// since returns the start of a period of patience that started at began according to the record.
func (p *plan) since(began time.Time) time.Time {
	if began.Before(p.l.Held) {
		return p.l.Held
	}
	return began
}

// wait looks again at the operation in progress, and at its deadline at the latest.
func (p *plan) wait(step string) {
	p.c.Step = step
	p.rest(p.pace(p.began()), step)
	if !p.c.Deadline.IsZero() {
		p.at(p.c.Deadline)
	}
}

// silent handles an act that the site did not answer, or whose credential it refused: nothing is known then.
func (p *plan) silent() bool {
	if p.l.Did == "" {
		return false
	}
	kind := croft.KindOf(p.l.Err)
	if _, fault := errors.AsType[*FaultError](p.l.Err); !fault {
		p.c.FaultSince = time.Time{}
	}
	switch {
	case p.l.Err == nil || refused(p.l.Err) || kind == croft.Denied:
		if p.untoldSince() != "" {
			p.c.Step = ""
		}
	}
	switch {
	case kind == croft.Denied:
		p.blame(FailedCredential, p.l.Err.Error())
		p.wait("site " + p.c.Site + " refuses the credential")
		return true
	case p.l.Err == nil && p.l.Did == ActLook && p.l.Seen == nil:
		p.wait(p.c.Step)
		return true
	case p.l.Err == nil:
		if p.c.Error != nil && p.c.Error.Code == FailedCredential && p.c.State != Failed {
			p.c.Error = nil
		}
		return false
	case refused(p.l.Err):
		return false
	}
	p.unheardOf()
	return true
}

// unheardOf sets a step that says since when the site has not reported the cluster, and why.
func (p *plan) unheardOf() {
	since := cmp.Or(p.untoldSince(), p.now.UTC().Format(time.RFC3339))
	step := "site " + p.c.Site + " cannot be asked since " + since
	if _, silent := errors.AsType[*SilentError](p.l.Err); silent {
		step = "site " + p.c.Site + " unreachable since " + since
	}
	if _, fault := errors.AsType[*FaultError](p.l.Err); fault {
		step = fmt.Sprintf("site %s fails since %s: %.200s", p.c.Site, since, p.l.Err)
		if p.c.FaultSince.IsZero() {
			p.c.FaultSince = p.now
		}
	}
	p.wait(step)
	if p.next.Pace = max(p.next.Pace, paceSlow); p.c.State.Settled() {
		p.next.Pace = paceSettled
	}
}

// untoldStep matches a step that unheardOf wrote.
var untoldStep = lazyregexp.New(`^site \S+ (?:unreachable|cannot be asked|fails) since ([0-9-]+T[0-9:]+Z)`)

// untoldSince returns since when the site has not reported the cluster; empty: it reports it.
func (p *plan) untoldSince() string {
	if m := untoldStep.FindStringSubmatch(p.c.Step); m != nil {
		return m[1]
	}
	return ""
}

// faultPatience is how long a site may answer requests for one cluster with faults before the operation fails.
const faultPatience = 5 * time.Minute

// faulty reports whether a site has answered with faults for too long.
func (p *plan) faulty() bool {
	_, fault := errors.AsType[*FaultError](p.l.Err)
	return fault && !p.c.FaultSince.IsZero() && p.over(p.since(p.c.FaultSince).Add(faultPatience))
}

// How long a site may say that it is done while members are not ready (complete), or while it says that they are gone
// (vanished). Heat shows the addresses of servers some time after a stack is complete; members that are still missing
// after that do not appear.
const (
	complete = 40 * time.Second
	vanished = 5 * time.Second
)

// partial reports whether a site that says that it is done has reported too few members for too long. It also returns a
// text that names the missing members.
func (p *plan) partial() (string, bool) {
	if p.c.PartialSince.IsZero() {
		p.c.PartialSince = p.now
	}
	var missing []string
	patience := complete
	for _, m := range p.c.Members {
		switch {
		case m.State == MemberReady, m.Role == Slave && !slices.Contains(p.c.Indexes, m.Index):
		case m.State == MemberGone:
			missing, patience = append(missing, name(m)+" is gone"), vanished
		case m.Error != "":
			missing = append(missing, name(m)+" failed: "+m.Error)
		case m.Address == "":
			missing = append(missing, name(m)+" has no address")
		default:
			missing = append(missing, name(m)+" is not ready")
		}
	}
	const shown = 5
	if len(missing) > shown {
		missing = append(missing[:shown], fmt.Sprintf("%d others are missing", len(missing)-shown))
	}
	end := p.since(p.c.PartialSince).Add(patience)
	p.at(end)
	return "site " + p.c.Site + " is done, and " + strings.Join(missing, ", "), p.over(end)
}

// blame sets the error of the cluster, unless it is set to the same one.
func (p *plan) blame(code FailureCode, message string) {
	message = strings.ToValidUTF8(message[:min(len(message), MaxMessage)], "")
	if e := p.c.Error; e == nil || e.Code != code || e.Message != message {
		p.c.Error = &Failure{Code: code, Message: message, At: p.now}
	}
}

// fail sets the state ERROR, and leaves the site alone.
func (p *plan) fail(code FailureCode, message string) {
	p.blame(code, message)
	p.c.State, p.c.Deadline, p.c.KeptUntil = Failed, time.Time{}, time.Time{}
	p.note(p.c.Error.Message)
	p.rest(0, message)
}

// lost handles a site that does not have the cluster any more, or does not show it any more.
func (p *plan) lost() bool {
	switch {
	case p.l.Seen.Elsewhere:
		p.fail(FailedCredential, "site "+p.c.Site+" does not show it: the credential sees another project now")
		p.rest(paceSettled, p.c.Error.Message)
	case p.l.Seen.Phase == Absent:
		p.c.Members = nil
		p.fail(FailedRemoved, "it was removed from site "+p.c.Site+" outside croft")
	case p.l.Seen.Phase == Stuck && p.c.State != Building:
		p.remote(*p.l.Seen)
		p.fail(FailedRemoved, "its removal was started at site "+p.c.Site+" outside croft, and that failed: "+
			p.l.Seen.Failure+"; destroy it")
	case p.l.Seen.Phase == Removing && p.c.State != Building:
		p.remote(*p.l.Seen)
		p.fail(FailedRemoved, "it is being removed from site "+p.c.Site+" outside croft")
	default:
		return false
	}
	return true
}

// deleted forgets a tombstone once Remembered is over.
func (p *plan) deleted() {
	if end := p.c.Ended.Add(Remembered); !p.over(end) {
		p.at(end)
		return
	}
	p.do(ActForget, "it ended long ago")
}

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
		if at := p.c.IdleSince.Add(time.Duration(p.c.KeepIdle)); end.IsZero() || at.Before(end) {
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
