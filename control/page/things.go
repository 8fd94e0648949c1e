package page

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/cluster"
	"croft/compute/backup"
	"croft/control"
	"croft/control/api"
	"croft/internal/wording"
	pools "croft/pool/api"
	"croft/tenant/access"
)

// thingList is what a list of the cloud's other things shows.
type thingList struct {
	Title  string
	Parts  []part
	Filter *logFilter // of the action log
	Follow string     // address of the stream of changes
}

// listing is a page with the things of one or more kinds.
type listing struct {
	Path, Title string
	About       string // what the page of all lists says
	May         access.Rule
	parts       func(*visit) ([]part, error)
	live        bool // its rows change while it is open
}

// listings lists the pages with things.
func listings() []listing {
	return []listing{
		{"volumes", "Volumes", "Disks that outlive instances.", access.Reads, (*visit).volumes, true},
		{"images", "Images", "What instances start from.", access.Reads, (*visit).images, true},
		{"backups", "Backups", "Backups, their schedules and stores.", access.Reads, (*visit).backups, true},
		{"pools", "Pools", "Warm instances, and the tickets that get them.", access.Reads, (*visit).pools, true},
		{"clusters", "Clusters", "Instances that sites build for appliances.", access.Reads, (*visit).clusters, true},
		{"sites", "Sites", "Sites, appliances, credentials and images of clusters.", access.Reads, (*visit).sites,
			true},
		{"sizes", "Sizes", "Named amounts for instances.", access.Reads, (*visit).sizes, false},
		{"claims", "Claims", "Resources that are held for instances to come.", access.Reads, (*visit).claims, false},
		{"aggregates", "Aggregates", "Hosts under a name, and the distances between places.", access.Reads,
			(*visit).aggregates, false},
		{"capabilities", "Capabilities", "What hosts offer and requests ask for.", access.Operates,
			(*visit).capabilities, false},
		{"definitions", "Definitions", "Which properties objects may have.", access.Operates, (*visit).definitions,
			false},
		{"invitations", "Invitations", "Tokens with which machines join as hosts.", access.Operates,
			(*visit).invitations, false},
		{"peers", "Peers", "Other clouds, and the keys that sign for them.", access.Operates, (*visit).peers, false},
	}
}

// show shows the page with the things.
func (l listing) show(v *visit) error {
	all, err := l.parts(v)
	if err != nil {
		return err
	}
	if len(all) > 0 && len(all[0].Deeds) > 0 {
		all[0].Deeds[0].Main = true
	}
	d := thingList{Title: l.Title, Parts: identified(all)}
	if l.live {
		rows, err := rowsOf(d.Parts)
		if err != nil {
			return err
		}
		d.Follow = v.link("/"+l.Path+"/events", "seen", markOf(rows))
	}
	return v.show(http.StatusOK, "things", l.Title, d)
}

// identified gives each row an ID that no other row of the page has.
func identified(all []part) []part {
	for n := range all {
		for i := range all[n].Rows {
			row := &all[n].Rows[i]
			row.Heads = all[n].Heads
			row.ID = cmp.Or(row.ID, row.Name)
			if len(all) > 1 {
				row.ID = strconv.Itoa(n) + "-" + row.ID
			}
		}
	}
	return all
}

// more shows the pages that the navigation does not have.
func (v *visit) more() error {
	p := part{Heads: []string{"What it has"}}
	for _, l := range listings() {
		if access.MayAnywhere(l.May, v.caller.Roles) {
			p.Rows = append(p.Rows, thing{Name: l.Title, Link: v.link("/" + l.Path), Cells: []any{l.About}})
		}
	}
	return v.show(http.StatusOK, "things", "More", thingList{Title: "More", Parts: identified([]part{p})})
}

// part is a table of a list.
type part struct {
	Title     string // empty: the title of the list
	Heads     []string
	Rows      []thing
	Empty     string // says what to do first
	Deeds     []deed
	Next      string // address of older entries
	Truncated bool   // there are more than the page reads
}

// thing is a row of a table: its cells after its name.
type thing struct {
	ID         string // unique in its table; by default the name
	Name, Link string
	Cells      []any // a text, a time.Time, a word or a *croft.Progress
	Error      string
	Deeds      []deed
	Heads      []string // of the table
}

// word is a state in one word.
type word string

// Is tells templates which kind of value a cell is.
func (t thing) Is(cell any) string {
	switch cell := cell.(type) {
	case time.Time:
		return "time"
	case word:
		return "state"
	case *croft.Progress:
		return "progress"
	case string:
		if cell == "" {
			return "none"
		}
	}
	return "text"
}

