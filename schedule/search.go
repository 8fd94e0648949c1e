package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/internal/span"
	"croft/schedule/topology"
)

// search finds the possible hosts of an instance.
type search struct {
	*Scheduler
	inst    croft.Instance
	query   Query
	policy  *Policy
	disks   []croft.Volume          // to create on the host; with an ID: to move there, without their data
	hidden  []string                // keys of properties that the caller may not read
	dropped map[croft.HostID]string // why hosts that Placement proposed are dropped
	begun   time.Time
}

// snapshot is the data that a search chooses from.
type snapshot struct {
	reading    *candidateReader
	candidates []croft.Candidate // best first
	hosts      map[croft.HostID]croft.Host
	read       map[croft.HostID]bool      // hosts looked up so far
	seen       int                        // candidates that Placement returned, including dropped ones
	members    []croft.GroupMember        // of the instance's groups
	seats      []croft.Seat               // taken in them
	aggregates map[string]croft.Aggregate // aggregates that the bounds name
	filtered   croft.FilteredHosts
	measure    topology.Measure
	holders    map[croft.HostID]string // which other instance has the chosen address on a host
	line       []considered            // hosts in the order of a CRUSH policy; nil: the request has no such policy
	// positions in line of the hosts that may be taken; nil: the request has no CRUSH policy
	position map[croft.HostID]int
}

// look reads a snapshot. Unless it returns an error, the caller must end the reading.
func (s *search) look(ctx context.Context, limit int) (o *snapshot, err error) {
	o = &snapshot{reading: s.inFlight.read(), hosts: map[croft.HostID]croft.Host{}, read: map[croft.HostID]bool{}}
	ctx, end := span.Start(ctx, "candidates")
	defer func() {
		if err != nil {
			s.inFlight.done(o.reading)
		}
		end(err)
	}()
	if err = s.admitNetworks(ctx); err != nil {
		return o, err
	}
	if err = s.admitStorage(ctx); err != nil {
		return o, err
	}
	if err = s.readBounds(ctx, o); err != nil {
		return o, err
	}
	if err = s.readAddress(ctx, o); err != nil {
		return o, err
	}
	if s.inst.Spec.Policy != nil {
		err = s.readInOrder(ctx, o, limit)
	} else {
		o.candidates, o.seen, err = s.candidates(ctx, o, limit)
	}
	o.candidates = s.onStorage(o.candidates)
	if unknown := s.unknownNetwork(ctx, err); unknown != nil {
		err = unknown
	}
	if err != nil || len(o.candidates) == 0 {
		return o, err
	}
	if err = s.readMembers(ctx, o); err != nil {
		return o, err
	}
	if byLocation(s.inst.Spec) {
		if err = s.readHosts(ctx, o, hostsOf(o.candidates)); err != nil {
			return o, err
		}
	}
	o.candidates = s.rank(o)(o.candidates, nil)
	return o, s.readHosts(ctx, o, hostsOf(o.candidates[:min(batch, len(o.candidates))]))
}

// batch is the number of candidates whose hosts are read first. Nearly always one of them is taken, and reading the
// hosts of all candidates would be most of a request's reads.
const batch = 8

