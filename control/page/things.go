package page

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/cluster"
	"croft/control/api"
	pools "croft/pool/api"
)

// thingList is what a list of the cloud's other things shows.
type thingList struct {
	Title  string
	Parts  []part
	Filter *logFilter // of the action log
}

// part is a table of a list.
type part struct {
	Title     string // empty: the title of the list
	Heads     []string
	Rows      []thing
	Empty     string // says what to do first
	Next      string // address of older entries
	Truncated bool   // there are more than the page reads
}

// thing is a row of a table: its cells after its name.
type thing struct {
	Name, Link string
	Cells      []any // a text, a time.Time, a word or a *croft.Progress
	Error      string
	Remove     string // address of the page that asks for a confirmation
}

// word is a state in one word.
type word string

// Is tells templates which kind of value a cell is.
func (p part) Is(cell any) string {
	switch cell.(type) {
	case time.Time:
		return "time"
	case word:
		return "state"
	case *croft.Progress:
		return "progress"
	}
	return "text"
}

// mostThings is how many things of a kind a list shows.
const mostThings = 1000

func (v *visit) in() api.InProject { return api.InProject{Project: v.project} }

func (v *visit) showThings(title string, parts ...part) error {
	return v.show(http.StatusOK, "things", title, thingList{Title: title, Parts: parts})
}

// removal returns the address of the page that removes a thing, for callers who may change something.
func (v *visit) removal(project croft.Project, kind, name string) string {
	if !v.mayChange() {
		return ""
	}
	return link(project, "/"+kind+"/"+url.PathEscape(name)+"/remove")
}

func (v *visit) listVolumes() error {
	list, err := v.client.ListVolumes(v.ctx, v.in(), api.Listing{Limit: mostThings})
	if err != nil {
		return err
	}
	p := part{Heads: []string{"State", "Size", "Instance", "Where", "Age"}, Truncated: list.Next != "",
		Empty: "A volume is a disk that outlives instances: croft volume create NAME 10G"}
	for _, one := range list.Volumes {
		p.Rows = append(p.Rows, thing{Name: one.Name, Error: one.Error,
			Remove: v.removal(one.Project, "volumes", one.Name), Cells: []any{word(one.State),
				fmt.Sprintf("%d GiB", one.SizeGB), one.InstanceName, cmp.Or(one.Storage, one.Host), one.Created}})
	}
	return v.showThings("Volumes", p)
}

func (v *visit) listImages() error {
	list, err := v.client.ListCatalogImages(v.ctx, v.in(), api.Listing{Limit: mostThings})
	if err != nil {
		return err
	}
	p := part{Heads: []string{"State", "Project", "Size", "Copies", "Login", "Age"}, Truncated: list.Next != "",
		Empty: "Instances start from images, also by URL. To keep one in the catalog: croft image add NAME URL"}
	for _, one := range list.Images {
		row := thing{Name: one.Name, Error: one.Error, Cells: []any{word(one.State), string(one.Project),
			bytesOf(one.SizeBytes), strconv.Itoa(one.Copies), one.User, one.Made}}
		if one.State == "pending" && one.Origin == "" { // it is uploaded
			named := api.CatalogImageNamed{InProject: v.in(), Name: one.Name}
			if up, err := v.client.GetImageUpload(v.ctx, named); err == nil {
				row.Cells[2] = &croft.Progress{Done: up.Offset, Total: up.SizeBytes}
			}
		}
		if one.Project == cmp.Or(v.project, v.caller.Project) || v.caller.Operator() {
			row.Remove = v.removal(one.Project, "images", one.Name)
		}
		p.Rows = append(p.Rows, row)
	}
	return v.showThings("Images", p)
}