// mostThings is how many things of a kind a list shows.
const mostThings = 1000

func (v *visit) in() api.InProject { return api.InProject{Project: v.project} }

func (v *visit) volumes() ([]part, error) {
	list, err := v.client.ListVolumes(v.ctx, v.in(), api.Listing{Limit: mostThings})
	if err != nil {
		return nil, err
	}
	p := part{Heads: []string{"State", "Size", "Instance", "Where", "Age"}, Truncated: list.Next != "",
		Empty: "A volume is a disk that outlives instances: create one.", Deeds: v.deeds(v.project, nil, "volumes.new")}
	for _, one := range list.Volumes {
		deeds := []string{"volumes.attach", "volumes.grow", "volumes.remove"}
		if one.Instance != "" {
			deeds = []string{"volumes.detach", "volumes.grow"}
		}
		p.Rows = append(p.Rows, thing{ID: string(one.ID), Name: one.Name, Error: one.Error,
			Deeds: v.deeds(one.Project, []string{"name", one.Name}, deeds...), Cells: []any{word(one.State),
				fmt.Sprintf("%d GiB", one.SizeGB), one.InstanceName, cmp.Or(one.Storage, one.Host), one.Created}})
	}
	return []part{p}, nil
}

func (v *visit) images() ([]part, error) {
	list, err := v.client.ListCatalogImages(v.ctx, v.in(), api.Listing{Limit: mostThings})
	if err != nil {
		return nil, err
	}
	named, err := v.client.ListImages(v.ctx, api.Listing{Limit: mostThings})
	if err != nil {
		return nil, err
	}
	p := part{Heads: []string{"State", "Project", "Size", "Copies", "Login", "Age"}, Truncated: list.Next != "",
		Empty: "The hosts fetch an image when an instance needs it. Add one to keep copies of it.",
		Deeds: v.deeds(v.project, nil, "images.new")}
	for _, one := range list.Images {
		row := thing{ID: string(one.ID), Name: one.Name, Error: one.Error, Cells: []any{word(one.State),
			string(one.Project),
			bytesOf(one.SizeBytes), strconv.Itoa(one.Copies), one.User, one.Made}}
		if one.State == "pending" && one.Origin == "" { // it is uploaded
			named := api.CatalogImageNamed{InProject: v.in(), Name: one.Name}
			if up, err := v.client.GetImageUpload(v.ctx, named); err == nil {
				row.Cells[2] = &croft.Progress{Done: up.Offset, Total: up.SizeBytes}
			}
		}
		if one.Project == cmp.Or(v.project, v.caller.Project) || v.caller.Operator() {
			row.Deeds = v.deeds(one.Project, []string{"name", one.Name}, "images.change", "images.remove")
		}
		p.Rows = append(p.Rows, row)
	}
	fetched, err := v.fetchedImages()
	return []part{p, namedImages(named), fetched}, err
}

// fetchedImages lists the images that hosts fetch for instances, with the progress. Instances on one host wait for the
// same download. Tenants do not learn which instances are on one host: each has a row.
func (v *visit) fetchedImages() (part, error) {
	list, err := v.client.ListInstances(v.ctx, api.InstanceFilter{InProject: v.in(), Page: api.Page{Limit: mostFetched},
		Terms: api.Terms{State: []string{string(croft.StateFetching)}}})
	p := part{Title: "Being fetched", Heads: []string{"Host", "For", "Progress"}, Truncated: list.Next != "",
		Empty: "No host fetches an image for an instance at the moment."}
	rows, waiting := map[string]int{}, map[string]int{} // by the ID of the row
	for _, i := range list.Instances {
		if i.Image == "" || i.Backup != nil && i.Backup.State == api.Restoring {
			continue // its disks are restored
		}
		id := url.QueryEscape(i.Image) + "/" + cmp.Or(i.Host, string(i.ID))
		n, known := rows[id]
		if !known {
			n, rows[id] = len(p.Rows), len(p.Rows)
			p.Rows = append(p.Rows, thing{ID: id, Name: i.Image, Cells: []any{i.Host, i.Name, (*croft.Progress)(nil)}})
		}
		cells := p.Rows[n].Cells
		if waiting[id]++; waiting[id] > 1 {
			cells[1] = wording.Count(waiting[id], "instance")
		}
		if had := cells[2].(*croft.Progress); i.Progress != nil && (had == nil || i.Progress.Done > had.Done) {
			cells[2] = i.Progress
		}
	}
	return p, err
}

// mostFetched is how many instances that wait for an image the list of images reads.
const mostFetched = 500

