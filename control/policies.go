package control

import (
	"errors"
	"net/http"

	"croft"
	"croft/control/actions"
	"croft/control/api"
)

func listPolicies(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Policies.List(ctx)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.PolicyList{Policies: all})
}

func getPolicy(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	p, err := c.Cloud.Policies.Find(ctx, c.r.PathValue("name"))
	if err != nil {
		return err
	}
	api.Tag(c.w.Header(), p.Generation)
	return c.answer(http.StatusOK, p)
}

func checkPolicy(c *call) error {
	var given api.PolicyCheck
	if err := c.body(&given); err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	hints, err := c.Cloud.Policies.Check(ctx, croft.CrushPolicy{Name: given.Name, Text: given.Text})
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.PolicyHints{Hints: hints})
}

func setPolicy(c *call) error {
	name := c.r.PathValue("name")
	c.action.about("", actions.PolicyNamed(name))
	var given api.PolicyText
	if err := c.body(&given); err != nil {
		return err
	}
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	p, err := c.Cloud.Policies.Set(ctx, croft.CrushPolicy{Name: name, Text: given.Text}, base)
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	if err != nil {
		return err
	}
	api.Tag(c.w.Header(), p.Generation)
	return c.answer(http.StatusOK, p)
}

func removePolicy(c *call) error {
	name := c.r.PathValue("name")
	c.action.about("", actions.PolicyNamed(name))
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	err = c.Cloud.Policies.Remove(ctx, name, base)
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	if err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// getStanding serves operators only, because the standing names hosts and the instances on them.
func getStanding(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	st, err := c.find(ctx)
	if err != nil {
		return err
	}
	found, err := c.Cloud.Policies.Standing(ctx, st.Instance.Project, string(st.Instance.ID))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, found)
}

func getCrushMap(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	m, err := c.Cloud.Policies.Map(ctx)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, m)
}
