package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"croft"
	"croft/internal/nearest"
	"croft/internal/share"
	"croft/internal/wording"
	"croft/schedule"
)

// Host is a host with its load.
type Host struct {
	croft.Host
	// Its instances by time of creation, of a host that was looked for; nil in lists.
	Instances []croft.Status `json:"-"`
	// How many are on it.
	Count   int             `json:"instances"`
	Offered croft.Resources `json:"offered,omitzero"` // the total that may be claimed; left out: not known
	Claimed croft.Resources `json:"claimed,omitzero"` // how much claims take, by resource class; left out: not known
	Traits  []croft.Trait   `json:"traits,omitempty"` // its properties that requests may require
	// Etcd is its role as a member of etcd; empty: it serves no etcd.
	Etcd croft.MemberRole `json:"etcd,omitempty"`
	// ClockDifference is the number of seconds by which its clock is ahead of the clock of the machine that lists it;
	// negative: it is behind. 0: they agree within a minute or two, or the host is silent.
	ClockDifference int64 `json:"clock_difference,omitempty"`
	// Notes are facts that an operator should know and that are no problems, one sentence each.
	Notes []string `json:"notes,omitempty"`
	// Why the fence agents of the cloud cannot switch it off; left out: they can, or that was not asked.
	NoFence string `json:"no_fence,omitempty"`
	// Lost is the instances that were lost with the host; only in the results of Forget and Fence.
	Lost []LostInstance `json:"lost,omitempty"`
}

// State describes the state of a host in one word.
func (h Host) State() string {
	switch {
	case h.Death != nil && !h.IsDead():
		return "fencing"
	case h.IsDead() && h.Alive:
		return "returned"
	case h.IsDead():
		return "dead"
	case !h.Alive:
		return "silent"
	case h.Drained:
		return "drained"
	}
	return "ready"
}

// Offered returns what the hosts that take instances offer together. Unavailable: not all of it is known.
func (f *Fleet) Offered(ctx context.Context) (croft.Resources, error) {
	all, err := f.List(ctx)
	if err != nil {
		return nil, err
	}
	sum := croft.Resources{}
	for _, h := range all {
		if h.State() == "ready" {
			for class, n := range h.Offered {
				sum[class] += n
			}
		}
	}
	return sum, nil
}

// Records returns the records of the named hosts that exist; without names, of all hosts.
func (f *Fleet) Records(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return f.Hosts.Hosts(ctx, ids...)
}

// Record returns the record of the host with this ID or, if it is missing, with this name. NotFound. Conflict: several
// have the name.
func (f *Fleet) Record(ctx context.Context, idOrName string) (croft.Host, error) {
	if id, err := croft.ParseHostID(idOrName); err == nil {
		if one, err := f.Records(ctx, id); err != nil || len(one) == 1 {
			return one[id], err
		}
	}
	all, err := f.Records(ctx)
	if err != nil {
		return croft.Host{}, err
	}
	h, err := croft.HostCalled(maps.Values(all), idOrName)
	if errors.Is(err, croft.NotFound) {
		var names []string
		for _, h := range all {
			names = append(names, h.Name)
		}
		slices.Sort(names)
		return croft.Host{}, croft.Errorf(croft.NotFound, "%w%s", err, nearest.Hint(idOrName, names))
	}
	return h, err
}

// List returns all hosts by name, with overdue certificates among their problems. If Placement does not answer, claims
// are missing and err says why; the hosts are valid.
//
// One list is made at a time. Callers that wait for it share the next one, so they must not change it.
func (f *Fleet) List(ctx context.Context) ([]Host, error) {
	made, err := f.lists.Get(ctx, f.make)
	return made.hosts, errors.Join(err, made.lacks)
}

// listed is a list of hosts, and why it is incomplete.
type listed struct {
	hosts []Host
	lacks error
}

func (f *Fleet) make(ctx context.Context) (listed, error) {
	providers, noClaims := f.providers(ctx)
	all, _, err := f.list(ctx, providers)
	if err != nil || f.Overdue == nil {
		return listed{all, noClaims}, err
	}
	overdue, unknown := f.Overdue(ctx)
	for i := range all {
		if problem, is := overdue[all[i].ID]; is {
			all[i].Problems = append(all[i].Problems, problem)
		}
	}
	return listed{all, errors.Join(noClaims, unknown)}, nil
}

// claimsTime limits how long a list of hosts waits for Placement, because it has the rest without it.
const claimsTime = 5 * time.Second

// providers reads all resource providers. Unavailable: Placement does not answer within claimsTime.
func (f *Fleet) providers(ctx context.Context) ([]croft.Provider, error) {
	return inTime(ctx, f.Claims.Providers)
}

