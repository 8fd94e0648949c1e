package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"croft"
	"croft/internal/plain"
	"croft/internal/wording"
)

// RemoteName returns the name of a cluster on its site, which identifies it there.
func RemoteName(id croft.ClusterID) string { return "croft-" + string(id) }

// scheduling first removes the remains of a failed build, then chooses a site, then copies an image to it.
func (p *plan) scheduling() {
	switch {
	case p.c.Remote.Asked && !p.c.Retry.Since.IsZero():
		removal{p}.remove(p.another)
	case p.c.Site != "" && !p.c.Remote.Asked:
		p.bringing()
	case p.l.Did == ActChoose:
		p.choose()
	default:
		p.do(ActChoose, "a site is to be chosen")
	}
}

// another starts the next attempt after the remains of the last one are gone.
func (p *plan) another() {
	p.forgetSite()
	p.l = Learned{}
	p.do(ActChoose, "the build failed, and its remains were removed")
}

// forgetSite removes the attempt from the record.
func (p *plan) forgetSite() {
	p.c.Site, p.c.Implementation, p.c.Revision, p.c.Credential = "", "", 0, ""
	p.c.Remote, p.c.Sizing, p.c.Retry, p.c.Members = Remote{}, Sizing{}, Retry{}, nil
	p.c.MasterIP, p.c.Outputs = "", nil
	p.c.Deadline, p.c.KeptUntil = time.Time{}, time.Time{}
}

func (p *plan) choose() {
	if err := p.l.Err; err != nil && !errors.Is(err, croft.Invalid) {
		p.c.Step = "a site is being chosen"
		p.rest(paceSlow, "no site could be chosen: "+err.Error())
		return
	}
	p.c.Why = p.l.Dropped
	switch {
	case len(p.l.Candidates) == 0 && len(p.c.Attempts) > 0:
		p.giveUp()
	case len(p.l.Candidates) == 0:
		code, why := FailedRoom, error(&ChoiceError{Dropped: p.l.Dropped})
		if p.l.Err != nil {
			code, why = FailedBuild, p.l.Err
		}
		p.fail(code, why.Error())
	case p.c.Remote.Asked:
		p.c.Retry = Retry{Since: p.now}
		p.c.Step = "the remains of the failed build at site " + p.c.Site + " is being removed"
		p.do(ActDestroy, p.c.Step)
	default:
		p.chosen(p.l.Candidates[0])
	}
}

// giveUp sets the state ERROR after the last attempt. The remains of the failed build stay on the site until KeptUntil.
func (p *plan) giveUp() {
	kept := p.c.KeptUntil
	last := p.c.Attempts[len(p.c.Attempts)-1]
	code := FailedBuild
	if p.c.Error != nil {
		code = p.c.Error.Code
	}
	p.fail(code, last.Error)
	if p.c.Remote.Asked {
		p.c.KeptUntil = kept
		p.at(kept)
	}
}

func (p *plan) chosen(c Candidate) {
	p.c.Site, p.c.Implementation, p.c.Revision = c.Site.Name, c.Implementation.ID, c.Implementation.Revision
	p.c.Credential = c.Credential.ID
	if c.Site.BuildTimeout > 0 {
		p.timeout = time.Duration(c.Site.BuildTimeout)
	}
	p.begin()
	if c.Implementation.Image == "" {
		p.build()
		return
	}
	p.c.Step = "image " + c.Implementation.Image
	p.do(ActBring, "the image is brought to site "+p.c.Site)
}

