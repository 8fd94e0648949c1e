package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/cli/verb"
	"croft/control/api"
	"croft/tenant"
)

// check has the server check the requests for new instances, says which of them no host has room for now, and what
// quotas would refuse. Requests that differ only in their names are checked once. Invalid; NotFound; Denied; Conflict.
func (r *run) check(want document, have state, steps []step) error {
	checked := map[string]tenant.Amounts{}
	var errs []error
	for n, s := range steps {
		if s.request == nil {
			continue
		}
		in := api.Candidates{InProject: r.project(), InstanceRequest: checkable(*s.request, want, have)}
		nameless := in
		nameless.ID, nameless.Name = "", ""
		key, err := json.Marshal(nameless)
		if err != nil {
			return err
		}
		if amounts, is := checked[string(key)]; is {
			steps[n].more = s.more.Plus(amounts)
			continue
		}
		why, err := verb.Asked(r.ctx, r.ExplainRequest, in)
		switch {
		case errors.Is(err, croft.Unavailable) || r.ctx.Err() != nil:
			return err
		case err != nil:
			checked[string(key)] = nil
			errs = append(errs, fmt.Errorf("instance %s: %w", s.Name, err))
			continue
		case len(why.Fits) == 0:
			r.Say("instance %s has no room now: %v", s.Name, why)
		}
		amounts := tenant.Amounts{}
		for class, n := range why.Wanted {
			amounts[tenant.Measure(class)] = n
		}
		checked[string(key)], steps[n].more = amounts, s.more.Plus(amounts)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return r.checkQuota(steps)
}

// checkQuota says which step would be refused by a quota of the project, or of one above it that the caller may see.
func (r *run) checkQuota(steps []step) error {
	if !slices.ContainsFunc(steps, func(s step) bool { return len(s.more) > 0 }) {
		return nil
	}
	chain, defaults, err := r.accounts()
	if errors.Is(err, croft.NotFound) || errors.Is(err, croft.Denied) {
		return nil // the refusal of a change will say why
	}
	if err != nil {
		return err
	}
	for _, s := range steps {
		if err := tenant.Admit(chain, defaults, s.more); err != nil {
			r.Say("after the changes before it, %s %s would be refused: %v", s.Kind, s.Name, err)
			return nil // apply ends there
		}
		for n := range chain {
			chain[n].Used = chain[n].Used.Plus(s.more)
		}
	}
	return nil
}

// accounts returns the accounts of the project and of those above it, and the limits of projects without their own.
func (r *run) accounts() (chain []tenant.Account, defaults tenant.Limits, err error) {
	err = verb.Within(r.ctx, func(ctx context.Context) error {
		p, err := r.GetProject(ctx, api.ProjectNamed{Project: cmp.Or(r.Project, croft.DefaultProject)})
		if errors.Is(err, croft.NotFound) {
			p, err = tenant.Tenant{Name: cmp.Or(r.Project, croft.DefaultProject)}, nil
		}
		if err == nil {
			chain, defaults, err = r.QuotaChain(ctx, p)
		}
		for n, a := range chain {
			chain[n].Used = a.Used.Plus(a.Stored)
		}
		return err
	})
	return chain, defaults, err
}

// checkable returns a request without the parts that exist only once earlier changes of the plan are made: volumes that
// are free by then, and instances to be near to.
func checkable(request api.InstanceRequest, want document, have state) api.InstanceRequest {
	planned := func(near string) bool {
		name, _, _ := strings.Cut(near, ":")
		_, exists := have.instances[name]
		return want.names(name) && !exists
	}
	request.Near = slices.DeleteFunc(slices.Clone(request.Near), planned)
	request.Far = slices.DeleteFunc(slices.Clone(request.Far), planned)
	if len(request.Near)+len(request.Far) == 0 {
		request.Distance = ""
	}
	request.Volumes = slices.DeleteFunc(slices.Clone(request.Volumes), func(name string) bool {
		v, exists := have.volumes[name]
		return !exists || v.Instance != ""
	})
	return request
}