// inTime reads from Placement. Unavailable: it does not answer within claimsTime.
func inTime[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, claimsTime)
	defer cancel()
	got, err := read(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil && croft.KindOf(err) == "" {
		err = croft.Errorf(croft.Unavailable, "Placement does not answer within %s: %w",
			wording.Duration(claimsTime), err)
	}
	return got, err
}

// list is List with the given providers. It returns the instances of all hosts, too.
func (f *Fleet) list(ctx context.Context, providers []croft.Provider) ([]Host, []*croft.Status, error) {
	known, err := f.Hosts.Hosts(ctx)
	if err != nil {
		return nil, nil, err
	}
	instances, err := f.Instances.Overview(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	members, err := f.Members.EtcdMembers(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := make([]Host, 0, len(known))
	at := make(map[croft.HostID]*Host, len(known))
	for id, h := range known {
		all = append(all, Host{Host: h})
		at[id] = &all[len(all)-1]
	}
	for _, st := range instances {
		if h := at[st.Instance.Host]; h != nil {
			h.Count++
		}
	}
	for _, p := range providers {
		if h := at[p.ID]; h != nil {
			h.offers(p)
		}
	}
	all = inOrder(withMembers(all, members))
	shareNames(all)
	shareMachines(all)
	noteSilent(all)
	noteDeaths(all)
	compareClocks(all, time.Now())
	return all, instances, nil
}

// inOrder returns hosts by name.
func inOrder(all []Host) []Host {
	order := make([]int, len(all)) // a Host is large to move
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(all[a].Name, all[b].Name), cmp.Compare(all[a].ID, all[b].ID))
	})
	sorted := make([]Host, len(all))
	for i, at := range order {
		sorted[i] = all[at]
	}
	return sorted
}

// offers notes the inventory of a host, and the claims on it.
func (h *Host) offers(p croft.Provider) {
	h.Offered, h.Claimed, h.Traits = croft.Resources{}, croft.Resources{}, p.Traits
	for class, inv := range p.Inventories {
		h.Offered[class], h.Claimed[class] = inv.Capacity(), p.Used[class]
	}
}

// withMembers adds the roles of etcd members to the hosts. A member without a host record is joining, or was forgotten
// incompletely.
func withMembers(all []Host, members []croft.EtcdMember) []Host {
	onRecord := len(all)
	for _, m := range members {
		i := slices.IndexFunc(all, func(h Host) bool { return h.ID == m.Host })
		if i < 0 {
			i = len(all)
			all = append(all, aloneHost(m))
		}
		all[i].Etcd = m.Role
		switch m.Role {
		case croft.MemberSilent:
			all[i].Problems = append(all[i].Problems,
				"its etcd does not answer: bring it back, or forget the host, before another one is lost")
		case croft.MemberLearns:
			all[i].Problems = append(all[i].Problems, "its etcd does not vote yet: it is catching up with the others")
		case croft.MemberMissing:
			if i >= onRecord && !m.Alone {
				continue // reported already
			}
			all[i].Problems = append(all[i].Problems, "the others do not know its etcd: "+takeUp(all[i])+
				", or forget it")
		}
	}
	return all
}

// takeUp says how to rejoin the etcd server of a host that the other members do not know. The host itself keeps running
// without it; this happens after etcd was restored elsewhere.
func takeUp(h Host) string {
	if h.Alive {
		return "let it join again with croft up --join - --etcd-member"
	}
	return "start croft up on it"
}

// aloneHost returns a machine that serves etcd and is not a host, or is no longer one.
func aloneHost(m croft.EtcdMember) Host {
	h := Host{Host: croft.Host{ID: m.Host, Name: m.Name, Alive: m.Role == croft.MemberLeads ||
		m.Role == croft.MemberFollows}}
	if !m.Alone {
		h.Alive, h.Problems = false,
			[]string{
				"its etcd is on record and the host is not: it has not finished joining (start croft up there again), or was forgotten in part (run croft host remove again)",
			}
	}
	return h
}

// shareNames adds a problem to hosts that share a name; all must be sorted by name.
func shareNames(all []Host) {
	for i := range all {
		other := i - 1
		if i == 0 || all[i-1].Name != all[i].Name {
			other = i + 1
		}
		if other < len(all) && all[other].Name == all[i].Name {
			all[i].Problems = append(all[i].Problems,
				fmt.Sprintf("host %s has the name %s too: give one of them another host.name, or forget the one "+
					"that no longer exists (croft host remove UUID); until then name them by "+
					"UUID", all[other].ID, all[i].Name))
		}
	}
}