func (v *visit) listBackups() error {
	list, err := v.client.ListBackups(v.ctx, v.in(), api.Listing{Limit: mostThings})
	if err != nil {
		return err
	}
	schedules, err := v.client.ListBackupSchedules(v.ctx, v.in())
	if err != nil {
		return err
	}
	overdue, err := v.client.ListUnprotected(v.ctx, api.OverdueFilter{InProject: v.in()})
	if err != nil {
		return err
	}
	all := part{Heads: []string{"State", "Instance", "Store", "Size", "Progress", "Age"}, Truncated: list.Next != "",
		Empty: "A backup outlives its instance: open an instance, and choose Make backup"}
	for _, one := range slices.Backward(list.Backups) {
		all.Rows = append(all.Rows, thing{Name: one.Name, Error: one.Error,
			Remove: v.removal(one.Project, "backups", one.Name), Cells: []any{word(one.State), one.InstanceName,
				one.Store, fmt.Sprintf("%d GiB", one.SizeGB), one.Progress, one.Created}})
	}
	late := part{Title: "Instances without a recent backup", Heads: []string{"Newest backup", "Schedule"},
		Empty: "None: every instance has a recent backup, or there is none"}
	for _, one := range overdue.Instances {
		row := thing{Name: one.Name, Link: link(one.Project, "/instances/"+string(one.Instance)), Error: one.Failed,
			Cells: []any{"none", cmp.Or(one.Schedule, "none")}}
		if one.Last != nil {
			row.Cells[0] = *one.Last
		}
		late.Rows = append(late.Rows, row)
	}
	due := part{Title: "Schedules", Heads: []string{"Instances", "Store", "Last run", "Next run"},
		Empty: "A schedule makes backups at times: croft backup schedule create NAME --at 03:00"}
	for _, one := range schedules.Schedules {
		which := cmp.Or(one.Instance, strings.Join(one.Labels, ", "), "all")
		last := any("never")
		if one.Last != nil {
			last = *one.Last
		}
		due.Rows = append(due.Rows, thing{Name: one.Name, Error: one.Error, Cells: []any{which, one.Store, last,
			one.Next.UTC().Format("2006-01-02 15:04 MST")}})
	}
	return v.showThings("Backups", all, late, due)
}

func (v *visit) listPools() error {
	list, err := v.client.ListPools(v.ctx, v.in(), api.Listing{Limit: mostThings})
	if err != nil {
		return err
	}
	tickets, err := v.client.ListTickets(v.ctx, api.TicketFilter{InProject: v.in(), Page: api.Page{Limit: 200}})
	if err != nil {
		return err
	}
	p := part{Heads: []string{"Mode", "Tags", "Up", "Ready", "Taken", "Changing", "Most", "Waiting"},
		Empty: "A pool keeps instances waiting for tickets: an operator makes it with a file of pools"}
	for _, one := range list.Pools {
		row := thing{Name: one.Name, Cells: []any{one.Mode, tagsOf(one), "–", "–", "–", "–", "–", "–"}}
		if s := one.Stock; s != nil {
			row.Error = s.LastError
			changing := s.Starting + s.Releasing + s.DeleteRequest + s.Deleting
			for n, count := range []int{s.Up, s.Ready, s.Taken, changing, s.Max, s.Waiting} {
				row.Cells[2+n] = strconv.Itoa(count)
			}
		}
		p.Rows = append(p.Rows, row)
	}
	t := part{Title: "Tickets", Heads: []string{"State", "Tags", "Has, or waits for", "Age"},
		Truncated: tickets.Next != "", Empty: "Nobody has a ticket: croft pool ticket open --tag TAG opens one"}
	for _, one := range tickets.Tickets {
		has := one.WaitsFor
		if one.Resource != nil {
			has = one.Resource.Name
		}
		row := thing{Name: strconv.FormatInt(one.ID, 10), Cells: []any{ticketState(one),
			strings.Join(one.Tags, ", "), cmp.Or(has, one.Reason), one.Opened}}
		if one.State == pools.TicketOpen {
			row.Remove = v.removal(v.project, "tickets", row.Name)
		}
		t.Rows = append(t.Rows, row)
	}
	return v.showThings("Pools", p, t)
}

func tagsOf(p pools.Pool) string {
	var all []string
	for _, t := range slices.Concat(p.Tags, p.OnDemand) {
		all = append(all, t.Name)
	}
	return strings.Join(all, ", ")
}

func ticketState(t pools.Ticket) word {
	switch {
	case t.Ready():
		return "ready"
	case t.Waiting():
		return "waiting"
	}
	return word(strings.ToLower(t.State))
}

func (v *visit) listClusters() error {
	list, err := v.client.ListClusters(v.ctx, api.ClusterFilter{InProject: v.in()})
	if err != nil {
		return err
	}
	p := part{Heads: []string{"State", "Appliance", "Site", "Members", "Ready", "Step", "Expires"},
		Empty: "A cluster is a group of instances that an appliance describes: croft cluster create NAME APPLIANCE"}
	for _, one := range list.Clusters {
		ready := 0
		for _, m := range one.Members {
			if m.State == cluster.MemberReady {
				ready++
			}
		}
		row := thing{Name: one.Name, Link: link(one.Project, "/clusters/"+string(one.ID)), Cells: []any{
			word(strings.ToLower(string(one.State))), one.Appliance, one.Site, strconv.Itoa(len(one.Members)),
			strconv.Itoa(ready), one.Step, any("never")}}
		if !one.Expires.IsZero() {
			row.Cells[6] = one.Expires.UTC().Format("2006-01-02 15:04 MST")
		}
		p.Rows = append(p.Rows, row)
	}
	return v.showThings("Clusters", p)
}

