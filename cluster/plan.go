package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"croft"
)

// Act is what a manager does next about a cluster.
type Act string

// The acts. Each but ActRest is followed by another Plan, which is told how it went.
const (
	ActRest    Act = "rest"    // nothing, until Next says, or the record changes
	ActLook    Act = "look"    // Driver.Observe
	ActChoose  Act = "choose"  // a site, as Choose does
	ActBring   Act = "bring"   // Driver.Bring, of the image that the implementation names
	ActLaunch  Act = "launch"  // Driver.Launch
	ActResize  Act = "resize"  // Driver.Resize, to Indexes
	ActDestroy Act = "destroy" // Driver.Destroy
	ActForget  Act = "forget"  // Records.Forget
)

// Learned is what a manager knows beside the record. The zero value: nothing yet.
type Learned struct {
	Did Act   // the act that was the last, and is over
	Err error // of it: its kind counts

	Seen       *Seen       // of ActLook; nil: nothing was learned
	Candidates []Candidate // of ActChoose, best first
	Dropped    []Dropped   // of ActChoose
	Placed     Placed      // of ActBring; one that names no image is ImageReady
	Remote     Remote      // of ActLaunch

	Image   string        // that the implementation names, for people
	Timeout time.Duration // of builds at the site; 0: BuildTimeout

	// ClocksDiffer reports that the clock of this machine and that of a host differ: nothing is over by the time alone.
	ClocksDiffer bool
	// Held is when this manager began to hold the cluster: short patience counts from then at the earliest, because the
	// clock of the manager before it may differ.
	Held time.Time
}

// Next is what comes next for a cluster. The record is written first, then Do is done.
type Next struct {
	Record  Cluster
	Changed bool           // the record is not as it was
	Secrets map[string]any // outputs to be sealed into the record, which are secret
	Events  []Event        // to be noted after the record is written
	Do      Act
	Reason  string        // of Do, in English
	Pace    time.Duration // of ActRest: look again about then; 0: no need
	At      time.Time     // of ActRest: look again then; zero: no need
	Over    bool          // a time on record is over by the clock, which decided something
}

// The times of a life.
const (
	KeepFailed  = time.Hour        // how long what failed stays on its site, to be looked at
	WarnBefore  = 10 * time.Minute // how long before its end a cluster's end is announced
	warnAtLeast = time.Minute      // a cluster never ends sooner after its announcement
	paceQuick   = 2 * time.Second
	paceSlow    = 10 * time.Second
	paceSettled = time.Minute
	quickFor    = time.Minute
	retryFirst  = 5 * time.Second
	retryMost   = 10 * time.Minute
)

// Plan decides what comes next in the life of a cluster, from its record and from what was learned. It is pure. What it
// relies on: the record is written before the act is done, by its holder; acts may be repeated.
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
		sizing{p}.standing()
	case Resizing:
		sizing{p}.resizing()
	case Failed:
		removal{p}.failed()
	case Deleting:
		removal{p}.deleting()
	case Deleted:
		p.deleted()
	}
	return p.finish()
}

// plan is one decision in the making.
type plan struct {
	was, c  Cluster
	l       Learned
	now     time.Time
	timeout time.Duration
	next    Next
}

// sizing is what plan does about a cluster that stands.
type sizing struct{ *plan }

// removal is what plan does about a cluster that is to leave its site.
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

// visible is what of a record counts as a change for its users.
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

// rest waits, and looks again after about that time.
func (p *plan) rest(pace time.Duration, reason string) {
	p.next.Do, p.next.Reason, p.next.Pace = ActRest, reason, pace
}

// at has the manager look again at a time, if not sooner.
func (p *plan) at(t time.Time) {
	if p.next.At.IsZero() || t.Before(p.next.At) {
		p.next.At = t
	}
}

func (p *plan) note(message string) {
	p.next.Events = append(p.next.Events, Event{At: p.now, State: p.c.State, Message: message})
}

// pace is how often to look at something that began some time ago.
func (p *plan) pace(began time.Time) time.Duration {
	if p.now.Sub(began) < quickFor {
		return paceQuick
	}
	return paceSlow
}

