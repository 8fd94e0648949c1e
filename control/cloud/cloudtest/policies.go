package cloudtest

import (
	"strings"

	"croft"
	"croft/control/api"
)

func policiesAreKept(s *suite) {
	p := s.Client
	if list, err := p.ListPolicies(s.ctx); err != nil || len(list.Policies) != 0 {
		s.Errorf("there are none yet: got %+v, %v", list, err)
	}
	_, err := p.GetPolicy(s.ctx, api.PolicyNamed{Name: "any"})
	s.is(err, croft.NotFound, "a policy that there is not")
	_, err = p.GetPolicy(s.ctx, api.PolicyNamed{Name: "a/b"})
	s.is(err, croft.Invalid, "a name that is none")
	checked, err := p.CheckPolicy(s.ctx, api.PolicyCheck{Name: "any", Text: "select 1 row; take 1"})
	if err != nil || len(checked.Hints) != 1 {
		s.Errorf("checked: %q, %v", checked.Hints, err)
	}
	for text, kind := range map[string]croft.Kind{"tke 1": croft.Invalid, "use nowhere; take 1": croft.NotFound,
		"take -1": croft.Invalid} {
		_, err = p.CheckPolicy(s.ctx, api.PolicyCheck{Name: "any", Text: text})
		s.is(err, kind, "check "+text)
		_, err = p.SetPolicy(s.ctx, api.PolicyText{Name: "any", Text: text})
		s.is(err, kind, "set "+text)
	}
	none := int64(0)
	first, err := p.SetPolicy(s.ctx, api.PolicyText{Name: "any", Text: "select 1 rack; take 1",
		Base: api.MatchOf(none)})
	s.must(err)
	_, err = p.SetPolicy(s.ctx, api.PolicyText{Name: "any", Text: "take 1", Base: api.MatchOf(none)})
	s.is(err, croft.Conflict, "a policy that is there")
	if found, err := p.GetPolicy(s.ctx, api.PolicyNamed{Name: "any"}); err != nil || found != first ||
		first.Generation == 0 {
		s.Errorf("found %+v, %v; want %+v", found, err, first)
	}

	request := wanted("drawn")
	request.Policy = "crush:any"
	why, err := p.ExplainRequest(s.ctx, api.Candidates{InstanceRequest: request.InstanceRequest})
	if err != nil || why.Policy == nil || *why.Policy != first || len(why.Trace) == 0 || why.Trace[0].Host != s.Host {
		s.Errorf("explained: %+v, %v", why, err)
	}
	drawn, err := p.CreateInstance(s.ctx, request)
	if err != nil || drawn.Policy != "crush:any" || drawn.PolicyGeneration != first.Generation {
		s.Errorf("requested: %+v, %v", drawn, err)
	}
	request.Name, request.Policy = "other", "crush:none"
	_, err = p.CreateInstance(s.ctx, request)
	s.is(err, croft.NotFound, "a request by a policy that there is not")
	standing, err := p.GetStanding(s.ctx, api.InstanceNamed{ID: "drawn"})
	if err != nil || !standing.Stands || standing.Host != s.Host || standing.Used != first {
		s.Errorf("standing: %+v, %v", standing, err)
	}
	_, err = p.GetStanding(s.ctx, api.InstanceNamed{ID: "nobody"})
	s.is(err, croft.NotFound, "the standing of nobody")
	m, err := p.GetCrushMap(s.ctx)
	if err != nil || !strings.Contains(m.Text, "rule any {") || m.Out == nil {
		s.Errorf("the map: %+v, %v", m, err)
	}
	s.is(p.RemovePolicy(s.ctx, api.PolicyRemoval{Name: "any", Base: api.MatchOf(none)}), croft.Conflict,
		"a removal of another generation")
	s.must(p.RemovePolicy(s.ctx, api.PolicyRemoval{Name: "any", Base: api.MatchOf(first.Generation)}))
	s.is(p.RemovePolicy(s.ctx, api.PolicyRemoval{Name: "any"}), croft.NotFound, "a removal for the second time")
	standing, err = p.GetStanding(s.ctx, api.InstanceNamed{ID: "drawn"})
	if err != nil || standing.Now != nil || !standing.Stands {
		s.Errorf("standing without the policy: %+v, %v", standing, err)
	}
	_, err = s.destroy("drawn")
	s.must(err)
}
