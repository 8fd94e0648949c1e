package control

import (
	"errors"
	"net/http"
	"strings"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/federation"
)

func getCard(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	card, err := c.Cloud.Peers.Card(ctx, c.query.Get("name"), c.query.Get("endpoint"))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, card)
}

func addPeer(c *call) error {
	var given federation.NewPeer
	if err := c.body(&given); err != nil {
		return err
	}
	c.action.about("", actions.Object{Kind: "partition", ID: string(given.Card.Partition), Name: given.Alias})
	ctx, cancel := c.brief()
	defer cancel()
	p, err := c.Cloud.Peers.AddPeer(ctx, given)
	if errors.Is(err, federation.ErrOtherCard) {
		return api.NewProblem(api.UUIDReused, err.Error())
	}
	if croft.KindOf(err) == croft.Conflict {
		return api.NewProblem(api.NameTaken, err.Error())
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, p)
}

func removePeer(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	p, err := c.Cloud.Peers.RemovePeer(ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, p)
}

func listSigners(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Peers.Signers(ctx)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.SignerList{Signers: append([]federation.Signer{}, all...)})
}

func retireSigner(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	if strings.Contains(c.r.PathValue("id"), "/") {
		return api.Hidden("key", c.r.PathValue("id"))
	}
	if err := c.Cloud.Peers.RetireSigner(ctx, c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// listMappings lists which projects of peers have their members in a project. Users of a peer see only mappings of
// their own peer.
func listMappings(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Peers.Mappings(ctx, c.project)
	if err != nil {
		return err
	}
	list := api.MappingList{Mappings: []federation.Mapping{}}
	for _, m := range all {
		if c.caller.Peer == "" || c.caller.Peer == m.Peer {
			list.Mappings = append(list.Mappings, m)
		}
	}
	return c.answer(http.StatusOK, list)
}

// mayMap lets operators map any peer, and users of a peer their own one in the projects that they administer. Other
// callers get the same error whether or not a peer exists.
func mayMap(c *call, m federation.Mapping) (federation.Mapping, error) {
	switch {
	case c.caller.Operator():
		return m, nil
	case c.caller.Peer == "":
		return m, api.NewProblem(api.ForbiddenVerb,
			"only operators, and the users of another cloud themselves, say which of "+
				"its projects have members here")
	}
	ctx, cancel := c.brief()
	defer cancel()
	own, err := c.Cloud.Partitions.Find(ctx, string(c.caller.Peer))
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

func setMapping(c *call) error {
	var given api.NewMapping
	if err := c.body(&given); err != nil {
		return err
	}
	m, err := mayMap(c, federation.Mapping{Project: c.project, Peer: given.Peer, Theirs: given.Theirs,
		TheirsID: given.TheirsID, Role: given.Role})
	if err != nil {
		return err
	}
	if !c.caller.Operator() { // tenants of that cloud may not map other projects of it
		if m.Theirs != c.caller.PeerProject || m.TheirsID != "" && m.TheirsID != c.caller.PeerProjectID {
			return api.NewProblem(api.ForbiddenVerb, "users of another cloud map the project alone for which they ask, "+
				"which is "+string(c.caller.PeerProject)+": have somebody of the other project, or an operator, do it")
		}
		m.TheirsID = c.caller.PeerProjectID
	}
	ctx, cancel := c.brief()
	defer cancel()
	m, err = c.Cloud.Peers.Map(ctx, m)
	if croft.KindOf(err) == croft.Conflict {
		if !c.caller.Operator() { // the other project may be secret
			return api.NewProblem(api.InUse, "that project of your cloud has its members in a project here already")
		}
		return api.NewProblem(api.InUse, err.Error())
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, m)
}

func removeMapping(c *call) error {
	m, err := mayMap(c, federation.Mapping{Project: c.project, Peer: croft.PartitionID(c.r.PathValue("id")),
		Theirs: croft.Project(c.r.PathValue("theirs"))})
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	if err := c.Cloud.Peers.Unmap(ctx, m); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