// begin gives what begins now its own time.
func (p *plan) begin() {
	p.c.Deadline, p.c.FaultSince, p.c.PartialSince = p.now.Add(p.timeout), time.Time{}, time.Time{}
}

func (p *plan) began() time.Time { return p.c.Deadline.Add(-p.timeout) }

func (p *plan) late() bool { return !p.c.Deadline.IsZero() && p.over(p.c.Deadline) }

// over reports whether a time has passed, after which something is removed or given up. No time has passed while the
// clocks of machines differ.
func (p *plan) over(t time.Time) bool {
	if p.now.Before(t) {
		return false
	}
	p.next.Over = true
	return !p.l.ClocksDiffer
}

// since returns from when patience counts that began at a time on record.
func (p *plan) since(began time.Time) time.Time {
	if began.Before(p.l.Held) {
		return p.l.Held
	}
	return began
}

// wait looks again at what is under way, and in any case at its deadline.
func (p *plan) wait(step string) {
	p.c.Step = step
	p.rest(p.pace(p.began()), step)
	if !p.c.Deadline.IsZero() {
		p.at(p.c.Deadline)
	}
}

// silent deals with an act that the site did not answer, or refused the credential for: nothing is known then.
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

// unheardOf says since when the site does not tell of a cluster, and why.
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

// untoldStep matches the step of a cluster that its site does not tell of.
var untoldStep = regexp.MustCompile(`^site \S+ (?:unreachable|cannot be asked|fails) since ([0-9-]+T[0-9:]+Z)`)

// untoldSince returns since when the site does not tell of a cluster; empty: it does.
func (p *plan) untoldSince() string {
	if m := untoldStep.FindStringSubmatch(p.c.Step); m != nil {
		return m[1]
	}
	return ""
}

// faultPatience is how long a site may respond to what is asked for one cluster with faults until that has failed.
const faultPatience = 5 * time.Minute

// faulty reports whether a site has responded with faults for too long.
func (p *plan) faulty() bool {
	_, fault := errors.AsType[*FaultError](p.l.Err)
	return fault && !p.c.FaultSince.IsZero() && p.over(p.since(p.c.FaultSince).Add(faultPatience))
}

// How long a site may say that it is done while members are not ready, or while it says that they are gone. Heat shows
// the addresses of servers some time after a stack is complete; what is missing then will not come.
const (
	complete = 40 * time.Second
	vanished = 5 * time.Second
)

// partial reports whether a site that says that it is done has told of too few members for too long. With it comes
// what is missing.
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

// blame sets what is wrong, unless that is on record already.
func (p *plan) blame(code FailureCode, message string) {
	message = strings.ToValidUTF8(message[:min(len(message), MaxMessage)], "")
	if e := p.c.Error; e == nil || e.Code != code || e.Message != message {
		p.c.Error = &Failure{Code: code, Message: message, At: p.now}
	}
}

// fail ends in ERROR what cannot go on, and leaves the site alone.
func (p *plan) fail(code FailureCode, message string) {
	p.blame(code, message)
	p.c.State, p.c.Deadline, p.c.KeptUntil = Failed, time.Time{}, time.Time{}
	p.note(p.c.Error.Message)
	p.rest(0, message)
}

// lost deals with a site that has our cluster no more, or shows it no more.
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
		p.fail(FailedRemoved, "somebody began to remove it from site "+p.c.Site+" outside croft, and that failed: "+
			p.l.Seen.Failure+"; destroy it")
	case p.l.Seen.Phase == Removing && p.c.State != Building:
		p.remote(*p.l.Seen)
		p.fail(FailedRemoved, "it is being removed from site "+p.c.Site+" outside croft")
	default:
		return false
	}
	return true
}

// deleted forgets a tombstone in time.
func (p *plan) deleted() {
	if end := p.c.Ended.Add(Remembered); !p.over(end) {
		p.at(end)
		return
	}
	p.do(ActForget, "it ended long ago")
}
