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

	request := wanted("web")
	request.Query, request.In = small+"&in=in:all,ssd", []string{"!all"}
	made, err := g.CreateInstance(s.ctx, request)
	if err != nil || !slices.Equal(made.In, []croft.Bound{"!all", "in:all,ssd"}) {
		s.Errorf("in an aggregate: got %v, %v", made.In, err)
	}
	request.Name, request.In = "db", []string{"all"}
	_, err = g.CreateInstance(s.ctx, request)
	s.is(err, croft.NoCapacity, "in an aggregate without hosts")
	if _, explained := errors.AsType[*schedule.Explanation](err); !explained {
		s.Errorf("why not is not explained: %v", err)
	}
	request.In = []string{"!hdd"}
	_, err = g.CreateInstance(s.ctx, request)
	s.is(err, croft.NotFound, "in an aggregate that there is not")

	_, err = s.change("", objects.Host, s.Host, property("tier", "gold"))
	s.must(err)
	request = wanted("gold")
	request.Query, request.Where, request.WhereNot = small+"&where=tier=gold", []string{"tier=tin"}, []string{"tag:old"}
	made, err = g.CreateInstance(s.ctx, request)
	if err != nil || !slices.Equal(made.Where, []string{"tier=gold", "tier=tin"}) ||
		!slices.Equal(made.WhereNot, []string{"tag:old"}) {
		s.Errorf("by properties: got %+v, %v", made, err)
	}
	request.Name, request.Where, request.WhereNot = "tin", nil, []string{"tier"}
	_, err = g.CreateInstance(s.ctx, request)
	s.is(err, croft.NoCapacity, "by properties that no host has")
	request.Where, request.WhereNot = []string{"a$b"}, nil
	_, err = g.CreateInstance(s.ctx, request)
	s.is(err, croft.Invalid, "by what is no filter")

	s.distances()
	public, old := true, ssd.Generation
	next, err := g.ChangeAggregate(s.ctx, api.AggregateChange{Name: "ssd", Public: &public, Base: api.MatchOf(old)})
	s.must(err)
	if !next.Public || next.Note != "fast" || !next.Has(host) || next.Generation <= old {
		s.Errorf("changed %+v", next)
	}
	_, err = g.ChangeAggregate(s.ctx, api.AggregateChange{Name: "ssd", RemoveHosts: []string{s.Host},
		Base: api.MatchOf(old)})
	s.is(err, croft.Conflict, "a change of an older generation")
	s.is(g.RemoveAggregate(s.ctx, api.AggregateRemoval{Name: "ssd", Base: api.MatchOf(old)}), croft.Conflict,
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
	s.must(g.RemoveAggregate(s.ctx, api.AggregateRemoval{Name: "ssd", Base: api.MatchOf(empty.Generation)}))
	s.is(g.RemoveAggregate(s.ctx, api.AggregateRemoval{Name: "ssd"}), croft.NotFound, "a removal for the second time")
	s.must(g.RemoveAggregate(s.ctx, api.AggregateRemoval{Name: "all"}))
}