// bringing waits until the site has the image.
func (p *plan) bringing() {
	name := "image " + p.l.Image
	switch {
	case p.l.Did != ActBring && p.late():
		p.attempt(FailedImage, name+" was not brought to site "+p.c.Site+" in time", 0)
	case p.l.Did != ActBring:
		p.do(ActBring, "the image is brought to site "+p.c.Site)
	case p.l.Err == nil && p.l.Placed.State == ImageReady:
		p.build()
	case p.late():
		p.attempt(FailedImage, name+" was not brought to site "+p.c.Site+" in time", 0)
	case p.silent():
	case p.l.Err != nil:
		p.attempt(FailedImage, name+": "+p.l.Err.Error(), 0)
	case p.l.Placed.State == ImageFailed:
		p.attempt(FailedImage, name+": "+p.l.Placed.Error, 0)
	case p.l.Placed.Total > 0:
		p.wait(fmt.Sprintf("%s: %d %%", name, p.l.Placed.Done*100/p.l.Placed.Total))
	default:
		p.wait(name)
	}
}

// build records that the site is about to be asked.
func (p *plan) build() {
	p.c.State, p.c.Step = Building, "site "+p.c.Site+" is asked to build it"
	p.c.Remote = Remote{Name: RemoteName(p.c.ID), Asked: true, Counted: true}
	p.c.Sizing, p.c.Error = Sizing{}, nil
	p.begin()
	p.members(Seen{})
	p.launch(p.c.Step)
}

// launch counts a request in the record before it is sent.
func (p *plan) launch(reason string) {
	p.c.Remote.Open++
	p.do(ActLaunch, reason)
}

func (p *plan) building() {
	if p.l.Did == ActLaunch && refused(p.l.Err) {
		p.c.Remote.Open = max(0, p.c.Remote.Open-1)
	}
	switch {
	case p.l.Did != "" && p.silent() && !p.late() && !p.faulty():
	case p.l.Did == ActLaunch && p.l.Err == nil:
		p.launched()
	case p.l.Did == ActLaunch && refused(p.l.Err):
		code := FailedBuild
		if croft.KindOf(p.l.Err) == croft.NoCapacity {
			code = FailedRoom
		}
		if _, image := errors.AsType[*ImageError](p.l.Err); image {
			code = FailedImage
		}
		if p.c.Remote.nothing() {
			p.c.Remote.Asked = false
		}
		p.attempt(code, p.l.Err.Error(), 0)
	case p.l.Did == ActLook && p.l.Err == nil && p.l.Seen != nil && p.built():
	case p.faulty():
		p.attempt(FailedBuild, p.l.Err.Error(), KeepFailed)
	case p.late() && (p.l.Did != "" || p.c.Remote.ID == ""): // first look at the stack that may exist meanwhile
		p.attempt(FailedDeadline, fmt.Sprintf("site %s did not build it within %s", p.c.Site,
			wording.Duration(p.timeout)), KeepFailed)
	case p.l.Did != "":
		p.wait(p.c.Step)
	case p.c.Remote.ID == "":
		p.launch("site " + p.c.Site + " is asked to build it")
	default:
		p.do(ActLook, "it is being built")
	}
}

// refused reports whether an error of a site is a definite refusal.
func refused(err error) bool {
	switch croft.KindOf(err) {
	case croft.NoCapacity, croft.Invalid, croft.Conflict, croft.OverQuota, croft.NotFound:
		return true
	}
	return false
}

func (p *plan) launched() {
	counted, open := p.c.Remote.Counted, p.c.Remote.Open
	p.c.Remote = p.l.Remote
	p.c.Remote.Name, p.c.Remote.Asked = RemoteName(p.c.ID), true
	p.c.Remote.Counted, p.c.Remote.Open = counted, max(0, open-1)
	p.c.Sizing = Sizing{Told: slices.Clone(p.c.Indexes), Taken: true}
	p.wait("site " + p.c.Site + " is building it")
}

