package local

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"
	"time"

	"croft"
	"croft/cluster"
	"croft/internal/hostkey"
)

// Observe implements cluster.Driver. It reads the instances of each project once, and continues what Launch and Resize
// started: it orders slaves that waited for the address of their master, and sends the members' addresses to each
// other.
func (d *Driver) Observe(ctx context.Context, _ cluster.SiteAccess,
	all []cluster.Build) (map[croft.ClusterID]cluster.Seen,
	error) {
	lists := map[croft.Project][]croft.Status{}
	found := map[croft.ClusterID]cluster.Seen{}
	for _, b := range all {
		list, read := lists[b.Project]
		if !read {
			var err error
			if list, err = d.Scheduler.View.List(ctx, b.Project); err != nil {
				return found, err
			}
			lists[b.Project] = list
		}
		found[b.Cluster] = d.see(ctx, b, ofCluster(list, b.Cluster))
	}
	return found, ctx.Err()
}

// see looks at one cluster, and continues its build.
func (d *Driver) see(ctx context.Context, b cluster.Build, have roll) cluster.Seen {
	ready := readyAddress
	t, err := textOf(b.Implementation)
	if err == nil {
		ready = t.Ready
	}
	l := d.look(ctx, b, have, ready)
	seen := l.seen(b)
	if l.phase != cluster.Working && l.phase != cluster.Updating && l.phase != cluster.Standing {
		d.consoles(ctx, have, l, &seen)
		return seen
	}
	d.consoles(ctx, have, l, &seen)
	if err := d.goOn(ctx, b, have, l); err != nil {
		d.Log.Warn("a cluster cannot make progress now", "cluster", b.Cluster, "err", err)
		if decided(err) && l.phase != cluster.Standing {
			seen.Phase, seen.Failure = l.failing(), bounded(err.Error())
		}
	}
	return seen
}

// goOn orders held members that may be ordered, and introduces the members to each other.
func (d *Driver) goOn(ctx context.Context, b cluster.Build, have roll, l look) error {
	if l.held > 0 {
		r, err := d.recipe(ctx, b)
		if err != nil {
			return err
		}
		if master := have.master(b); master != nil && master.Instance.State == croft.StateScheduled {
			if err := d.order(ctx, r, have); err != nil {
				return err
			}
		}
	}
	return d.introduce(ctx, b, have)
}

// progress is the progress of one member.
type progress int

const (
	missing progress = iota // there is no record
	held
	coming
	up
	failed // it was never up
	lost   // it was up, and is not any more
	going  // it is being removed
)

// look is the result of looking at a cluster.
type look struct {
	phase   cluster.Phase
	members []cluster.Member // the wanted members that exist
	at      map[croft.InstanceID]progress
	held    int
	joined  string // tagJoined of a member that is not up, if there is one
	failure string
}

// look determines the state of each member, and from these the state of the cluster.
func (d *Driver) look(ctx context.Context, b cluster.Build, have roll, ready string) look {
	l := look{at: map[croft.InstanceID]progress{}}
	counts := map[progress]int{}
	ordered := 0 // number of slaves
	for _, m := range wanted(b) {
		st := have[m.id]
		seen, p := d.judge(ctx, m, st, ready)
		l.at[m.id] = p
		counts[p]++
		if st == nil {
			if m.role == cluster.Master && len(have) > 0 { // without the master, no slave is ordered
				seen.State, seen.Step = cluster.MemberGone, ""
				l.members = append(l.members, seen)
			}
			continue
		}
		l.members = append(l.members, seen)
		if m.role == cluster.Slave && p != held {
			ordered++
		}
		if p == failed && l.failure == "" {
			l.failure = m.name + ": " + seen.Error
		}
		if p == held || p == coming || p == failed {
			l.joined = cmp.Or(st.Instance.Spec.Tags[tagJoined], l.joined)
		}
	}
	l.held = counts[held]
	// the others were not asked to leave yet
	leavingNow := slices.ContainsFunc(have.extra(b), func(st *croft.Status) bool {
		return st.Instance.State == croft.StateDestroying
	})
	masterID := instanceOf(b.Cluster, cluster.Master, 0)
	switch leaving, why := removing(have); {
	case len(have) == 0:
		l.phase = cluster.Absent
	case leaving && why != "":
		l.phase, l.failure = cluster.Stuck, why
	case leaving:
		l.phase = cluster.Removing
	case counts[failed] > 0:
		l.phase = l.failing()
	case l.at[masterID] == missing && ordered == 0, counts[held] > 0, counts[coming] > 0,
		l.at[masterID] == held:
		l.phase = cluster.Working
		if l.joined == withResize {
			l.phase = cluster.Updating
		}
	case leavingNow:
		l.phase = cluster.Updating
	default:
		l.phase = cluster.Standing
		l.vanished(b, have)
		l.unwanted(b, have)
	}
	return l
}