// largeDifference is the minimum difference of clocks that is a problem.
const largeDifference = time.Minute

// compareClocks sets the difference between the clock of each host and now.
func compareClocks(all []Host, now time.Time) {
	for i := range all {
		d := all[i].Host.ClockDifference(now).Round(time.Second)
		all[i].ClockDifference = int64(d / time.Second)
		if d.Abs() < largeDifference {
			continue
		}
		direction := "ahead of"
		if d < 0 {
			direction = "behind"
		}
		all[i].Problems = append(all[i].Problems, fmt.Sprintf("its clock is at least %s %s the clock of the machine "+
			"that answers: set both, for example with chrony; from ten minutes on nothing expires",
			wording.Duration(d.Abs()), direction))
	}
}

// LargeClockDifference reports whether the difference of a host's clock is a problem.
func (h Host) LargeClockDifference() bool {
	return (time.Duration(h.ClockDifference) * time.Second).Abs() >= largeDifference
}

// shareMachines adds a note to hosts whose agents run on one machine. Simulated hosts do not count.
func shareMachines(all []Host) {
	on := map[string][]int{} // positions, by running system
	for i, h := range all {
		if h.Boot != "" && h.Alive && h.VirtType != "sim" {
			on[h.Boot] = append(on[h.Boot], i)
		}
	}
	for _, together := range on {
		for _, i := range together {
			for _, j := range together {
				if i == j {
					continue
				}
				all[i].Notes = append(
					all[i].Notes,
					fmt.Sprintf("its agent and that of host %s run on one machine: both offer "+
						"the machine's room unless the settings below offer divide it, and where they share a network, guests of "+
						"the agent that started second get their metadata on a disk and cannot report that they are ready",
						all[j].Name),
				)
			}
		}
	}
}

// noteSilent adds a note to silent hosts, which says what an operator can do about them.
func noteSilent(all []Host) {
	for i, h := range all {
		if h.Alive || h.Death != nil || h.Seen.IsZero() { // a server of etcd alone was never seen
			continue
		}
		note := fmt.Sprintf("it is silent: start its agent again; if it is gone for good, `croft host remove %s` forgets it",
			h.Name)
		if h.Count > 0 {
			note = fmt.Sprintf("it is silent, and its guests may still run: start its agent again; if it is off for good, "+
				"`croft host fence %s` with --off or --confirm-off declares it dead, so that its instances can run elsewhere",
				h.Name)
		}
		all[i].Notes = append(all[i].Notes, note)
	}
}

// noteDeaths adds a note to hosts that wait for an operator after a fence.
func noteDeaths(all []Host) {
	for i, h := range all {
		switch {
		case h.Death == nil:
		case !h.IsDead():
			all[i].Notes = append(all[i].Notes, fmt.Sprintf("its fence began at %s and is not finished: fence it again, or "+
				"take it back with `croft host fence %s --on`", h.Death.Begun.Format(time.RFC3339), h.Name))
		case h.Alive:
			all[i].Notes = append(all[i].Notes, fmt.Sprintf("it was declared dead and is back: `croft host leftover list %s` "+
				"shows what it kept, and `croft host fence %[1]s --on` takes it back", h.Name))
		}
	}
}

// Find returns the host with this UUID or name. NotFound. Conflict: several hosts have the name. If Placement does not
// answer, claims are missing and err says why; the host is valid.
func (f *Fleet) Find(ctx context.Context, idOrName string) (Host, error) {
	h, err := f.find(ctx, idOrName)
	if err != nil {
		return h, err
	}
	p, err := inTime(ctx, func(ctx context.Context) (croft.Provider, error) { return f.Claims.Provider(ctx, h.ID) })
	switch {
	case err == nil:
		h.offers(p)
	case errors.Is(err, croft.NotFound): // its agent has not made it yet
		err = nil
	}
	return h, err
}

// find is Find without claims, which only Placement knows.
func (f *Fleet) find(ctx context.Context, idOrName string) (Host, error) {
	all, instances, err := f.list(ctx, nil)
	if err != nil {
		return Host{}, err
	}
	h, err := among(all, idOrName)
	if err != nil {
		return h, err
	}
	var on []croft.InstanceID
	for _, st := range instances {
		if st.Instance.Host == h.ID {
			on = append(on, st.Instance.ID)
		}
	}
	h.Instances, err = f.Instances.Some(ctx, on)
	slices.SortStableFunc(h.Instances, func(a, b croft.Status) int {
		return a.Instance.Created.Compare(b.Instance.Created)
	})
	return h, err
}

