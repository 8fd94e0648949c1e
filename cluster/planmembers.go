package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"croft/internal/plain"
	"croft/internal/wording"
)

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
// cluster stands. Otherwise, if the site is done and reports other members, a member that was READY is GONE.
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
