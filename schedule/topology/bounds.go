package topology

import (
	"slices"

	"croft"
)

// Within reports whether a host is in the aggregate of this name or, if there is no such aggregate, in the location.
func Within(name string, host croft.Host, aggregates map[string]croft.Aggregate) bool {
	if a, there := aggregates[name]; there {
		return a.Has(host.ID)
	}
	location, err := Parse(name)
	if err != nil || location == (Path{}) {
		return false
	}
	at, err := Of(host)
	return err == nil && at.In(location)
}

// AdmitBounds checks whether bounds admit a host, given the aggregates that they name. NoCapacity: they do not admit
// it.
func AdmitBounds(all []croft.Bound, host croft.Host, aggregates map[string]croft.Aggregate) error {
	for _, b := range all {
		i := slices.IndexFunc(b.Names(), func(name string) bool { return Within(name, host, aggregates) })
		switch {
		case b.Not() && i >= 0:
			return croft.Errorf(croft.NoCapacity, "is in %s, where it is not to be", b.Names()[i])
		case !b.Not() && i < 0:
			return croft.Errorf(croft.NoCapacity, "is not %s", b)
		}
	}
	return nil
}

// Members returns the hosts to which bounds restrict an instance, considering only bounds that consist of aggregates;
// false: there is no such bound, so these bounds do not restrict it.
func Members(all []croft.Bound, aggregates map[string]croft.Aggregate) (hosts []croft.HostID, restricted bool) {
	for _, b := range all {
		var union []croft.HostID
		decides := !b.Not()
		for _, name := range b.Names() {
			a, there := aggregates[name]
			decides = decides && there
			union = append(union, a.Hosts...)
		}
		if !decides {
			continue
		}
		slices.Sort(union)
		union = slices.Compact(union)
		if restricted {
			union = slices.DeleteFunc(union, func(h croft.HostID) bool {
				_, both := slices.BinarySearch(hosts, h)
				return !both
			})
		}
		hosts, restricted = union, true
	}
	return slices.DeleteFunc(hosts, func(h croft.HostID) bool {
		return slices.ContainsFunc(all, func(b croft.Bound) bool {
			return b.Not() && slices.ContainsFunc(b.Names(), func(name string) bool { return aggregates[name].Has(h) })
		})
	}), restricted
}

// BasedOn returns the generations of the aggregates that bounds name. A name that is no aggregate gets 0, so that
// creating that aggregate is noticed.
func BasedOn(all []croft.Bound, aggregates map[string]croft.Aggregate) map[string]int64 {
	generations := map[string]int64{}
	for _, name := range croft.NamesIn(all) {
		if croft.CheckAggregateName(name) == nil {
			generations[name] = aggregates[name].Generation
		}
	}
	return generations
}
