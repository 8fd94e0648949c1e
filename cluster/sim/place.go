package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/cluster"
)

// place is the state of one site.
type place struct {
	faults    Faults
	stacks    map[string]*stack // by name
	strangers map[string]bool   // names of objects that are not ours
	images    map[string]time.Time
	usual     time.Duration
	late      []effect
	addresses int // number of assigned addresses
}

// effect is an abandoned call that will take effect.
type effect struct {
	at time.Time
	do func(now time.Time)
}

// settle applies the effects that are due, in order.
func (p *place) settle(now time.Time) {
	slices.SortStableFunc(p.late, func(a, b effect) int { return a.at.Compare(b.at) })
	for len(p.late) > 0 && !p.late[0].at.After(now) {
		next := p.late[0]
		p.late = p.late[1:]
		p.age(next.at)
		next.do(next.at)
	}
	p.age(now)
}

// age applies the phase changes that are due.
func (p *place) age(now time.Time) {
	for name, k := range p.stacks {
		if k.age(now); k.phase == cluster.Absent {
			delete(p.stacks, name)
		}
	}
}

func (p *place) delay() time.Duration { return cmp.Or(p.faults.Delay, p.usual) }

// find returns the stack of a build, by its ID if that is known.
func (p *place) find(b cluster.Build) *stack {
	for name, k := range p.stacks {
		ours := k.partition == b.Partition && k.cluster == b.Cluster
		if ours && (k.id == b.Remote.ID || b.Remote.ID == "" && name == b.Remote.Name) {
			return k
		}
	}
	return nil
}

// full says why more further members do not fit; empty: they do.
func (p *place) full(more int) string {
	used := 0
	for _, k := range p.stacks {
		used += len(k.machines)
	}
	if room := p.faults.Room; room > 0 && used+more > room {
		return fmt.Sprintf("needs room for %d members, and has %d", more, max(room-used, 0))
	}
	return ""
}

func (p *place) address() string {
	p.addresses++
	return fmt.Sprintf("10.%d.%d.%d", p.addresses>>16&0xff, p.addresses>>8&0xff, p.addresses&0xff)
}

// stack is a cluster on a site.
type stack struct {
	id, name  string
	partition croft.PartitionID
	cluster   croft.ClusterID
	phase     cluster.Phase
	reason    string
	outputs   map[string]any
	machines  map[int]*machine // slaves by index; the master is at -1

	until  time.Time     // when the phase ends
	then   cluster.Phase // the phase that follows
	why    string        // reason of the phase that follows
	frozen bool
}

const master = -1

// machine is a member.
type machine struct {
	id, address string
	ready       time.Time
	lost        bool
	failed      bool
}

func (k *stack) remote() cluster.Remote {
	return cluster.Remote{ID: k.id, Name: k.name, Asked: true, Status: string(k.phase), Reason: k.reason}
}

// over reports whether no operation is in progress.
func (k *stack) over(now time.Time) bool {
	k.age(now)
	return k.then == ""
}

func (k *stack) age(now time.Time) {
	if k.then == "" || k.frozen || now.Before(k.until) {
		return
	}
	k.phase, k.reason, k.then = k.then, k.why, ""
}

func (p *place) begin(b cluster.Build, now time.Time) *stack {
	k := &stack{id: uuid.NewString(), name: b.Remote.Name, partition: b.Partition, cluster: b.Cluster,
		outputs: templateOf(b.Implementation).Outputs, machines: map[int]*machine{}}
	p.stacks[k.name] = k
	k.work(p, now, cluster.Working, cluster.Standing, "")
	for i, index := range append([]int{master}, b.Indexes...) {
		k.add(p, index, now, i)
	}
	if why := p.faults.Fails; why != "" {
		k.then, k.why = cluster.Broken, why
		k.machines[master].failed = true
	}
	return k
}

// work starts a phase that ends after the delay.
func (k *stack) work(p *place, now time.Time, phase, then cluster.Phase, why string) {
	k.phase, k.reason, k.then, k.why = phase, "", then, why
	k.until, k.frozen = now.Add(p.delay()), p.faults.Frozen && phase != cluster.Removing
}

// add adds a member, which becomes ready some time before the build ends.
func (k *stack) add(p *place, index int, now time.Time, nth int) {
	k.machines[index] = &machine{id: uuid.NewString(), address: p.address(),
		ready: now.Add(p.delay() * time.Duration(min(nth+1, 8)) / 8)}
}

func (k *stack) resize(p *place, b cluster.Build, now time.Time) error {
	var added []int
	for _, i := range b.Indexes {
		if m := k.machines[i]; m == nil || m.lost || m.failed {
			added = append(added, i)
		}
	}
	if why := p.full(len(added)); why != "" {
		return croft.Errorf(croft.NoCapacity, "site %s", why)
	}
	for i := range k.machines {
		if i != master && !slices.Contains(b.Indexes, i) {
			delete(k.machines, i)
		}
	}
	k.work(p, now, cluster.Updating, cluster.Standing, "")
	for n, i := range added {
		k.add(p, i, now, n)
		if p.faults.Fails != "" {
			k.machines[i].failed = true
			k.then, k.why = cluster.Unsized, p.faults.Fails
		}
	}
	return nil
}

func (k *stack) remove(p *place, now time.Time) {
	if k.phase == cluster.Removing {
		return
	}
	k.work(p, now, cluster.Removing, cluster.Absent, "")
	if why := p.faults.Sticks; why != "" {
		k.then, k.why = cluster.Stuck, why
	}
}

// seen returns the observed state.
func (k *stack) seen(b cluster.Build) cluster.Seen {
	seen := cluster.Seen{Phase: k.phase, Remote: k.remote(), Failure: k.reason, Consoles: map[cluster.MemberID]string{}}
	for _, index := range slices.Sorted(maps.Keys(k.machines)) { // the master first, and unwanted slaves too
		k.tell(&seen, index, k.machines[index])
	}
	if k.phase == cluster.Standing {
		seen.Outputs = map[string]any{}
		for name, value := range k.outputs {
			seen.Outputs[name] = value
		}
		seen.Outputs["master_ip"] = seen.MasterIP
		hosts := []any{}
		for _, m := range seen.Members {
			if !b.Wants(m) {
				continue
			}
			hosts = append(hosts, map[string]any{"name": m.Name, "address": m.Address, "role": string(m.Role)})
		}
		seen.Outputs["hosts"] = hosts
	}
	return seen
}

func (k *stack) tell(seen *cluster.Seen, index int, m *machine) {
	out := cluster.Member{Role: cluster.Slave, Index: index, RemoteID: m.id, State: cluster.MemberBuilding,
		Step: "booting"}
	out.Name = fmt.Sprintf("%s-slave-%d", k.name, index)
	if index == master {
		out.Role, out.Index, out.Name = cluster.Master, 0, k.name+"-master"
	}
	out.ID = cluster.IDOf(k.cluster, out.Role, out.Index)
	switch {
	case m.lost:
		out.State, out.Step, out.Error = cluster.MemberGone, "", "it is gone"
	case m.failed:
		out.Step, out.Error = "failed", "it did not boot"
		seen.Consoles[out.ID] = "Kernel panic - not syncing: no init found"
	case !k.frozen && !time.Now().Before(m.ready) || k.phase == cluster.Standing:
		out.State, out.Address, out.Step = cluster.MemberReady, m.address, "ready"
	}
	if index == master {
		seen.MasterIP = out.Address
	}
	seen.Members = append(seen.Members, out)
}