// clusterPage is what the page of a cluster shows.
type clusterPage struct {
	api.Cluster
	Events []cluster.Event
}

// Steps are the steps of the build of a member, for the picture.
func (clusterPage) Steps() []string { return []string{"asked", "booting", "set-up", "ready"} }

// Reached reports how many of the steps a member has reached.
func (d clusterPage) Reached(m cluster.Member) int {
	if m.State == cluster.MemberReady {
		return len(d.Steps())
	}
	return slices.Index(d.Steps(), m.Step) + 1
}

// X is the left end of the mark of a step in the picture.
func (clusterPage) X(step int) int { return 1 + 21*step }

func (v *visit) showCluster() error {
	named := api.ClusterNamed{InProject: v.in(), ID: v.r.PathValue("id")}
	c, err := v.client.GetCluster(v.ctx, api.ClusterAwaited{ClusterNamed: named})
	if err != nil {
		return err
	}
	v.project = c.Project
	d := clusterPage{Cluster: c}
	events, err := v.client.ListClusterEvents(v.ctx, named)
	if err != nil {
		return err
	}
	d.Events = events.Events
	slices.Reverse(d.Events)
	d.Events = d.Events[:min(len(d.Events), 100)]
	return v.show(http.StatusOK, "cluster", c.Name, d)
}

func (v *visit) listPeers() error {
	list, err := v.client.ListPartitions(v.ctx)
	if err != nil {
		return err
	}
	p := part{Heads: []string{"Kind", "Address", "Roles", "Imported", "Added"}}
	for _, one := range list.Partitions {
		row := thing{Name: one.Alias, Cells: []any{"import", "", "", "never", ""}}
		if one.Home {
			row.Cells[0] = "this cloud"
		}
		if one.Imported != nil {
			row.Cells[3] = one.Imported.At
		}
		if one.Peer != nil {
			row.Cells[0], row.Cells[1], row.Cells[4] = "peer", one.Peer.Endpoint, one.Peer.Added
			row.Cells[2] = strings.Trim(fmt.Sprint(one.Peer.Roles), "[]")
		}
		p.Rows = append(p.Rows, row)
	}
	return v.showThings("Peers", p)
}

// logFilter is the filter of the action log.
type logFilter struct{ Object, User, Since string }

func (v *visit) listActions() error {
	q := v.r.URL.Query()
	f := logFilter{Object: q.Get("object"), User: q.Get("user"), Since: q.Get("since")}
	in := api.LogFilter{InProject: v.in(), Object: f.Object, User: f.User, Since: f.Since, After: q.Get("after"),
		Limit: 100}
	if day, err := time.Parse(time.DateOnly, f.Since); err == nil {
		in.Since = day.Format(time.RFC3339)
	}
	log, err := v.client.ListActions(v.ctx, in)
	if err != nil {
		return err
	}
	p := part{Heads: []string{"Time (UTC)", "User", "Object", "Result", "Project"},
		Empty: "No action matches: the log has what was changed, not what was looked at"}
	for _, e := range log.Entries {
		object := strings.Trim(string(e.Object.Kind)+"/"+cmp.Or(e.Object.Name, e.Object.ID), "/")
		p.Rows = append(p.Rows, thing{Name: e.Operation, Cells: []any{e.Time.UTC().Format("2006-01-02 15:04:05"),
			e.User, object, e.Result, string(e.Project)}})
	}
	if log.Next != "" {
		p.Next = v.link("/log", "object", f.Object, "user", f.User, "since", f.Since, "after", log.Next)
	}
	return v.show(http.StatusOK, "things", "Log", thingList{Title: "Log", Parts: []part{p}, Filter: &f})
}

// policyPage is what the page of the policies shows.
type policyPage struct {
	Policies   []croft.CrushPolicy
	Operator   bool
	Name, Text string // as typed
	Version    string
	Tried      bool
	Hints      []string
	Says, Kind string
}