// built handles the observed state of a build, and returns false while the build goes on.
func (p *plan) built() bool {
	seen := *p.l.Seen
	if p.lost() {
		return true
	}
	p.remote(seen)
	p.members(seen)
	switch seen.Phase {
	case Standing:
		if why := unusable(seen); why != "" {
			p.attempt(FailedOutputs, why, KeepFailed)
			return true
		}
		if p.whole() {
			p.ready(seen)
			return true
		}
		p.c.Step = "site " + p.c.Site + " is building it"
		if why, over := p.partial(); over {
			p.attempt(FailedBuild, why, KeepFailed)
			return true
		}
		return false
	case Working, Updating:
		if p.masterGone(seen) {
			if why, over := p.partial(); over {
				p.attempt(FailedMaster, why, KeepFailed)
				return true
			}
			return false
		}
	case Broken, Unsized, Stuck:
		code := FailedBuild
		if seen.NoRoom {
			code = FailedRoom
		}
		p.attempt(code, "site "+p.c.Site+" could not build it: "+seen.Failure, KeepFailed)
		return true
	}
	p.c.Step, p.c.PartialSince = "site "+p.c.Site+" is building it", time.Time{}
	return false
}

// attempt records a failed build. If the request permits another site, that is tried next.
func (p *plan) attempt(code FailureCode, message string, keep time.Duration) {
	p.blame(code, message)
	message = p.c.Error.Message
	p.c.Attempts = append(slices.Clone(p.c.Attempts), Tried{Site: p.c.Site, Implementation: p.c.Implementation,
		Error: message, At: p.now})
	p.noteMembers()
	p.c.Retry, p.c.KeptUntil, p.c.Deadline = Retry{}, p.now.Add(keep), time.Time{}
	if pinned(p.c.Hints) || len(p.c.Attempts) >= MaxAttempts {
		p.giveUp()
		return
	}
	p.c.State = Scheduling
	p.note(message)
	if !p.c.Remote.Asked {
		p.forgetSite()
	}
	p.c.Step = "another site is being chosen"
	p.do(ActChoose, message)
}

// pinned reports whether a request permits only one site.
func pinned(h Hints) bool {
	return len(h.Sites) == 1 || len(h.Implementations) == 1 || len(h.Credentials) == 1
}

// remote copies the site's ID and status of the cluster into the record.
func (p *plan) remote(seen Seen) {
	if seen.Remote.ID != "" {
		p.c.Remote.ID, p.c.Remote.Project = seen.Remote.ID, cmp.Or(seen.Remote.Project, p.c.Remote.Project)
	}
	p.c.Remote.Status = seen.Remote.Status
	p.c.Remote.Reason = seen.Remote.Reason[:min(len(seen.Remote.Reason), MaxMessage)]
}

// members copies the observed members into the record. Fields that the site does not report stay. Members that are not
// wanted any more stay as GONE until the resize is over.
func (p *plan) members(seen Seen) {
	old := p.c.Members
	p.c.Members = []Member{p.member(old, seen, Master, 0)}
	for _, i := range p.c.Indexes {
		p.c.Members = append(p.c.Members, p.member(old, seen, Slave, i))
	}
	for _, m := range old {
		if !slices.ContainsFunc(p.c.Members, func(n Member) bool { return n.ID == m.ID }) {
			m.State = MemberGone
			p.c.Members = append(p.c.Members, m)
		}
	}
}

func (p *plan) member(old []Member, seen Seen, r Role, index int) Member {
	id := IDOf(p.c.ID, r, index)
	is := func(m Member) bool { return m.ID == id }
	m := Member{ID: id, Role: r, Index: index, State: MemberBuilding}
	if i := slices.IndexFunc(old, is); i >= 0 {
		m = old[i]
	}
	i := slices.IndexFunc(seen.Members, is)
	if i < 0 {
		return untold(m, seen)
	}
	now := tidy(seen.Members[i])
	if now.Address == "" {
		now.Address = m.Address
	}
	if now.RemoteID == "" {
		now.RemoteID = m.RemoteID
	}
	if now.Name == "" {
		now.Name = m.Name
	}
	now.Role, now.Index = r, index
	return now
}

// tidy returns a member as a site reports it, with an invalid address removed and texts cut to short lines: another
// cloud may send anything.
func tidy(m Member) Member {
	if !isAddress(m.Address) {
		m.Address = ""
	}
	for _, text := range []*string{&m.RemoteID, &m.Name, &m.Step, &m.Error} {
		*text = plain.Cut(*text, MaxMessage)
	}
	switch m.State {
	case MemberBuilding, MemberReady, MemberGone:
	default:
		m.State = MemberBuilding
	}
	return m
}

