package cloudtest

import (
	"time"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// hold requests a claim of small that is held for an hour.
func (s *suite) hold(name string) (api.Instance, error) {
	r := api.ClaimRequest{InstanceRequest: wanted(name).InstanceRequest, Hold: 3600}
	r.Tags = map[string]string{"from": "hold"}
	return s.Client.CreateClaim(s.ctx, r)
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
	held, err := s.find(croft.DefaultProject, "one")
	if left := time.Until(held.Expires); err != nil || held.State != string(croft.StateHeld) || held.Generation != 0 ||
		left < 55*time.Minute || left > time.Hour {
		s.Errorf("held: %+v, %v", held, err)
	}

	use := func(name, image string, expires int64) (api.Instance, error) {
		return s.Client.UseClaim(s.ctx, api.ClaimUse{InstanceChange: named(name), Image: image, Expires: expires})
	}
	release := func(name string) (api.Instance, error) {
		return s.Client.ReleaseClaim(s.ctx, named(name).InstanceNamed)
	}
	_, err = use("one", "", 0)
	s.is(err, croft.Invalid, "a use without an image")
	used, err := use("one", image, 2*3600)
	s.must(err)
	s.must(s.await(used, schedule.Running))
	now, err := s.find(croft.DefaultProject, "one")
	if err != nil || now.ID != used.ID || now.Tags["from"] != "hold" || time.Until(now.Expires) < time.Hour {
		s.Errorf("used: %+v, %v", now, err)
	}
	_, err = use("one", image, 0)
	s.is(err, croft.Conflict, "a second use")
	_, err = release("one")
	s.is(err, croft.Conflict, "the release of what was used")

	was, err := release("two")
	if err != nil || was.Name != "two" {
		s.Errorf("released %+v, %v", was, err)
	}
	was, err = s.destroy("three")
	if err != nil || !was.Gone {
		s.Errorf("destroyed %+v, %v", was, err)
	}
	for _, name := range []string{"two", "nobody"} {
		_, err = release(name)
		s.is(err, croft.NotFound, "the release of nothing")
		_, err = use(name, image, 0)
		s.is(err, croft.NotFound, "the use of nothing")
	}
	_, err = s.request("two")
	s.must(err)
}