// namedImages lists the images that requests may name and that hosts fetch from their publishers.
func namedImages(list api.Catalog) part {
	p := part{Title: "From their publishers", Heads: []string{"Description", "Login", "Verified by"},
		Truncated: list.Next != "", Empty: "No image has a name here: requests give URLs."}
	for _, one := range list.Images {
		about := one.Description
		if one.Alias != "" {
			about = "the same as " + one.Alias
		}
		if one.Arch != "" {
			about += ", " + string(one.Arch)
		}
		p.Rows = append(p.Rows, thing{Name: one.Name, Cells: []any{about, one.User, one.VerifiedBy}})
	}
	return p
}

func (v *visit) backups() ([]part, error) {
	list, err := v.client.ListBackups(v.ctx, v.in(), api.Listing{Limit: mostThings})
	if err != nil {
		return nil, err
	}
	schedules, err := v.client.ListBackupSchedules(v.ctx, v.in())
	if err != nil {
		return nil, err
	}
	overdue, err := v.client.ListUnprotected(v.ctx, api.OverdueFilter{InProject: v.in()})
	if err != nil {
		return nil, err
	}
	all := part{Heads: []string{"State", "Instance", "Store", "Size", "Progress", "Age"}, Truncated: list.Next != "",
		Empty: "A backup outlives its instance: open an instance, and choose Make backup."}
	for _, one := range slices.Backward(list.Backups) {
		deeds := []string{"backups.remove"}
		if one.State == backup.Ready {
			deeds = []string{"backups.restore", "backups.restore-in-place", "backups.check", "backups.remove"}
		}
		all.Rows = append(all.Rows, thing{ID: one.ID, Name: one.Name, Error: one.Error,
			Deeds: v.deeds(one.Project, []string{"name", one.Name}, deeds...), Cells: []any{word(one.State),
				one.InstanceName,
				one.Store, fmt.Sprintf("%d GiB", one.SizeGB), one.Progress, one.Created}})
	}
	late := part{Title: "Instances without a recent backup", Heads: []string{"Newest backup", "Schedule"},
		Empty: "None: every instance has a recent backup, or there is none."}
	for _, one := range overdue.Instances {
		row := thing{Name: one.Name, Link: link(one.Project, "/instances/"+string(one.Instance)), Error: one.Failed,
			Cells: []any{"none", cmp.Or(one.Schedule, "none")}}
		if one.Last != nil {
			row.Cells[0] = *one.Last
		}
		late.Rows = append(late.Rows, row)
	}
	due := part{Title: "Schedules", Heads: []string{"Instances", "Store", "Last run", "Next run"},
		Empty: "A schedule makes backups at times: create one.", Deeds: v.deeds(v.project, nil,
			"backups.schedules.new")}
	for _, one := range schedules.Schedules {
		which := cmp.Or(one.Instance, strings.Join(one.Labels, ", "), "all")
		last := any("never")
		if one.Last != nil {
			last = *one.Last
		}
		due.Rows = append(due.Rows, thing{ID: string(one.Project) + "/" + one.Name, Name: one.Name, Error: one.Error,
			Deeds: v.deeds(one.Project, []string{"name", one.Name}, "backups.schedules.remove"),
			Cells: []any{which, one.Store, last, one.Next.UTC().Format("2006-01-02 15:04 MST")}})
	}
	stores, err := v.backupStores()
	return []part{all, late, due, stores}, err
}

func (v *visit) backupStores() (part, error) {
	p := part{Title: "Stores", Heads: []string{"State", "Repository", "Projects", "Checked", "Free"},
		Empty: "A store keeps backups outside of the hosts: an operator adds one.",
		Deeds: v.deeds(v.project, nil, "backups.stores.new")}
	list, err := v.client.ListBackupStores(v.ctx, v.in(), api.Listing{Limit: mostThings})
	for _, one := range list.Stores {
		row := thing{Name: one.Name, Error: one.Error, Cells: []any{word(one.State), one.Repository, "all", "never",
			"–"},
			Deeds: v.deeds(v.project, []string{"name", one.Name}, "backups.stores.check", "backups.stores.remove")}
		if len(one.Projects) > 0 {
			row.Cells[2] = strings.Trim(fmt.Sprint(one.Projects), "[]")
		}
		if one.Checked != nil {
			row.Cells[3] = *one.Checked
		}
		if r := one.Room; r != nil {
			row.Cells[4] = bytesOf(r.Free) + " of " + bytesOf(r.Size)
		}
		p.Rows = append(p.Rows, row)
	}
	return p, err
}

