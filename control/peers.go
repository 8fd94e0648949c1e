package control

import (
	"context"

	"croft"
	"croft/control/api"
	"croft/control/federation"
)

// listMappings lists which projects of peers have their members in a project. Users of a peer see only mappings of
// their own peer.
func listMappings(ctx context.Context, c *call, _ api.ProjectNamed) (api.MappingList, error) {
	list := api.MappingList{Mappings: []federation.Mapping{}}
	all, err := c.Cloud.Federation.Mappings(ctx, c.project)
	for _, m := range all {
		if c.caller.Peer == "" || c.caller.Peer == m.Peer {
			list.Mappings = append(list.Mappings, m)
		}
	}
	return list, err
}

// mayMap lets operators map any peer, and users of a peer their own one in the projects that they administer. Other
// callers get the same error whether or not a peer exists.
func mayMap(ctx context.Context, c *call, m federation.Mapping) (federation.Mapping, error) {
	switch {
	case c.caller.Operator():
		return m, nil
	case c.caller.Peer == "":
		return m, api.NewProblem(api.ForbiddenVerb,
			"only operators, and the users of another cloud themselves, say which of its projects have members here")
	}
	own, err := c.Cloud.Federation.Find(ctx, string(c.caller.Peer))
	if err != nil {
		return m, err
	}
	if m.Peer != own.ID && string(m.Peer) != own.Alias {
		return m, api.NewProblem(api.ForbiddenVerb, "users of another cloud map projects of that one alone, which is "+
			own.Alias+" here")
	}
	m.Peer = own.ID
	return m, nil
}

func setMapping(ctx context.Context, c *call, in api.NewMapping) (federation.Mapping, error) {
	m, err := mayMap(ctx, c, federation.Mapping{Project: c.project, Peer: in.Peer, Theirs: in.Theirs,
		TheirsID: in.TheirsID, Role: in.Role})
	if err != nil {
		return m, err
	}
	if !c.caller.Operator() { // tenants of that cloud may not map other projects of it
		if m.Theirs != c.caller.PeerProject || m.TheirsID != "" && m.TheirsID != c.caller.PeerProjectID {
			return m, api.NewProblem(api.ForbiddenVerb, "users of another cloud map the project alone for which they ask, "+
				"which is "+string(c.caller.PeerProject)+": have somebody of the other project, or an operator, do it")
		}
		m.TheirsID = c.caller.PeerProjectID
	}
	m, err = c.Cloud.Federation.Map(ctx, m)
	if croft.KindOf(err) == croft.Conflict && !c.caller.Operator() { // the other project may be secret
		err = api.NewProblem(api.InUse, "that project of your cloud has its members in a project here already")
	}
	return m, err
}

func removeMapping(ctx context.Context, c *call, in api.MappingNamed) (nothing, error) {
	m, err := mayMap(ctx, c, federation.Mapping{Project: c.project, Peer: in.Peer, Theirs: in.Theirs})
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, c.Cloud.Federation.Unmap(ctx, m)
}