// isAddress reports whether a text is an IP address without a zone. A zone belongs to a network of another machine.
func isAddress(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Zone() == ""
}

// untold returns a member that the site does not report. If its template reports no slaves, a slave is READY once the
// build of the cluster is complete. Otherwise, if the site is done and reports other members, a member that was READY
// is GONE.
func untold(m Member, seen Seen) Member {
	over := seen.Phase == Standing || seen.Phase == Unsized
	switch told := m.Role == Master || tellsSlaves(seen); {
	case !told && seen.Phase == Standing:
		m.State = MemberReady
	case told && over && len(seen.Members) > 0 && m.State == MemberReady:
		m.State = MemberGone
	}
	return m
}

// masterGone reports whether the site has lost the master, or reports only slaves.
func (p *plan) masterGone(seen Seen) bool {
	return p.member(p.c.Members, seen, Master, 0).State == MemberGone
}

// tellsSlaves reports whether the site reports its slaves; a template may have no output for them.
func tellsSlaves(seen Seen) bool {
	_, hosts := seen.Outputs["hosts"]
	_, workers := seen.Outputs["worker_ips"]
	return hosts || workers || slices.ContainsFunc(seen.Members, func(m Member) bool { return m.Role == Slave })
}

// whole reports whether the master and all wanted slaves are READY.
func (p *plan) whole() bool {
	ready := 0
	for _, m := range p.c.Members {
		if m.State == MemberReady {
			ready++
		}
	}
	return ready == 1+len(p.c.Indexes)
}

// unusable says why the outputs of a complete cluster cannot be used; empty: they can.
func unusable(seen Seen) string {
	if seen.Failure != "" {
		return "its outputs cannot be used: " + seen.Failure
	}
	if !isAddress(seen.MasterIP) {
		return fmt.Sprintf("its output master_ip is %.80q, which is no IP address", seen.MasterIP)
	}
	return ""
}

// ready records a complete cluster as READY.
func (p *plan) ready(seen Seen) {
	p.members(seen)
	p.c.Members = slices.DeleteFunc(p.c.Members, func(m Member) bool { return m.State == MemberGone })
	p.c.State, p.c.Step, p.c.Deadline, p.c.Retry = Ready, "", time.Time{}, Retry{}
	if !p.c.Sizing.Back {
		p.c.Error = nil
	}
	p.c.Sizing.Back = false
	p.c.Good, p.c.Sizing.Good, p.c.MasterIP = len(p.c.Indexes), slices.Clone(p.c.Indexes), seen.MasterIP
	p.outputs(seen)
	p.note(fmt.Sprintf("it is ready, with %s", wording.Count(p.c.Good, "slave")))
	p.rest(paceSettled, "it is ready")
}

// outputs copies the outputs into the record; the manager seals the secret ones.
func (p *plan) outputs(seen Seen) {
	p.c.Outputs, p.next.Secrets = map[string]any{}, map[string]any{}
	for name, value := range seen.Outputs {
		if Hidden(name) {
			p.next.Secrets[name] = value
			continue
		}
		p.c.Outputs[name] = value
	}
}

// noteMembers adds an event for each failed member, with the last part of its console.
func (p *plan) noteMembers() {
	if p.l.Seen == nil {
		return
	}
	for _, m := range p.c.Members {
		console := p.l.Seen.Consoles[m.ID]
		if m.Error == "" && console == "" {
			continue
		}
		message := fmt.Sprintf("%s failed", name(m))
		if m.Error != "" {
			message += ": " + m.Error
		}
		p.next.Events = append(p.next.Events, Event{At: p.now, State: p.c.State, Host: string(m.ID), Message: message,
			Console: console[max(0, len(console)-MaxConsole):]})
	}
}

// name returns the words for a member in messages.
func name(m Member) string {
	if m.Role == Master {
		return "the master"
	}
	return fmt.Sprintf("slave %d", m.Index)
}