// readHosts reads hosts, except those already read. If locations matter, it also reads the hosts of the group members
// the first time.
func (s *search) readHosts(ctx context.Context, o *snapshot, ids []croft.HostID) error {
	if byLocation(s.inst.Spec) {
		for _, m := range o.members {
			ids = append(ids, m.Host)
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	ids = slices.DeleteFunc(ids, func(id croft.HostID) bool { return o.read[id] })
	if len(ids) == 0 {
		return nil
	}
	hosts, err := s.Registry.Hosts(ctx, ids...)
	if err != nil {
		return err
	}
	maps.Copy(o.hosts, hosts)
	for _, id := range ids {
		o.read[id] = true
	}
	return nil
}

func (s *search) readMembers(ctx context.Context, o *snapshot) error {
	o.members, o.seats = nil, nil
	for _, affinity := range s.inst.Spec.Affinities {
		members, seats, err := s.Groups.Members(ctx, s.inst.Project, affinity.Group)
		if err != nil {
			return err
		}
		o.members, o.seats = append(o.members, members...), append(o.seats, seats...)
	}
	return nil
}

func hostsOf(candidates []croft.Candidate) []croft.HostID {
	var ids []croft.HostID
	seen := map[croft.HostID]bool{}
	for _, c := range candidates {
		if id := hostOf(c); id != "" && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// usable removes the candidates on hosts that would not act on an order, recording why, and on hosts barred by the rule
// of a group. Conflict: a group has another rule.
func (s *search) usable(o *snapshot, candidates []croft.Candidate) ([]croft.Candidate, error) {
	var usable []croft.Candidate
	for _, c := range candidates {
		id := hostOf(c)
		host, known := o.hosts[id]
		if why := unusable(host, known); why != nil {
			s.dropped[id] = why.text
			continue
		}
		if s.inst.Backup != nil && host.BackupKey == "" {
			s.dropped[id] = "it cannot restore backups"
			continue
		}
		if cd := s.inst.Spec.ISO; (croft.InCatalog(s.inst.Spec.Image) || cd != nil && croft.InCatalog(cd.Image)) &&
			!host.Images {
			s.dropped[id] = "its croft is too old for images of the cloud's catalog"
			continue
		}
		if other := host.Runs(s.inst.Spec.Machine.Arch); other != nil {
			s.dropped[id] = other.Error()
			continue
		}
		if closed := s.connects(o, host); closed != nil {
			s.dropped[id] = closed.Error()
			continue
		}
		err := s.within(o, host)
		if mounts := s.mounts(host, c); err == nil && mounts != nil {
			s.dropped[id] = mounts.Error()
			continue
		}
		if err == nil {
			err = admit(s.inst.Spec, host, o.measure, o.members, o.seats)
		}
		switch {
		case errors.Is(err, croft.NoCapacity):
		case err != nil:
			return nil, fmt.Errorf("schedule %s: %w", s.inst.Name, err)
		default:
			usable = append(usable, c)
		}
	}
	return usable, nil
}

// rank returns a function that sorts candidates by what the groups prefer, then by distance, then by the policy.
func (s *search) rank(o *snapshot) func([]croft.Candidate, []croft.GroupMember) []croft.Candidate {
	return func(candidates []croft.Candidate, inFlight []croft.GroupMember) []croft.Candidate {
		ranked := s.policy.Order(candidates)
		if o.position != nil {
			slices.SortStableFunc(ranked, o.byPosition)
		}
		if spec := s.inst.Spec; len(spec.Affinities)+len(spec.Near) > 0 {
			wishes := map[croft.HostID]wish{}
			n := count(spec.Affinities, o.hosts, slices.Concat(o.members, inFlight))
			for _, id := range hostsOf(ranked) {
				wishes[id] = wishOf(spec, id, o.hosts, o.measure, n)
			}
			slices.SortStableFunc(ranked, func(x, y croft.Candidate) int {
				return wishes[hostOf(x)].compare(wishes[hostOf(y)])
			})
		}
		return ranked
	}
}

// noCapacity returns the error of a request that has no candidates left in its last snapshot. Conflict: another request
// got its address meanwhile.
func (s *search) noCapacity(ctx context.Context, last *snapshot) error {
	now := snapshot{aggregates: last.aggregates, filtered: last.filtered}
	if err := s.readAddress(ctx, &now); errors.Is(err, croft.Conflict) {
		return err
	}
	explanation, err := s.explain(ctx, nil)
	if err != nil {
		return croft.Errorf(croft.NoCapacity, "schedule %s: %s fits on no host (the reason cannot be read: %w)",
			s.inst.Name, s.query.Total(), err)
	}
	s.addTrace(explanation, last, nil)
	return croft.Errorf(croft.NoCapacity, "schedule %s: %w", s.inst.Name, explanation)
}

func (s *search) explain(ctx context.Context, fits []Fit) (*Explanation, error) {
	providers, err := s.providers.Get(ctx, s.Claims.Providers)
	if err != nil {
		return nil, err
	}
	hosts, err := s.allHosts(ctx)
	if err != nil {
		return nil, err
	}
	providers = visibleNetworks(providers, hosts, s.inst.Project)
	o := &snapshot{}
	if err := errors.Join(s.readMembers(ctx, o), s.readBounds(ctx, o), s.readHolders(ctx, o)); err != nil {
		return nil, err
	}
	chosen, err := s.chosen(ctx)
	if err != nil {
		return nil, err
	}
	query := s.query
	if s.wantsShared() {
		query = query.Without(croft.DiskGB)
	}
	explanation := Explain(Question{
		Query: query, Spec: s.inst.Spec, Volumes: s.inst.Volumes, Providers: providers, Hosts: hosts,
		Members: o.members, Seats: o.seats, Aggregates: o.aggregates, Filtered: o.filtered,
		Measure: o.measure, Fits: fits, Dropped: s.dropped, Chosen: chosen, Holders: o.holders,
		Stored: s.withoutStorage(providers, hosts),
	})
	explanation.Wanted = s.query.Total()
	explanation.Change = explanation.Change.withoutDisks(s.disks)
	return explanation, nil
}

// ranking returns the hosts of candidates in the order in which to try them.
func (s *search) ranking(o *snapshot, candidates []croft.Candidate) []Fit {
	var fits []Fit
	var last wish // of the previous fit
	n := count(s.inst.Spec.Affinities, o.hosts, o.members)
	seen := map[croft.HostID]bool{}
	for _, c := range s.rank(o)(slices.Clone(candidates), nil) {
		id := hostOf(c)
		if seen[id] {
			continue // a better candidate uses the same host
		}
		seen[id] = true
		fit := Fit{Host: cmp.Or(o.hosts[id].Name, string(id)), ID: id, Rank: len(fits) + 1, Free: max(freeAfter(c), 0)}
		strained := wishOf(s.inst.Spec, id, o.hosts, o.measure, n)
		if n := len(fits); n > 0 && o.position == nil && fits[n-1].Free == fit.Free && last == strained {
			fit.Rank = fits[n-1].Rank
		}
		fits, last = append(fits, fit), strained
	}
	return fits
}

// allHosts returns all hosts. Concurrent requests share one read.
func (s *Scheduler) allHosts(ctx context.Context) (map[croft.HostID]croft.Host, error) {
	return s.hosts.Get(ctx, func(ctx context.Context) (map[croft.HostID]croft.Host, error) {
		return s.Registry.Hosts(ctx)
	})
}

// bounded reports whether a request restricts hosts by data that Placement does not have.
func bounded(inst croft.Instance) bool {
	return len(inst.Spec.In) > 0 || inst.Spec.HasPropertyFilters() || len(inst.Volumes) > 0
}

// has returns NoCapacity if a volume of the request is on another host, or on shared storage that the host does not
// mount.
func has(volumes []croft.Volume, host croft.Host) error {
	for _, v := range volumes {
		_, mounted := host.Mounts(string(v.Storage))
		switch {
		case v.Storage == "" && v.Host != host.ID:
			return croft.Errorf(croft.NoCapacity, "does not have volume %s, which is on another host", v.Name)
		case v.Storage != "" && !mounted:
			return croft.Errorf(croft.NoCapacity, "does not mount the shared storage that has volume %s", v.Name)
		}
	}
	return nil
}

// within checks whether bounds and filters of the request admit a host. NoCapacity: they do not admit it.
func (s *search) within(o *snapshot, host croft.Host) error {
	err := cmp.Or(has(s.inst.Volumes, host), makes(s.disks, host), o.filtered.Admit(s.inst.Spec, host.ID))
	if err != nil {
		return err
	}
	return topology.AdmitBounds(s.inst.Spec.In, host, o.aggregates)
}

// readBounds reads the aggregates that the request names, the stated distances for its near and far locations, with the
// aggregates that those name, and, if the request has filters, the properties of hosts.
func (s *search) readBounds(ctx context.Context, o *snapshot) (err error) {
	if spec := s.inst.Spec; spec.HasPropertyFilters() {
		if o.filtered, err = s.Properties.FilterHosts(ctx, spec.Where, spec.WhereNot, s.hidden); err != nil {
			return err
		}
	}
	near := s.inst.Spec.Near
	stated, err := s.stated(ctx, near)
	if err != nil {
		return err
	}
	names := slices.Concat(croft.NamesIn(s.inst.Spec.In), topology.NamesOf(near, stated))
	if len(names) > 0 {
		slices.Sort(names)
		if o.aggregates, err = s.Aggregates.Named(ctx, slices.Compact(names)...); err != nil {
			return err
		}
	}
	var hosts map[croft.HostID]croft.Host
	if slices.ContainsFunc(near, func(n croft.Near) bool { return n.Aggregate && n.Type == "" }) {
		if hosts, err = s.allHosts(ctx); err != nil {
			return err
		}
	}
	o.measure = topology.NewMeasure(near, stated, o.aggregates, hosts)
	return nil
}

// mostNarrow is the maximum number of hosts that are queried one by one.
const mostNarrow = 64

// candidates returns candidates on hosts that the bounds admit, and how many candidates Placement returned.
//
// If the bounds admit only a few hosts, each is queried with in_tree: Placement returns a random part of all
// candidates, which would rarely include them. So Placement needs to know no aggregate, and locations are handled in
// the same way.
func (s *search) candidates(ctx context.Context, o *snapshot, limit int) ([]croft.Candidate, int, error) {
	if !bounded(s.inst) {
		all, err := s.Claims.Candidates(ctx, s.asked().Encode(), limit)
		return all, len(all), err
	}
	hosts, few, err := s.narrow(ctx, o)
	if err != nil {
		return nil, 0, err
	}
	if few && len(hosts) == 0 {
		return nil, 0, nil
	}
	if few {
		all, err := s.oneByOne(ctx, hosts)
		return all, 0, err
	}
	all, err := s.Claims.Candidates(ctx, s.asked().Encode(), limit)
	if err != nil {
		return nil, 0, err
	}
	seen := len(all)
	all, err = s.admitted(ctx, o, all)
	return all, seen, err
}

// narrow returns the hosts that the request may use, if its bounds leave only a few.
func (s *search) narrow(ctx context.Context, o *snapshot) (hosts []croft.HostID, few bool, err error) {
	bounds := s.inst.Spec.In
	at := s.query.anchor()
	if at < 0 || s.query.Groups[at].InTree != "" {
		return nil, false, nil
	}
	if local := croft.LocalVolumes(s.inst.Volumes); len(local) > 0 {
		return []croft.HostID{local[0].Host}, true, nil
	}
	if len(s.inst.Volumes) > 0 {
		all, err := s.allHosts(ctx)
		if err != nil {
			return nil, false, err
		}
		for id, h := range all {
			if s.within(o, h) == nil {
				hosts = append(hosts, id)
			}
		}
		return hosts, len(hosts) <= mostNarrow, nil
	}
	hosts, few = topology.Members(bounds, o.aggregates)
	if !few && len(s.inst.Spec.Where) > 0 {
		hosts, few = slices.Collect(maps.Keys(o.filtered.Wanted)), true
	}
	hosts = slices.DeleteFunc(hosts, func(id croft.HostID) bool { return o.filtered.Admit(s.inst.Spec, id) != nil })
	if (!few || len(hosts) > mostNarrow) && slices.ContainsFunc(bounds, o.byLocation) {
		all, err := s.allHosts(ctx)
		if err != nil {
			return nil, false, err
		}
		hosts, few = nil, true
		for id, h := range all {
			if s.within(o, h) == nil {
				hosts = append(hosts, id)
			}
		}
	}
	return hosts, few && len(hosts) <= mostNarrow, nil
}

// byLocation reports whether a bound requires a location.
func (o *snapshot) byLocation(b croft.Bound) bool { return !b.Not() && o.namesLocation(b) }

// namesLocation reports whether a bound has a name that is no aggregate.
func (o *snapshot) namesLocation(b croft.Bound) bool {
	return slices.ContainsFunc(b.Names(), func(name string) bool { _, is := o.aggregates[name]; return !is })
}

// oneByOne returns candidates on hosts, with a separate query for each host.
func (s *search) oneByOne(ctx context.Context, hosts []croft.HostID) ([]croft.Candidate, error) {
	const atOnce, ofOneHost = 8, 16
	found := make([][]croft.Candidate, len(hosts))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(atOnce)
	for i, host := range hosts {
		work.Go(func() (err error) {
			found[i], err = s.Claims.Candidates(ctx, s.asked().inTree(host).Encode(), ofOneHost)
			return err
		})
	}
	err := work.Wait()
	return slices.Concat(found...), err
}

// admitted returns the candidates on hosts that bounds and filters admit.
func (s *search) admitted(ctx context.Context, o *snapshot, all []croft.Candidate) ([]croft.Candidate, error) {
	if len(s.inst.Volumes) > 0 || slices.ContainsFunc(s.inst.Spec.In, o.namesLocation) {
		if err := s.readHosts(ctx, o, hostsOf(all)); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(c croft.Candidate) bool {
		host := o.hosts[hostOf(c)]
		host.ID = hostOf(c)
		return s.within(o, host) != nil
	}), nil
}