func (v *visit) pools() ([]part, error) {
	list, err := v.client.ListPools(v.ctx, v.in(), api.Listing{Limit: mostThings})
	if none := control.ErrNoPools.Error(); err != nil && strings.Contains(err.Error(), none) {
		return []part{{Empty: "No manager of pools runs in this cloud, so it has no pools: an operator starts one " +
			"with croft serve pool and a file of pools.", Deeds: []deed{{Does: "How pools are made",
			Link: docsRoot + "/pools"}}}}, nil
	}
	if err != nil {
		return nil, err
	}
	tickets, err := v.client.ListTickets(v.ctx, api.TicketFilter{InProject: v.in(), Page: api.Page{Limit: 200}})
	if err != nil {
		return nil, err
	}
	p := part{Heads: []string{"Mode", "Tags", "Up", "Ready", "Taken", "Changing", "Most", "Waiting", "Start takes",
		"Starts"},
		Empty: "A pool keeps instances waiting for tickets: an operator makes it with a file of pools."}
	for _, one := range list.Pools {
		row := thing{Name: one.Name, Cells: []any{one.Mode, tagsOf(one), "–", "–", "–", "–", "–", "–", "–", "–"},
			Deeds: v.deeds(v.project, []string{"name", one.Name}, "pools.size")}
		if s := one.Stock; s != nil {
			row.Error = s.LastError
			changing := s.Starting + s.Releasing + s.DeleteRequest + s.Deleting
			for n, count := range []int{s.Up, s.Ready, s.Taken, changing, s.Max, s.Waiting} {
				row.Cells[2+n] = strconv.Itoa(count)
			}
			if !s.Stats.Succeeded.IsZero() {
				row.Cells[8] = wording.Exact(rounded(time.Duration(s.Stats.StartTime)))
			}
			if s.Stats.Starts > 0 {
				row.Cells[9] = fmt.Sprintf("%d, %d failed", s.Stats.Starts, s.Stats.Failures)
			}
		}
		p.Rows = append(p.Rows, row)
	}
	t := part{Title: "Tickets", Heads: []string{"State", "Tags", "Has, or waits for", "Age"},
		Truncated: tickets.Next != "", Empty: "No project has a ticket: open one.",
		Deeds: v.deeds(v.project, nil, "pools.tickets.new")}
	for _, one := range tickets.Tickets {
		has := one.WaitsFor
		if one.Resource != nil {
			has = one.Resource.Name
		}
		row := thing{Name: strconv.FormatInt(one.ID, 10), Cells: []any{ticketState(one),
			strings.Join(one.Tags, ", "), cmp.Or(has, one.Reason), one.Opened}}
		if one.State == pools.TicketOpen {
			row.Deeds = v.deeds(v.project, []string{"id", row.Name}, "pools.tickets.renew", "pools.tickets.close")
		}
		t.Rows = append(t.Rows, row)
	}
	return []part{p, t}, nil
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

func (v *visit) clusters() ([]part, error) {
	list, err := v.client.ListClusters(v.ctx, api.ClusterFilter{InProject: v.in()})
	if err != nil {
		return nil, err
	}
	p := part{Heads: []string{"State", "Appliance", "Site", "Members", "Ready", "Step", "Expires"},
		Empty: "A cluster is a group of instances that an appliance describes: create one.",
		Deeds: v.deeds(v.project, nil, "clusters.new", "clusters.explain")}
	for _, one := range list.Clusters {
		ready := 0
		for _, m := range one.Members {
			if m.State == cluster.MemberReady {
				ready++
			}
		}
		row := thing{ID: string(one.ID), Name: one.Name, Link: link(one.Project, "/clusters/"+string(one.ID)),
			Cells: []any{
				word(strings.ToLower(string(one.State))), one.Appliance, one.Site, strconv.Itoa(len(one.Members)),
				strconv.Itoa(ready), one.Step, any("never")}}
		if !one.Expires.IsZero() {
			row.Cells[6] = one.Expires.UTC().Format("2006-01-02 15:04 MST")
		}
		p.Rows = append(p.Rows, row)
	}
	return []part{p}, nil
}

// clusterPage is what the page of a cluster shows.
type clusterPage struct {
	api.Cluster
	Events []cluster.Event
	Deeds  []deed

	v *visit
}

// deeds returns links to forms about a part of the cluster.
func (d clusterPage) deeds(name, value, form string) []deed {
	return d.v.deeds(d.Project, []string{name, value, "id", string(d.ID)}, form)
}

// ForMember returns links to what can be done with a member.
func (d clusterPage) ForMember(m cluster.Member) []deed {
	if m.Role != cluster.Slave {
		return nil
	}
	return d.deeds("host", string(m.ID), "clusters.hosts.remove")
}

// ForUse returns links to what can be done with a use.
func (d clusterPage) ForUse(u cluster.Use) []deed {
	return d.deeds("use", string(u.ID), "clusters.uses.end")
}

// ForOutput returns links to what can be done with an output.
func (d clusterPage) ForOutput(name string) []deed {
	return d.deeds("output", name, "clusters.outputs")
}

// OutputNames lists the outputs of the cluster.
func (d clusterPage) OutputNames() []string {
	all := slices.Concat(slices.Collect(maps.Keys(d.Outputs)), d.SecretOutputs)
	slices.Sort(all)
	return slices.Compact(all)
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
	d := clusterPage{Cluster: c, v: v, Deeds: v.deeds(c.Project, []string{"id", string(c.ID)}, "clusters.change",
		"clusters.grow", "clusters.account", "clusters.account.remove", "clusters.remove")}
	events, err := v.client.ListClusterEvents(v.ctx, named)
	if err != nil {
		return err
	}
	d.Events = events.Events
	slices.Reverse(d.Events)
	d.Events = d.Events[:min(len(d.Events), 100)]
	return v.show(http.StatusOK, "cluster", c.Name, d)
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
		p.Rows = append(p.Rows, thing{ID: strconv.Itoa(len(p.Rows)), Name: e.Operation,
			Cells: []any{e.Time.UTC().Format("2006-01-02 15:04:05"),
				e.User, object, e.Result, string(e.Project)}})
	}
	if log.Next != "" {
		p.Next = v.link("/log", "object", f.Object, "user", f.User, "since", f.Since, "after", log.Next)
	}
	return v.show(http.StatusOK, "things", "Log", thingList{Title: "Log", Parts: identified([]part{p}), Filter: &f})
}

