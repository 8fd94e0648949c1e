package page

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/cluster"
	"croft/control/api"
	"croft/tenant/objects"
)

func (v *visit) sizes() ([]part, error) {
	list, err := v.client.ListSizes(v.ctx, api.Listing{Limit: mostThings})
	p := part{Heads: []string{"Resources", "Default"}, Deeds: v.deeds(v.project, nil, "sizes.new"),
		Empty: "Requests write amounts, or name a size: an operator creates one."}
	for _, one := range list.Sizes {
		p.Rows = append(p.Rows, thing{Name: one.Name, Cells: []any{amounts(one.Resources), yes(one.Default)},
			Deeds: v.deeds(v.project, []string{"name", one.Name}, "sizes.change", "sizes.remove")})
	}
	return []part{p}, err
}

func (v *visit) claims() ([]part, error) {
	list, err := v.client.ListClaims(v.ctx, api.ClaimFilter{InProject: v.in(), Page: api.Page{Limit: mostThings}})
	p := part{Heads: []string{"State", "Project", "Resources", "Age", "Until"}, Truncated: list.Next != "",
		Deeds: v.deeds(v.project, nil, "claims.new"),
		Empty: "A claim that is held keeps room for an instance to come: hold some."}
	for _, one := range list.Instances {
		row := thing{ID: string(one.ID), Name: one.Name, Link: link(one.Project, "/instances/"+string(one.ID)),
			Cells: []any{word(one.State), string(one.Project), amounts(one.Resources), one.Created, day(one.Expires)}}
		if one.State == string(croft.StateHeld) {
			row.Deeds = v.deeds(one.Project, []string{"id", string(one.ID)}, "claims.use", "claims.release")
		}
		p.Rows = append(p.Rows, row)
	}
	return []part{p}, err
}

// day shows when something ends.
func day(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04 MST")
}

func (v *visit) aggregates() ([]part, error) {
	list, err := v.client.ListAggregates(v.ctx, api.Listing{Limit: mostThings})
	if err != nil {
		return nil, err
	}
	p := part{Heads: []string{"Hosts", "For tenants", "Note"}, Deeds: v.deeds("", nil, "aggregates.new"),
		Empty: "An aggregate is a set of hosts with a name: an operator creates one."}
	for _, one := range list.Aggregates {
		p.Rows = append(p.Rows, thing{Name: one.Name, Deeds: v.deeds("", []string{"name", one.Name},
			"aggregates.change",
			"aggregates.remove"), Cells: []any{strconv.Itoa(len(one.Hosts)), yes(one.Public), one.Note}})
	}
	distances, err := v.client.ListDistances(v.ctx, api.Listing{Limit: mostThings})
	d := part{Title: "Distances", Heads: []string{"To", "Type", "Distance"},
		Deeds: v.deeds("", nil, "aggregates.distances.new"),
		Empty: "None is stated: distances follow from the locations of hosts."}
	for _, of := range distances.Types {
		for _, one := range of.Distances {
			a, b := string(one.A), string(one.B)
			d.Rows = append(d.Rows, thing{ID: strings.Join([]string{of.Type, a, b}, " "), Name: a,
				Cells: []any{b, of.Type, strconv.Itoa(one.Distance)}, Deeds: v.deeds("",
					[]string{"a", a, "b", b, "type", of.Type}, "aggregates.distances.between.remove")})
		}
	}
	return []part{p, d}, err
}

func (v *visit) capabilities() ([]part, error) {
	list, err := v.client.ListCapabilities(v.ctx, api.Listing{Limit: mostThings})
	p := part{Heads: []string{"Made by"}, Deeds: v.deeds("", nil, "capabilities.new"), Truncated: list.Next != "",
		Empty: "There is none yet."}
	slices.SortStableFunc(list.Capabilities, func(a, b api.Capability) int { // the own ones first
		return cmp.Compare(yes(b.Custom), yes(a.Custom))
	})
	for _, one := range list.Capabilities {
		row := thing{Name: string(one.Name), Cells: []any{"OpenStack's list"}}
		if one.Custom {
			row.Cells[0] = "this cloud"
			row.Deeds = v.deeds("", []string{"name", row.Name}, "capabilities.remove")
		}
		p.Rows = append(p.Rows, row)
	}
	return []part{p}, err
}