func (v *visit) listPolicies() error {
	d := policyPage{Name: v.r.URL.Query().Get("name")}
	if d.Name != "" {
		p, err := v.client.GetPolicy(v.ctx, api.PolicyNamed{Name: d.Name})
		if err != nil {
			return err
		}
		d.Text, d.Version = p.Text, strconv.FormatInt(p.Generation, 10)
	}
	return v.showPolicies(http.StatusOK, d)
}

func (v *visit) showPolicies(status int, d policyPage) error {
	list, err := v.client.ListPolicies(v.ctx, api.Listing{Limit: mostThings})
	if err != nil {
		return err
	}
	d.Policies, d.Operator = list.Policies, v.caller.Operator()
	return v.show(status, "policies", "Policies", d)
}

// changePolicy tries a policy on the tree of hosts, or stores it.
func (v *visit) changePolicy() error {
	f := v.r.PostForm
	d := policyPage{Name: strings.TrimSpace(f.Get("name")), Version: f.Get("version"),
		Text: strings.ReplaceAll(f.Get("text"), "\r\n", "\n")}
	hints, err := v.client.CheckPolicy(v.ctx, api.PolicyCheck{Name: d.Name, Text: d.Text})
	d.Tried, d.Hints = err == nil, hints.Hints
	if err == nil && f.Get("do") == "save" {
		var version int64
		if version, err = strconv.ParseInt(cmp.Or(d.Version, "0"), 10, 64); err != nil {
			return croft.Errorf(croft.Invalid, "the form does not say which version it changes: reload the page")
		}
		_, err = v.client.SetPolicy(v.ctx, api.PolicyText{Name: d.Name, Text: d.Text, Base: api.MatchOf(version)})
		if err == nil {
			return v.redirect("/policies", "name", d.Name, "done", "policy")
		}
	}
	if ended(err) {
		return err
	}
	if err != nil {
		fail := failureOf(v.r, err)
		d.Says, d.Kind = fail.Says, fail.Kind
		return v.showPolicies(fail.Status, d)
	}
	return v.showPolicies(http.StatusOK, d)
}

// kind is a kind of things that can be removed.
type kind struct {
	Title  string
	About  string
	Done   string
	list   string
	remove func(v *visit, name string) error
}

// kinds lists the kinds by the first part of their path.
func kinds() map[string]kind {
	return map[string]kind{
		"volumes": {"Remove volume", "The volume and everything on it are destroyed.",
			"The volume is being removed.", "/volumes", func(v *visit, name string) error {
				return v.client.RemoveVolume(v.ctx, api.VolumeNamed{InProject: v.in(), Name: name})
			}},
		"images": {"Remove image", "The image and its copies are destroyed. Instances that were made from it stay.",
			"The image is being removed.", "/images", func(v *visit, name string) error {
				return v.client.RemoveCatalogImage(v.ctx, api.CatalogImageNamed{InProject: v.in(), Name: name})
			}},
		"backups": {"Remove backup", "Its instance cannot be restored from it any more.",
			"The backup is being removed.", "/backups", func(v *visit, name string) error {
				return v.client.RemoveBackup(v.ctx, api.BackupNamed{InProject: v.in(), Name: name})
			}},
		"tickets": {"Close ticket", "Its resource goes back to the pool, and is cleaned or removed.",
			"The ticket is closed.", "/pools", func(v *visit, id string) error {
				_, err := v.client.CloseTicket(v.ctx, api.TicketNamed{InProject: v.in(), ID: id})
				return err
			}},
	}
}

// remove asks for a confirmation of a removal, and does it.
func (v *visit) remove() error {
	section, _, _ := strings.Cut(strings.TrimPrefix(v.r.URL.Path, Root+"/"), "/")
	k, known := kinds()[section]
	if !known {
		return croft.Errorf(croft.NotFound, "there is no such page")
	}
	name := v.r.PathValue("name")
	q := question{Title: k.Title, Name: name, About: k.About, Does: k.Title, Final: true, Word: name,
		Post: v.link("/" + section + "/" + url.PathEscape(name) + "/remove"), Back: v.link(k.list)}
	if v.r.Method != http.MethodPost {
		return v.askAbout(http.StatusOK, q)
	}
	if sure, err := v.answered(q); !sure {
		return err
	}
	if err := k.remove(v, name); err != nil {
		return v.refused(q, err)
	}
	return v.redirect(k.list, "done", "remove-"+section)
}
