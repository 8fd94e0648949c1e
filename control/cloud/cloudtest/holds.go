package cloudtest

import (
	"time"

	"croft"
	"croft/schedule"
)

// hold requests a claim of small that is held for an hour.
func (s *suite) hold(name string) (croft.Instance, error) {
	query, err := schedule.ParseQuery(small)
	s.must(err)
	d, err := s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: name, Query: query, Hold: time.Hour,
		Tags: map[string]string{"from": "hold"}})
	return d.Instance, err
}

func (s *suite) holds() {
	for _, name := range []string{"one", "two", "three"} {
		_, err := s.hold(name)
		s.must(err)
	}
	_, err := s.hold("four")
	s.is(err, croft.NoCapacity, "a hold too many")
	_, err = s.request("four")
	s.is(err, croft.NoCapacity, "an instance where all is held")
	_, err = s.hold("one")
	s.is(err, croft.Conflict, "a name that is held")
	st, err := s.Cloud.Instances.Find(s.ctx, croft.DefaultProject, "one")
	if left := time.Until(st.Instance.Expires); err != nil || st.Instance.State != croft.StateHeld || st.Order != nil ||
		schedule.Describe(&st) != "held" || left < 55*time.Minute || left > time.Hour {
		s.Errorf("held: %+v, ordered %+v, %v", st.Instance, st.Order, err)
	}

	_, err = s.Cloud.Holds.Use(s.ctx, croft.DefaultProject, "one", schedule.Use{})
	s.is(err, croft.Invalid, "a use without an image")
	used, err := s.Cloud.Holds.Use(s.ctx, croft.DefaultProject, "one",
		schedule.Use{Image: "/images/tiny.qcow2", Expires: 2 * time.Hour})
	s.must(err)
	s.must(s.Cloud.Instances.Wait(s.ctx, used, schedule.Running, nil))
	st, err = s.Cloud.Instances.Find(s.ctx, croft.DefaultProject, "one")
	if err != nil || st.Instance.ID != used.ID || st.Instance.Spec.Tags["from"] != "hold" ||
		time.Until(st.Instance.Expires) < time.Hour {
		s.Errorf("used: %+v, %v", st.Instance, err)
	}
	_, err = s.Cloud.Holds.Use(s.ctx, croft.DefaultProject, "one", schedule.Use{Image: "/images/tiny.qcow2"})
	s.is(err, croft.Conflict, "a second use")
	_, err = s.Cloud.Holds.ReleaseHold(s.ctx, croft.DefaultProject, "one")
	s.is(err, croft.Conflict, "the release of what was used")

	was, err := s.Cloud.Holds.ReleaseHold(s.ctx, croft.DefaultProject, "two")
	if err != nil || was.Name != "two" {
		s.Errorf("released %+v, %v", was, err)
	}
	d, err := s.Cloud.Changes.Destroy(s.ctx, croft.DefaultProject, "three", false)
	if err != nil || !d.Gone {
		s.Errorf("destroyed %+v, %v", d, err)
	}
	for _, name := range []string{"two", "nobody"} {
		_, err = s.Cloud.Holds.ReleaseHold(s.ctx, croft.DefaultProject, name)
		s.is(err, croft.NotFound, "the release of nothing")
		_, err = s.Cloud.Holds.Use(s.ctx, croft.DefaultProject, name, schedule.Use{Image: "/images/tiny.qcow2"})
		s.is(err, croft.NotFound, "the use of nothing")
	}
	_, err = s.request("two")
	s.must(err)
}
