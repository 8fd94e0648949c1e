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
var untoldStep = regexp.MustCompile(`^site \S+ (?:unreachable|cannot be asked|fails) since ([0-9-]+T[0-9:]+Z)`)

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
