package control

import (
	"context"
	"strings"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/schedule"
	"croft/tenant/access"
)

var policyOperations = noun{Tag: "policies", Object: actions.Policy,
	Description: "Policies by which CRUSH chooses hosts: the same UUID, policy and hosts give the same host, so " +
		"that anybody can compute it. Operators write them, and all callers read them and may name them in requests.",
	Operations: []Operation{
		list(Operation{ID: "listPolicies", At: "GET /v1/policies", May: access.EveryHuman, // all may choose by them
			Summary: "List the policies by which CRUSH chooses hosts"},
			func(ctx context.Context, c *call, _ nothing) (list api.PolicyList, err error) {
				list.Policies, err = c.Cloud.Policies.List(ctx)
				return list, err
			}),
		do(Operation{ID: "checkPolicy", At: "POST /v1/policies", May: access.Operates, // its errors reveal locations
			Summary: "Check whether a policy can choose hosts, and store nothing"},
			func(ctx context.Context, c *call, in api.PolicyCheck) (list api.PolicyHints, err error) {
				list.Hints, err = checkPolicy(ctx, c, croft.CrushPolicy{Name: in.Name, Text: in.Text})
				return list, err
			}),
		do(Operation{ID: "getPolicy", At: "GET /v1/policies/{name}", May: access.EveryHuman, Summary: "Get a policy"},
			func(ctx context.Context, c *call, in api.PolicyNamed) (croft.CrushPolicy, error) {
				return c.Cloud.Policies.Find(ctx, in.Name)
			}),
		do(Operation{ID: "setPolicy", At: "PUT /v1/policies/{name}", May: access.Operates,
			Summary:     "Store a policy, in place of the one of its name",
			Description: "It has to be able to choose hosts. Instances stay where they are.",
			Conflict:    api.GenerationMismatch},
			func(ctx context.Context, c *call, in api.PolicyText) (croft.CrushPolicy, error) {
				wanted := croft.CrushPolicy{Name: in.Name, Text: in.Text}
				if _, err := checkPolicy(ctx, c, wanted); err != nil {
					return wanted, err
				}
				base, err := policyBase(ctx, c, in.Name, in.Base)
				if err != nil {
					return wanted, err
				}
				return c.Cloud.Policies.Set(ctx, wanted, base)
			}),
		do(Operation{ID: "removePolicy", At: "DELETE /v1/policies/{name}", May: access.Operates,
			Summary: "Remove a policy; instances stay where they are", Conflict: api.GenerationMismatch},
			func(ctx context.Context, c *call, in api.PolicyRemoval) (nothing, error) {
				base, err := policyBase(ctx, c, in.Name, in.Base)
				if err != nil {
					return nothing{}, err
				}
				return nothing{}, c.Cloud.Policies.Remove(ctx, in.Name, base)
			}),
		do(Operation{ID: "getStanding", At: "GET /v1/instances/{id}/standing", May: access.Operates, // it reveals hosts
			Summary: "Explain whether an instance is on the host that its policy chooses, and why",
			Description: "The order of the hosts is computed again, from the instance's UUID, the policy as it is " +
				"now and the hosts as they are now."},
			func(ctx context.Context, c *call, _ api.InstanceNamed) (*schedule.Standing, error) {
				st, err := c.find(ctx)
				if err != nil {
					return nil, err
				}
				return c.Cloud.Scheduler.Standing(ctx, st.Instance.Project, string(st.Instance.ID))
			}),
		do(Operation{ID: "getCrushMap", At: "GET /v1/crush", May: access.Operates,
			Summary: "Get the CRUSH map of the hosts, with the policies as rules"},
			func(ctx context.Context, c *call, _ nothing) (api.CrushMap, error) {
				all, err := c.Cloud.Policies.List(ctx)
				if err != nil {
					return api.CrushMap{}, err
				}
				m, err := c.Cloud.Scheduler.CrushMap(ctx, time.Now())
				if err != nil {
					return api.CrushMap{}, err
				}
				var text strings.Builder
				err = m.WriteText(&text, all...)
				return api.CrushMap{Text: text.String(), Out: append([]int32{}, m.Out()...)}, err
			}),
	},
}

// checkPolicy reports whether a policy can choose hosts, and returns hints about parts that its author may not have
// intended, one sentence each. Invalid. NotFound: no host is in a location that the policy uses.
func checkPolicy(ctx context.Context, c *call, wanted croft.CrushPolicy) ([]string, error) {
	if err := wanted.Check(); err != nil {
		return nil, err
	}
	m, err := c.Cloud.Scheduler.CrushMap(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	compiled, err := m.Compile(wanted)
	if err != nil {
		return nil, err
	}
	return append([]string{}, compiled.Hints(wanted)...), nil
}

// policyBase returns the generation that a change of a policy has to find; nil: any.
func policyBase(ctx context.Context, c *call, name string, m api.Match) (*int64, error) {
	return base(m, func() (int64, error) {
		p, err := c.Cloud.Policies.Find(ctx, name)
		return p.Generation, err
	})
}