func (v *visit) definitions() ([]part, error) {
	p := part{Heads: []string{"Properties", "Others"}}
	for _, kind := range []objects.Kind{objects.Any, objects.Instance, objects.Image, objects.Host, objects.Group} {
		d, err := v.client.GetDefinition(v.ctx, api.DefinitionChosen{DefinitionNamed: api.DefinitionNamed{Kind: kind}})
		row := thing{Name: string(kind), Cells: []any{"no definition of its own", ""}}
		deeds := []string{"definitions.change"}
		switch {
		case err == nil:
			row.Cells = []any{strconv.Itoa(len(d.Properties)), string(d.Unknown)}
			deeds = append(deeds, "definitions.remove")
		case croft.KindOf(err) != croft.NotFound:
			return nil, err
		}
		if kind != objects.Any {
			deeds = append(deeds, "definitions.check")
		}
		row.Deeds = v.deeds("", []string{"kind", row.Name}, deeds...)
		p.Rows = append(p.Rows, row)
	}
	return []part{p}, nil
}

func (v *visit) invitations() ([]part, error) {
	list, err := v.client.ListInvitations(v.ctx, api.Listing{Limit: mostThings})
	p := part{Heads: []string{"For", "Note", "Age", "Expires"}, Deeds: v.deeds("", nil, "invitations.new"),
		Empty: "A machine joins the cloud with an invitation: make one."}
	for _, one := range list.Invitations {
		p.Rows = append(p.Rows, thing{Name: one.Name, Cells: []any{cmp.Or(string(one.Host), "a new host"), one.Note,
			one.Created, day(one.Expires)}, Deeds: v.deeds("", []string{"name", one.Name}, "invitations.revoke")})
	}
	return []part{p}, err
}

func (v *visit) peers() ([]part, error) {
	list, err := v.client.ListPartitions(v.ctx)
	if err != nil {
		return nil, err
	}
	p := part{Heads: []string{"Kind", "Address", "Roles", "Imported", "Added"},
		Deeds: v.deeds("", nil, "peers.new", "peers.card")}
	for _, one := range list.Partitions {
		row := thing{ID: string(one.ID), Name: one.Alias, Cells: []any{"import", "", "", "never", ""}}
		deeds := []string{}
		if one.Home {
			row.Cells[0] = "this cloud"
		}
		if one.Imported != nil {
			row.Cells[3] = one.Imported.At
			deeds = append(deeds, "peers.forget")
		}
		if one.Peer != nil {
			row.Cells[0], row.Cells[1], row.Cells[4] = "peer", one.Peer.Endpoint, one.Peer.Added
			row.Cells[2] = strings.Trim(fmt.Sprint(one.Peer.Roles), "[]")
			deeds = append(deeds, "peers.remove")
		}
		row.Deeds = v.deeds("", []string{"id", row.ID}, deeds...)
		p.Rows = append(p.Rows, row)
	}
	signers, err := v.client.ListSigners(v.ctx)
	k := part{Title: "Keys that sign for the peers", Heads: []string{"Host", "Address", "Age"},
		Empty: "No server has a key yet."}
	for _, one := range signers.Signers {
		k.Rows = append(k.Rows, thing{Name: string(one.Key), Cells: []any{one.Host, one.Endpoint, one.Since},
			Deeds: v.deeds("", []string{"id", string(one.Key)}, "peers.signers.retire")})
	}
	return []part{p, k}, err
}

// mostAppliances is the number of appliances whose implementations the page of the sites lists.
const mostAppliances = 50

// sites lists the sites, and what clusters are built of.
func (v *visit) sites() ([]part, error) {
	var sites api.SiteList
	var appliances api.ApplianceList
	var credentials api.CredentialList
	var images api.Catalog
	_, err := readAll([]reading{
		{name: "sites", required: true, read: func() (err error) {
			sites, err = v.client.ListSites(v.ctx, api.Listing{Limit: mostThings})
			return err
		}},
		{name: "appliances", required: true, read: func() (err error) {
			appliances, err = v.client.ListAppliances(v.ctx, v.in(), api.Listing{Limit: mostThings})
			return err
		}},
		{name: "credentials", required: true, read: func() (err error) {
			if v.mayChange() { // readers have none
				credentials, err = v.client.ListCredentials(v.ctx, api.CredentialFilter{InProject: v.in()})
			}
			return err
		}},
		{name: "images", required: true, read: func() (err error) {
			images, err = v.client.ListImages(v.ctx)
			return err
		}},
	})
	if err != nil {
		return nil, err
	}
	all := []part{v.siteTable(sites), v.applianceTable(appliances)}
	implementations, err := v.implementationTable(appliances)
	if err != nil {
		return nil, err
	}
	all = append(all, implementations)
	if v.mayChange() {
		all = append(all, v.credentialTable(credentials))
	}
	return append(all, v.siteImageTable(images)), nil
}