// among returns the host with this UUID, else the host with this name. A host that is named with another host's UUID
// does not hide that host.
func among(all []Host, idOrName string) (Host, error) {
	records := func(yield func(croft.Host) bool) {
		for _, h := range all {
			if !yield(h.Host) {
				return
			}
		}
	}
	found, err := croft.HostCalled(records, idOrName)
	if errors.Is(err, croft.NotFound) {
		var known []string
		for _, h := range all {
			known = append(known, h.Name)
		}
		return Host{}, croft.Errorf(croft.NotFound, "there is no host %s; `croft host list` shows all%s", idOrName,
			nearest.Hint(idOrName, known))
	}
	if err != nil {
		return Host{}, err
	}
	return all[slices.IndexFunc(all, func(h Host) bool { return h.ID == found.ID })], nil
}

// Drain keeps new claims away from a host; its instances stay.
func (f *Fleet) Drain(ctx context.Context, idOrName string) (Host, error) {
	h, err := f.find(ctx, idOrName)
	if err == nil {
		err = f.Hosts.Drain(ctx, h.ID)
	}
	if err != nil {
		return h, fmt.Errorf("drain host %s: %w", idOrName, err)
	}
	return h, nil
}

// Enable allows new claims on a host again.
func (f *Fleet) Enable(ctx context.Context, idOrName string) (Host, error) {
	h, err := f.find(ctx, idOrName)
	if err == nil {
		err = f.Hosts.Enable(ctx, h.ID)
	}
	if err != nil {
		return h, fmt.Errorf("enable host %s: %w", idOrName, err)
	}
	return h, nil
}

// Accept lets a host be served from another machine or state directory than before. Conflict: the former agent is
// alive.
func (f *Fleet) Accept(ctx context.Context, idOrName string) (Host, error) {
	h, err := f.find(ctx, idOrName)
	if err == nil && h.Alive {
		err = croft.Errorf(croft.Conflict,
			"the agent that served it before is alive; stop that one for good first, with its guests")
	}
	if err == nil {
		err = f.Hosts.Accept(ctx, h.ID)
	}
	if err != nil {
		return h, fmt.Errorf("accept host %s: %w", idOrName, err)
	}
	return h, nil
}

// RemoveMember removes a host's server from etcd, if it has one; the host stays. Conflict: too few members
// would remain.
func (f *Fleet) RemoveMember(ctx context.Context, h Host) error {
	if err := f.Members.RemoveEtcdMember(ctx, h.ID); err != nil {
		return fmt.Errorf("take the etcd of host %s out: %w", h.Name, err)
	}
	if h.Etcd != "" {
		f.Log.Info("remove a host's member from etcd", "host", h.ID)
	}
	return nil
}

// Config configures a Fleet.
type Config struct {
	Partition croft.PartitionID // required: partition of the orders that it writes
	Hosts     Store             // required, like the following four
	Members   EtcdMembers
	Instances Instances
	Orders    Orders
	Claims    Claims

	Aggregates Aggregates // optional
	Distances  Distances  // optional
	Properties Properties // optional
	// Overdue describes the hosts whose certificates are overdue for renewal, one sentence each. Optional.
	Overdue func(context.Context) (map[croft.HostID]string, error)
	Volumes Volumes // optional; without it, there are no volumes
	Chooser Chooser // optional; without it, instances are moved as if no policy had chosen their hosts
	Power   Power   // optional; without it, operators switch hosts off themselves
	// optional; without it, no instance is recreated when its host is declared dead
	Recreator Recreator

	UndoTimeout time.Duration // timeout for undoing after a failure; 5 s by default
	Log         *slog.Logger  // discards by default
}

// Fleet is all hosts of a cloud. It keeps nothing between calls.
type Fleet struct {
	Config

	lists *share.Read[listed]
}

// New checks the config. It starts nothing.
func New(c Config) (*Fleet, error) {
	if c.Partition == "" || c.Hosts == nil || c.Members == nil || c.Instances == nil || c.Orders == nil ||
		c.Claims == nil {
		return nil, croft.Errorf(croft.Invalid, "hosts: Partition and all interfaces are required")
	}
	c.UndoTimeout = cmp.Or(c.UndoTimeout, 5*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Fleet{c, share.NewRead[listed]()}, nil
}

// order returns an instance's next order, for any host.
func (f *Fleet) order(inst croft.Instance, host croft.HostID, want croft.Want) croft.Order {
	return schedule.NewOrder(f.Partition, inst, host, want)
}

// Reorder writes an instance's next order for its host.
func (f *Fleet) Reorder(ctx context.Context, inst croft.Instance, want croft.Want) error {
	_, err := f.Instances.Reorder(ctx, inst, f.order(inst, inst.Host, want))
	return err
}
