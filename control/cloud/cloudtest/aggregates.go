package cloudtest

import (
	"errors"
	"slices"

	"croft"
	"croft/control/api"
	"croft/schedule"
	"croft/tenant/objects"
)

func aggregatesAreKept(s *suite) {
	found, err := s.Client.GetHost(s.ctx, api.HostNamed{ID: s.Host})
	s.must(err)
	host, g := found.ID, s.Client
	if list, err := g.ListAggregates(s.ctx); err != nil || len(list.Aggregates) != 0 {
		s.Errorf("there are none yet: got %+v, %v", list, err)
	}
	_, err = g.GetAggregate(s.ctx, api.AggregateNamed{Name: "ssd"})
	s.is(err, croft.NotFound, "an aggregate that there is not")
	ssd, err := g.CreateAggregate(s.ctx, api.NewAggregate{Name: "ssd", Note: "fast", Hosts: []string{string(host),
		s.Host}})
	s.must(err)
	if !slices.Equal(ssd.Hosts, []croft.HostID{host}) || ssd.Generation == 0 || ssd.Public {
		s.Errorf("made %+v", ssd)
	}
	_, err = g.CreateAggregate(s.ctx, api.NewAggregate{Name: "ssd"})
	s.is(err, croft.Conflict, "a name that is taken")
	_, err = g.CreateAggregate(s.ctx, api.NewAggregate{Name: "a/b"})
	s.is(err, croft.Invalid, "a name that is none")
	_, err = g.CreateAggregate(s.ctx, api.NewAggregate{Name: "gone", Hosts: []string{string(croft.NewHostID())}})
	s.is(err, croft.NotFound, "an aggregate of a host that there is not")
	_, err = g.CreateAggregate(s.ctx, api.NewAggregate{Name: "all"})
	s.must(err)

	query, err := schedule.ParseQuery(small + "&in=in:all,ssd")
	s.must(err)
	d, err := s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: "web", Query: in(query, "!all"),
		Image: "/images/tiny.qcow2"})
	if err != nil || !slices.Equal(d.Instance.Spec.In, []croft.Bound{"!all", "in:all,ssd"}) {
		s.Errorf("in an aggregate: got %v, %v", d.Instance.Spec.In, err)
	}
	_, err = s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: "db", Query: in(query, "all"),
		Image: "/images/tiny.qcow2"})
	s.is(err, croft.NoCapacity, "in an aggregate without hosts")
	if _, explained := errors.AsType[*schedule.Explanation](err); !explained {
		s.Errorf("why not is not explained: %v", err)
	}
	_, err = s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: "db", Query: in(query, "!hdd"),
		Image: "/images/tiny.qcow2"})
	s.is(err, croft.NotFound, "in an aggregate that there is not")

	_, err = s.change("", objects.Host, s.Host, property("tier", "gold"))
	s.must(err)
	query, err = schedule.ParseQuery(small + "&where=tier=gold")
	s.must(err)
	d, err = s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: "gold", Image: "/images/tiny.qcow2",
		Query: where(query, []string{"tier=tin"}, []string{"tag:old"})})
	if err != nil || !slices.Equal(d.Instance.Spec.Where, []string{"tier=gold", "tier=tin"}) ||
		!slices.Equal(d.Instance.Spec.WhereNot, []string{"tag:old"}) {
		s.Errorf("by properties: got %+v, %v", d.Instance.Spec, err)
	}
	_, err = s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: "tin", Image: "/images/tiny.qcow2",
		Query: where(query, nil, []string{"tier"})})
	s.is(err, croft.NoCapacity, "by properties that no host has")
	_, err = s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: "tin", Image: "/images/tiny.qcow2",
		Query: where(query, []string{"a$b"}, nil)})
	s.is(err, croft.Invalid, "by what is no filter")

	s.distances(query)
	public, old := true, ssd.Generation
	next, err := g.ChangeAggregate(s.ctx, api.AggregateChange{Name: "ssd", Public: &public, Base: &old})
	s.must(err)
	if !next.Public || next.Note != "fast" || !next.Has(host) || next.Generation <= old {
		s.Errorf("changed %+v", next)
	}
	_, err = g.ChangeAggregate(s.ctx, api.AggregateChange{Name: "ssd", RemoveHosts: []string{s.Host}, Base: &old})
	s.is(err, croft.Conflict, "a change of an older generation")
	s.is(g.RemoveAggregate(s.ctx, api.AggregateRemoval{Name: "ssd", Base: &old}), croft.Conflict,
		"a removal of an older generation")
	_, err = g.ChangeAggregate(s.ctx, api.AggregateChange{Name: "ssd", AddHosts: []string{"nobody"}})
	s.is(err, croft.NotFound, "a host that there is not")
	_, err = g.ChangeAggregate(s.ctx, api.AggregateChange{Name: "hdd", Public: &public})
	s.is(err, croft.NotFound, "a change of an aggregate that there is not")
	again, err := g.ChangeAggregate(s.ctx, api.AggregateChange{Name: "ssd", AddHosts: []string{s.Host}})
	if err != nil || again.Generation != next.Generation {
		s.Errorf("a host that is in it is added: got %+v, %v, want generation %d", again, err, next.Generation)
	}
	empty, err := g.ChangeAggregate(s.ctx, api.AggregateChange{Name: "ssd", RemoveHosts: []string{string(host)}})
	if err != nil || len(empty.Hosts) != 0 {
		s.Errorf("the host is removed: got %+v, %v", empty, err)
	}
	list, err := g.ListAggregates(s.ctx)
	if all := list.Aggregates; err != nil || len(all) != 2 || all[0].Name != "all" || all[1].Name != "ssd" {
		s.Errorf("listed %+v, %v", all, err)
	}
	s.must(g.RemoveAggregate(s.ctx, api.AggregateRemoval{Name: "ssd", Base: &empty.Generation}))
	s.is(g.RemoveAggregate(s.ctx, api.AggregateRemoval{Name: "ssd"}), croft.NotFound, "a removal for the second time")
	s.must(g.RemoveAggregate(s.ctx, api.AggregateRemoval{Name: "all"}))
}

// in adds bounds to a query.
func in(q schedule.Query, bounds ...croft.Bound) schedule.Query {
	q.In = slices.Concat(q.In, bounds)
	return q
}

// where adds filters of properties of hosts to a query.
func where(q schedule.Query, where, not []string) schedule.Query {
	q.Where, q.WhereNot = slices.Concat(q.Where, where), slices.Concat(q.WhereNot, not)
	return q
}
