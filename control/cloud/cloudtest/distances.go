package cloudtest

import (
	"croft"
	"croft/schedule"
)

// distances states distances of the aggregates ssd, which contains the host, and all, which has no host.
func (s *suite) distances(query schedule.Query) {
	d := s.Cloud.Distances
	if all, err := d.List(s.ctx); err != nil || len(all) != 0 {
		s.Errorf("there are none yet: got %+v, %v", all, err)
	}
	_, err := d.Between(s.ctx, "network", "all", s.Host)
	s.is(err, croft.NotFound, "the distance of a type that there is not")
	first, err := d.Set(s.ctx, "network", croft.Distance{A: "ssd", B: "all", Distance: 5}, nil)
	s.must(err)
	found, err := d.Between(s.ctx, "network", s.Host, "all")
	if err != nil || found.Distance != 5 || !found.Stated || found.Type != "network" || found.B != "all" {
		s.Errorf("between the host, which is in the one aggregate, and the other: got %+v, %v", found, err)
	}
	second, err := d.Set(s.ctx, "network", croft.Distance{A: "all", B: "ssd", Distance: 7}, &first)
	if err != nil || second <= first {
		s.Errorf("stated again: got generation %d after %d, %v", second, first, err)
	}
	if all, err := d.List(s.ctx); err != nil || len(all) != 1 || all[0].Generation != second ||
		len(all[0].Distances) != 1 || all[0].Distances[0] != (croft.Distance{A: "all", B: "ssd", Distance: 7}) {
		s.Errorf("listed %+v, %v", all, err)
	}
	found, err = d.Between(s.ctx, croft.FailureDistance, s.Host, "ssd")
	if err != nil || found.Distance != 0 || found.Stated {
		s.Errorf("between the host and its aggregate: got %+v, %v", found, err)
	}
	_, err = d.Set(s.ctx, "network", croft.Distance{A: "all", B: "ssd", Distance: 9}, &first)
	s.is(err, croft.Conflict, "a distance of an older generation")
	s.is(d.Remove(s.ctx, "network", "all", "ssd", &first), croft.Conflict, "a removal of an older generation")
	_, err = d.Set(s.ctx, "network", croft.Distance{A: "all", B: "nothing"}, nil)
	s.is(err, croft.NotFound, "a distance to nothing")
	_, err = d.Set(s.ctx, "network", croft.Distance{A: s.Host, B: "ssd"}, nil)
	s.is(err, croft.Invalid, "a distance from a host to where it is")
	_, err = d.Set(s.ctx, "a b", croft.Distance{A: "all", B: "ssd"}, nil)
	s.is(err, croft.Invalid, "a distance of what is no type")

	near, err := croft.ParseNears([]string{"all:7"}, []string{"all:7"}, "network")
	s.must(err)
	made, err := s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: "near", Query: query,
		Image: "/images/tiny.qcow2", Near: near})
	if err != nil || len(made.Instance.Spec.Near) != 2 || !made.Instance.Spec.Near[1].Far ||
		made.Instance.Spec.Near[0].Type != "network" {
		s.Errorf("near and far: got %+v, %v", made.Instance.Spec.Near, err)
	}
	for _, texts := range [][2][]string{{{"all:6"}, nil}, {nil, {"all:8"}}} {
		near, err := croft.ParseNears(texts[0], texts[1], "network")
		s.must(err)
		_, err = s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: "far", Query: query,
			Image: "/images/tiny.qcow2", Near: near})
		s.is(err, croft.NoCapacity, "near "+near[0].String())
	}
	s.must(d.Remove(s.ctx, "network", "ssd", "all", &second))
	s.is(d.Remove(s.ctx, "network", "ssd", "all", nil), croft.NotFound, "a removal for the second time")
}