func (v *visit) siteTable(list api.SiteList) part {
	p := part{Heads: []string{"Type", "Health", "New clusters", "Priority", "Address"},
		Deeds: v.deeds(v.project, nil, "sites.new", "sites.seals"), Empty: "There are no sites."}
	for _, one := range list.Sites {
		health := word("ready")
		if !one.Health.OK {
			health = "unknown" // it was not asked yet
		}
		if one.Health.Error != "" {
			health = "unreachable"
		}
		deeds := []string{"sites.change", "sites.health", "sites.remove"}
		if one.Type == cluster.Local {
			deeds = []string{"sites.change"}
		}
		p.Rows = append(p.Rows, thing{Name: one.Name, Error: one.Health.Error, Cells: []any{string(one.Type), health,
			yes(one.Enabled),
			strconv.Itoa(one.Priority), one.AuthURL}, Deeds: v.deeds(v.project, []string{"name", one.Name}, deeds...)})
	}
	return p
}

// owns reports whether to offer changes of an appliance. The API decides.
func (v *visit) owns(a cluster.Appliance) bool {
	return v.caller.Operator() || a.Project != "" && a.Project == v.projectName()
}

func (v *visit) applianceTable(list api.ApplianceList) part {
	p := part{Title: "Appliances", Heads: []string{"Description", "Project", "For all", "Fewest slaves"},
		Deeds: v.deeds(v.project, nil, "sites.appliances.new"), Truncated: list.Next != "",
		Empty: "An appliance is the purpose of a cluster: create one, and say how a site builds it."}
	for _, one := range list.Appliances {
		row := thing{Name: one.Name, Cells: []any{one.Description, string(one.Project), yes(one.Public),
			strconv.Itoa(one.MinSlaves)}}
		if v.owns(one) {
			row.Deeds = v.deeds(v.project, []string{"name", one.Name}, "sites.appliances.implementations.new",
				"sites.appliances.change", "sites.appliances.remove")
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

func (v *visit) implementationTable(of api.ApplianceList) (part, error) {
	p := part{Title: "Implementations", Heads: []string{"Site", "Revision", "New clusters", "Age"},
		Empty: "No site builds an appliance yet."}
	shown := of.Appliances[:min(len(of.Appliances), mostAppliances)]
	p.Truncated = len(shown) < len(of.Appliances)
	lists, errs := make([]api.ImplementationList, len(shown)), make([]error, len(shown))
	each(len(shown), func(n int) {
		lists[n], errs[n] = v.client.ListImplementations(v.ctx, api.ApplianceNamed{InProject: v.in(),
			Name: shown[n].Name})
	})
	for n, list := range lists {
		if errs[n] != nil && croft.KindOf(errs[n]) != croft.NotFound { // it was removed meanwhile
			return p, errs[n]
		}
		for _, one := range list.Implementations {
			row := thing{ID: string(one.ID), Name: shown[n].Name, Cells: []any{one.Site, strconv.Itoa(one.Revision),
				yes(one.Enabled), one.Created}}
			if v.owns(shown[n]) {
				row.Deeds = v.deeds(v.project, []string{"name", shown[n].Name, "id", row.ID},
					"sites.appliances.implementations.change", "sites.appliances.implementations.remove")
			}
			p.Rows = append(p.Rows, row)
		}
	}
	return p, nil
}

func (v *visit) credentialTable(list api.CredentialList) part {
	p := part{Title: "My credentials", Heads: []string{"Site", "Kind", "Project there", "Accepted"},
		Deeds: v.deeds(v.project, nil, "sites.credentials.new"),
		Empty: "Sites besides local need a credential of yours: store one."}
	for _, one := range list.Credentials {
		row := thing{ID: string(one.ID), Name: one.Name, Error: one.LastError, Cells: []any{one.Site, string(one.Kind),
			cmp.Or(one.ProjectName, one.ProjectID), "never"}, Deeds: v.deeds(one.Project, []string{"id",
			string(one.ID)},
			"sites.credentials.change", "sites.credentials.remove")}
		if !one.VerifiedAt.IsZero() {
			row.Cells[3] = one.VerifiedAt
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

func (v *visit) siteImageTable(list api.Catalog) part {
	p := part{Title: "Images for sites", Heads: []string{"Format", "At the sites", "Progress"},
		Deeds: v.deeds(v.project, nil, "sites.images.new"), Empty: "Implementations need none, or an operator adds " +
			"them."}
	for _, one := range list.SiteImages {
		var where []string
		var on *croft.Progress
		for site, at := range one.On {
			where = append(where, fmt.Sprintf("%s: %s", site, strings.ToLower(string(at.State))))
			if at.Total > at.Done {
				on = &croft.Progress{Done: at.Done, Total: at.Total}
			}
		}
		slices.Sort(where)
		p.Rows = append(p.Rows, thing{Name: one.Name, Cells: []any{one.Format, strings.Join(where, ", "), on},
			Deeds: v.deeds(v.project, []string{"name", one.Name}, "sites.images.bring", "sites.images.remove")})
	}
	return p
}