// unwanted adds the existing slaves that are not wanted and that no request has removed. A resize that took effect late
// leaves them.
func (l *look) unwanted(b cluster.Build, have roll) {
	for _, st := range have.extra(b) {
		index, err := strconv.Atoi(st.Instance.Spec.Tags[tagIndex])
		if err != nil || st.Instance.State == croft.StateDestroying {
			continue
		}
		l.members = append(l.members, cluster.Member{ID: cluster.MemberID(st.Instance.ID), Name: st.Instance.Name,
			Role: cluster.Slave, Index: index, Address: address(st), State: cluster.MemberReady})
	}
}

// vanished adds the wanted slaves without a record. Nothing is held or coming, so they will not be created.
func (l *look) vanished(b cluster.Build, have roll) {
	for _, m := range wanted(b)[1:] {
		if have[m.id] == nil {
			l.members = append(l.members, cluster.Member{ID: cluster.MemberID(m.id), Name: m.name, Role: m.role,
				Index: m.index, State: cluster.MemberGone})
		}
	}
}

// failing returns the phase of a cluster with a failed member.
func (l look) failing() cluster.Phase {
	if l.joined == withResize {
		return cluster.Unsized
	}
	return cluster.Broken
}

// removing reports whether everything of a cluster is being removed, and if that fails, why.
func removing(have roll) (all bool, why string) {
	for _, st := range have {
		if st.Instance.State != croft.StateDestroying {
			return false, ""
		}
		if o := st.Observation; o != nil && o.State == croft.StateFailed && o.Generation >= st.Instance.Generation {
			why = bounded(st.Instance.Name + ": " + cmp.Or(agentError(st), "its host gives no reason"))
		}
	}
	return len(have) > 0, why
}

// judge returns the progress of a member. Silence of a host changes nothing: its last report counts.
func (d *Driver) judge(ctx context.Context, m member, st *croft.Status, ready string) (cluster.Member, progress) {
	out := cluster.Member{ID: cluster.MemberID(m.id), Name: m.name, Role: m.role, Index: m.index,
		State: cluster.MemberBuilding, Step: "asked"}
	if st == nil {
		return out, missing
	}
	out.Name, out.RemoteID, out.Address = st.Instance.Name, string(m.id), address(st)
	if ready == readySetUp && d.SetsUp != nil && !d.SetsUp(st) {
		ready = readyAddress
	}
	switch st.Instance.State {
	case croft.StateHeld:
		out.Step = "claimed"
		return out, held
	case croft.StateDestroying:
		out.State, out.Step = cluster.MemberGone, "being removed"
		return out, going
	case croft.StateLost:
		out.State, out.Step, out.Error = cluster.MemberGone, "failed", "it was lost with its host"
		return out, lost
	}
	o := st.Observation
	if st.Instance.State != croft.StateScheduled || o == nil {
		return out, coming
	}
	current := o.Generation >= st.Instance.Generation
	was := slices.ContainsFunc(o.Events, func(e croft.Event) bool { return e.Name == croft.EventAddress }) &&
		(ready != readySetUp || o.CloudInit != nil && o.CloudInit.State == croft.CloudInitDone)
	switch {
	case o.State == croft.StateFailed && current && o.ErrorKind != croft.Unavailable,
		o.State == croft.StateStopped && current && o.Ended != "":
		out.Step, out.Error = "failed", bounded(cmp.Or(agentError(st), string(o.Ended), "its host gives no reason"))
		if o.Ended != "" {
			out.Error = o.Ended.String()
		}
		if was {
			out.State = cluster.MemberGone
			return out, lost
		}
		return out, failed
	case o.State == croft.StateFailed:
		out.Error = bounded(agentError(st)) // the host tries again
		return out, coming
	case o.State != croft.StateRunning:
		out.Step = "booting"
		return out, coming
	}
	return d.running(ctx, out, o, ready)
}

// running returns the progress of a member whose guest runs and has an address.
func (d *Driver) running(ctx context.Context, out cluster.Member, o *croft.Observation, ready string) (cluster.Member,
	progress) {
	out.Step = "set-up"
	switch {
	case ready == readySetUp && o.CloudInit == nil:
		return out, coming
	case ready == readySetUp && o.CloudInit.State == croft.CloudInitFailed:
		why := cmp.Or(o.CloudInit.Error, "the guest gives no reason")
		out.Step, out.Error = "failed", bounded("its set-up failed: "+why)
		return out, failed
	case ready == readySSH && !d.greeted.by(ctx, o.Instance, out.Address):
		return out, coming
	}
	out.State, out.Step = cluster.MemberReady, "ready"
	return out, up
}

