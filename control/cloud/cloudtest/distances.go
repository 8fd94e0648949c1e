package cloudtest

import (
	"croft"
	"croft/control/api"
	"fmt"
)

// distances states distances of the aggregates ssd, which contains the host, and all, which has no host.
func (s *suite) distances() {
	d := s.Client
	if list, err := d.ListDistances(s.ctx); err != nil || len(list.Types) != 0 {
		s.Errorf("there are none yet: got %+v, %v", list, err)
	}
	_, err := d.GetDistance(s.ctx, api.DistanceBetween{Type: "network", A: "all", B: s.Host})
	s.is(err, croft.NotFound, "the distance of a type that there is not")
	set, err := d.SetDistance(s.ctx, api.NewDistance{Type: "network", A: "ssd", B: "all", Distance: 5})
	s.must(err)
	first := set.Generation
	found, err := d.GetDistance(s.ctx, api.DistanceBetween{Type: "network", A: s.Host, B: "all"})
	if err != nil || found.Distance != 5 || !found.Stated || found.Type != "network" || found.B != "all" {
		s.Errorf("between the host, which is in the one aggregate, and the other: got %+v, %v", found, err)
	}
	set, err = d.SetDistance(s.ctx, api.NewDistance{Type: "network", A: "all", B: "ssd", Distance: 7,
		Base: api.MatchOf(first)})
	second := set.Generation
	if err != nil || second <= first {
		s.Errorf("stated again: got generation %d after %d, %v", second, first, err)
	}
	list, err := d.ListDistances(s.ctx)
	if all := list.Types; err != nil || len(all) != 1 || all[0].Generation != second ||
		len(all[0].Distances) != 1 || all[0].Distances[0] != (croft.Distance{A: "all", B: "ssd", Distance: 7}) {
		s.Errorf("listed %+v, %v", all, err)
	}
	found, err = d.GetDistance(s.ctx, api.DistanceBetween{Type: croft.FailureDistance, A: s.Host, B: "ssd"})
	if err != nil || found.Distance != 0 || found.Stated {
		s.Errorf("between the host and its aggregate: got %+v, %v", found, err)
	}
	_, err = d.SetDistance(s.ctx, api.NewDistance{Type: "network", A: "all", B: "ssd", Distance: 9,
		Base: api.MatchOf(first)})
	s.is(err, croft.Conflict, "a distance of an older generation")
	removal := api.DistanceRemoval{DistanceBetween: api.DistanceBetween{Type: "network", A: "all", B: "ssd"},
		Base: api.MatchOf(first)}
	s.is(d.RemoveDistance(s.ctx, removal), croft.Conflict, "a removal of an older generation")
	_, err = d.SetDistance(s.ctx, api.NewDistance{Type: "network", A: "all", B: "nothing"})
	s.is(err, croft.NotFound, "a distance to nothing")
	_, err = d.SetDistance(s.ctx, api.NewDistance{Type: "network", A: s.Host, B: "ssd"})
	s.is(err, croft.Invalid, "a distance from a host to where it is")
	_, err = d.SetDistance(s.ctx, api.NewDistance{Type: "a b", A: "all", B: "ssd"})
	s.is(err, croft.Invalid, "a distance of what is no type")

	request := wanted("near")
	request.Query += "&where=tier=gold"
	request.Near, request.Far, request.Distance = []string{"all:7"}, []string{"all:7"}, "network"
	made, err := d.CreateInstance(s.ctx, request)
	if err != nil || len(made.Near) != 2 || !made.Near[1].Far || made.Near[0].Type != "network" {
		s.Errorf("near and far: got %+v, %v", made.Near, err)
	}
	request.Name = "far"
	for _, texts := range [][2][]string{{{"all:6"}, nil}, {nil, {"all:8"}}} {
		request.Near, request.Far = texts[0], texts[1]
		_, err = d.CreateInstance(s.ctx, request)
		s.is(err, croft.NoCapacity, fmt.Sprint("near and far ", texts))
	}
	removal.A, removal.B, removal.Base = "ssd", "all", api.MatchOf(second)
	s.must(d.RemoveDistance(s.ctx, removal))
	removal.Base = api.Match{}
	s.is(d.RemoveDistance(s.ctx, removal), croft.NotFound, "a removal for the second time")
}