// policyPage is what the page of the policies shows.
type policyPage struct {
	Policies   []croft.CrushPolicy
	Operator   bool
	Name, Text string // as typed
	Version    string
	Was        string // the text of that version
	Tried      bool
	Hints      []string
	Deeds      []deed
	refusal
}

func (v *visit) listPolicies() error {
	d := policyPage{Name: v.r.URL.Query().Get("name")}
	if d.Name != "" {
		p, err := v.client.GetPolicy(v.ctx, api.PolicyNamed{Name: d.Name})
		if err != nil {
			return err
		}
		d.Text, d.Was, d.Version = p.Text, p.Text, strconv.FormatInt(p.Generation, 10)
	}
	return v.showPolicies(http.StatusOK, d)
}

func (v *visit) showPolicies(status int, d policyPage) error {
	list, err := v.client.ListPolicies(v.ctx, api.Listing{Limit: mostThings})
	if err != nil {
		return err
	}
	d.Policies, d.Operator = list.Policies, v.caller.Operator()
	if d.Version != "" && d.Version != "0" {
		d.Deeds = v.deeds("", []string{"name", d.Name}, "policies.remove")
	}
	return v.show(status, "policies", "Policies", d)
}

// changePolicy tries a policy on the tree of hosts, or stores it.
func (v *visit) changePolicy() error {
	f := v.r.PostForm
	d := policyPage{Name: strings.TrimSpace(f.Get("name")), Version: f.Get("version"), Was: f.Get("was-text"),
		Text: f.Get("text")}
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
		if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.GenerationMismatch {
			return v.policyDiffers(d, p.Detail)
		}
	}
	if ended(err) {
		return err
	}
	if err != nil {
		d.refusal = v.refusalOf(err)
		return v.showPolicies(failureOf(v.r, err).Status, d)
	}
	return v.showPolicies(http.StatusOK, d)
}

// policyDiffers shows what another request changed in a policy since the form was made.
func (v *visit) policyDiffers(d policyPage, why string) error {
	now, err := v.client.GetPolicy(v.ctx, api.PolicyNamed{Name: d.Name})
	if err != nil && croft.KindOf(err) != croft.NotFound { // it may have been removed
		return err
	}
	sent := url.Values{"name": {d.Name}, "text": {d.Text}, "do": {"save"}, "was-text": {now.Text},
		"version": {strconv.FormatInt(now.Generation, 10)}}
	return v.show(http.StatusPreconditionFailed, "difference", "Changed meanwhile", difference{Name: d.Name, Says: why,
		Rows: []differing{{"text", d.Was, now.Text, d.Text}}, Sent: sent, Post: v.link("/policies"),
		Back: v.link("/policies", "name", d.Name)})
}