// agentError returns the agent's error about a member without the names and addresses of its host. It removes only
// whole words: a part of another word stays.
func agentError(st *croft.Status) string {
	text := st.Observation.Error
	if st.Host == nil || text == "" {
		return text
	}
	h := st.Host
	for _, word := range append([]string{string(h.ID), h.Name, h.API, h.Place}, h.Addresses...) {
		if word == "" {
			continue
		}
		whole := regexp.MustCompile(`(^|[^\w.:/-])` + regexp.QuoteMeta(word) + `($|[^\w.-]|[.]($|\s))`)
		text = whole.ReplaceAllString(text, "${1}its host${2}")
	}
	return text
}

func bounded(text string) string { return text[:min(len(text), cluster.MaxMessage)] }

// seen converts a look to an observation.
func (l look) seen(b cluster.Build) cluster.Seen {
	s := cluster.Seen{Phase: l.phase, Remote: remoteOf(b), Members: l.members, Consoles: map[cluster.MemberID]string{}}
	if l.phase == cluster.Absent {
		s.Remote = cluster.Remote{Name: b.Remote.Name}
	}
	s.Remote.Status = string(l.phase)
	if l.phase == cluster.Broken || l.phase == cluster.Unsized || l.phase == cluster.Stuck {
		s.Failure = bounded(l.failure)
		s.Remote.Reason = s.Failure
	}
	hosts := []any{}
	for _, m := range l.members {
		if m.Role == cluster.Master && m.State == cluster.MemberReady {
			s.MasterIP = m.Address
		}
		if m.State == cluster.MemberGone && m.Address == "" || !b.Wants(m) {
			continue
		}
		host := map[string]any{"name": m.Name, "address": m.Address, "role": string(m.Role)}
		if m.Role == cluster.Slave {
			host["index"] = m.Index
		}
		hosts = append(hosts, host)
	}
	if l.phase == cluster.Standing {
		s.Outputs = map[string]any{"master_ip": s.MasterIP, "hosts": hosts}
	}
	return s
}

// consoleEnd is the number of bytes kept from the end of a console, and consoleTime bounds the request to the host.
const (
	consoleEnd  = 4 << 10
	consoleTime = 3 * time.Second
	mostShown   = 4 // members per cluster
)

// consoles adds the last parts of the consoles of failed members.
func (d *Driver) consoles(ctx context.Context, have roll, l look, seen *cluster.Seen) {
	if d.Console == nil {
		return
	}
	for _, m := range l.members {
		id := croft.InstanceID(m.ID)
		if p := l.at[id]; p != failed && p != lost || len(seen.Consoles) == mostShown {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, consoleTime)
		text, err := d.Console(asking, *have[id])
		cancel()
		if err == nil && text != "" {
			seen.Consoles[m.ID] = text[max(0, len(text)-consoleEnd):]
		}
	}
}

// mostAcquainted is the size up to which all members of a cluster know each other. In a larger cluster the master knows
// all, and slaves know the master and themselves: the total size of the lists would grow with the square of the number
// of members.
const mostAcquainted = 256

// introduce sends each member the addresses of the others, once all of them have addresses.
func (d *Driver) introduce(ctx context.Context, b cluster.Build, have roll) error {
	members := wanted(b)
	var all []croft.Peer
	for _, m := range members {
		st := have[m.id]
		if address(st) == "" {
			return nil
		}
		key, err := hostkey.Public(st.Instance.Spec.HostKey)
		if err != nil {
			key = "" // made by another version: the first connection is not verified then
		}
		all = append(all, croft.Peer{Name: st.Instance.Name, Address: address(st), HostKey: key, Role: string(m.role)})
	}
	type told struct {
		member
		peers []croft.Peer
	}
	var news []told
	for i, m := range members {
		peers := all
		if len(all) > mostAcquainted && i > 0 {
			peers = []croft.Peer{all[0], all[i]}
		}
		if !slices.Equal(have[m.id].Instance.Spec.Peers, peers) {
			news = append(news, told{m, peers})
		}
	}
	return each(news, func(n told) error {
		err := d.Scheduler.ForCluster(b.Cluster).Introduce(ctx, b.Project, n.id, n.peers)
		if kind := croft.KindOf(err); kind == croft.Conflict || kind == croft.NotFound {
			return nil // the member is being removed
		}
		return err
	})
}
