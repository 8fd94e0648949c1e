package page

import (
	"encoding/csv"
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
	"croft/control/api"
	"croft/control/federation"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/access"
)

// projectPage is what the page of a project shows.
type projectPage struct {
	tenant.Tenant
	Recorded bool // the project has a record
	Manages  bool // offer members, tokens and projects below it
	Limits   bool // offer to set limits
	Changes  bool // offer keys
	Quota    []quotaLine
	Tops     []croft.Project // the projects whose limits are shown
	Users    []member
	Tokens   []api.AccessToken
	Keys     []schedule.Key
	Usage    *history
	CSV      string
	Measures []tenant.Measure // that can be limited
	Deeds    []deed
	Mappings []mapped
	Missing  []string   // parts that could not be read, and why
	Given    url.Values // the fields, as they were sent
	refusal             // why it was not done
}

// mapped is a project of a peer whose members are members of a project.
type mapped struct {
	federation.Mapping
	Deeds []deed
}

// member is a user with a role in a project.
type member struct {
	User string
	Role access.Role
}

// quotaLine is a measure with the limits of a project and of those above it.
type quotaLine struct {
	Name string
	Bars []quotaBar
}

// quotaBar is what a project and the projects below it use of the project's limit.
type quotaBar struct {
	gauge

	Project croft.Project
	First   bool // of several, this one refuses first
}

// projectName returns the project that a visit is about; empty: an operator's visit is about none.
func (v *visit) projectName() croft.Project {
	if v.project == "" {
		return v.caller.Project
	}
	return v.project
}

func (v *visit) showProject() error {
	return v.showProjectAs(http.StatusOK, projectPage{})
}

func (v *visit) showProjectAs(status int, d projectPage) error {
	name := v.projectName()
	if name == "" {
		return v.showProjects(status, d)
	}
	p, err := v.client.GetProject(v.ctx, api.ProjectNamed{Project: name})
	switch {
	case err == nil:
		d.Tenant, d.Recorded = p, true
	case croft.KindOf(err) == croft.NotFound: // names without a record are used, too; getQuota decides who may see them
		d.Tenant = tenant.Tenant{Name: name}
	default:
		return err
	}
	roles := v.caller.Roles
	d.Manages, d.Limits = access.MayAnywhere(access.Manages, roles), access.MayAnywhere(access.FromAbove, roles)
	d.Limits = d.Limits && d.Recorded && (v.caller.Operator() || name != v.caller.Project)
	d.Changes, d.Measures = access.MayAnywhere(access.Changes, roles), limitable()
	d.CSV = link(name, "/project/usage.csv")
	for _, user := range slices.Sorted(maps.Keys(p.Members)) {
		d.Users = append(d.Users, member{user, p.Members[user]})
	}
	d.Deeds = d.deeds(v)
	in := api.InProject{Project: name}
	d.Missing, err = readAll([]reading{
		// without it, the project does not exist for the caller
		{name: "quota", required: true, read: func() error { return d.readQuota(v) }},
		{name: "keys", read: func() error {
			list, err := v.client.ListKeys(v.ctx, in)
			d.Keys = list.Keys
			return err
		}},
		{name: "tokens", read: func() error {
			if !d.Manages {
				return nil
			}
			list, err := v.client.ListTokens(v.ctx, in)
			d.Tokens = list.Tokens
			return err
		}},
		{name: "mappings", read: func() error {
			if !d.Recorded {
				return nil
			}
			list, err := v.client.ListMappings(v.ctx, api.ProjectNamed{Project: name})
			for _, one := range list.Mappings {
				d.Mappings = append(d.Mappings, mapped{one, v.deeds(name, []string{"id", string(one.Peer), "theirs",
					string(one.Theirs)}, "project.mappings.remove")})
			}
			return err
		}},
		{name: "usage", read: func() error {
			_, _, periods := v.wantsHistory()
			report, err := v.client.GetUsage(v.ctx, api.ProjectDays{ProjectNamed: api.ProjectNamed{Project: name},
				Days: api.Days{Since: periods[0].First.Format(time.DateOnly)}})
			if err == nil {
				d.Usage = v.historyOf("/project", report.Projects, nil, report.Until)
			}
			return err
		}},
	})
	if err != nil {
		return err
	}
	return v.show(status, "project", "Project "+string(name), &d)
}

// deeds returns links to what can be done with the project.
func (d *projectPage) deeds(v *visit) []deed {
	var names []string
	if d.Limits {
		names = append(names, "project.note")
	}
	names = append(names, "project.mappings.new", "project.recount")
	if d.Limits {
		names = append(names, "project.remove")
	}
	if !d.Recorded {
		names = nil
	}
	if v.caller.Project != "" { // the list of projects, which has it, is not for this caller
		names = append(names, "project.default-quota")
	}
	return v.deeds(d.Name, nil, names...)
}

// limitable lists what can be limited, the usual first.
func limitable() []tenant.Measure {
	return append(slices.Clone(historyMeasures), tenant.Bounded()...)
}

// readQuota reads what the project uses of its limits, and of the limits of the projects above it that the caller sees.
func (d *projectPage) readQuota(v *visit) error {
	chain, defaults, err := v.client.QuotaChain(v.ctx, d.Tenant)
	if err != nil {
		return err
	}
	for _, a := range chain {
		d.Tops = append(d.Tops, a.Project)
	}
	d.Quota = quotaLines(chain, defaults)
	return nil
}

// quotaLines compares use and limits of a project, the first of the chain, with the projects above it.
func quotaLines(chain []tenant.Account, defaults tenant.Limits) (lines []quotaLine) {
	own := chain[0]
	shown := slices.Clone(historyMeasures)
	for _, amounts := range []tenant.Amounts{own.Used, own.Stored, tenant.Amounts(own.Limits)} {
		for _, m := range slices.Sorted(maps.Keys(amounts)) {
			if !slices.Contains(shown, m) {
				shown = append(shown, m)
			}
		}
	}
	for _, m := range shown {
		line, first, least := quotaLine{Name: measureName(m)}, -1, int64(0)
		for _, a := range chain {
			used := a.Used[m]
			if n, separate := a.Stored[m]; separate {
				used = n
			}
			limit, limited := a.Limit(defaults, m)
			if !limited && a.Project != own.Project {
				continue // it cannot refuse anything
			}
			b := quotaBar{gauge: gaugeOf(m, used, limit), Project: a.Project}
			b.Unlimited = !limited
			if left := limit - used; limited && (first < 0 || left < least) {
				first, least = len(line.Bars), left
			}
			line.Bars = append(line.Bars, b)
		}
		if len(line.Bars) > 1 && first >= 0 {
			line.Bars[first].First = true
		}
		lines = append(lines, line)
	}
	return lines
}

// projectList is what operators see who chose no project.
type projectList struct {
	Projects []tenant.Tenant
	Given    url.Values
	Deeds    []deed
	refusal
}

func (v *visit) showProjects(status int, d projectPage) error {
	list, err := v.client.ListProjects(v.ctx)
	if err != nil {
		return err
	}
	return v.show(status, "projects", "Projects", projectList{tenant.NewTree(list.Projects).Sorted(), d.Given,
		v.deeds("", nil, "project.default-quota"), d.refusal})
}

// notDone shows the page of the project again, with the reason why a change was not made.
func (v *visit) notDone(err error) error {
	if ended(err) {
		return err
	}
	if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.GenerationMismatch {
		return v.projectDiffers(p.Detail)
	}
	return v.showProjectAs(failureOf(v.r, err).Status, projectPage{Given: v.r.PostForm, refusal: v.refusalOf(err)})
}

// membersText and limitsText are what forms remember of a project, to show a difference.
func membersText(p tenant.Tenant) string { return pairLines(p.Members, "=") }
func limitsText(p tenant.Tenant) string  { return pairLines(p.Limits, "=") }

// pairLines writes the pairs of a map, one in a line.
func pairLines[K ~string, V any](all map[K]V, sign string) string {
	var lines []string
	for key, value := range all {
		lines = append(lines, fmt.Sprint(key, sign, value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// projectDiffers shows what another request changed in a project since the form was made, and what this one wanted.
func (v *visit) projectDiffers(why string) error {
	p, err := v.client.GetProject(v.ctx, api.ProjectNamed{Project: v.projectName()})
	if err != nil {
		return err
	}
	f := v.r.PostForm
	d := difference{Name: string(p.Name), Says: why, Sent: maps.Clone(f), Post: v.r.URL.RequestURI(),
		Back: v.link("/project")}
	d.Sent.Set("version", strconv.FormatInt(p.Generation, 10))
	row := differing{What: "members", Was: f.Get("was-members"), Now: membersText(p)}
	switch {
	case f.Has("measure"):
		row = differing{"limits", f.Get("was-limits"), limitsText(p), f.Get("measure") + "=" + f.Get("limit")}
		d.Sent.Set("was-limits", row.Now)
	case f.Has("typed"):
		row.Want = f.Get("user") + " removed"
		d.Sent.Set("was-members", row.Now)
	default:
		row.Want = f.Get("user") + "=" + f.Get("role")
		d.Sent.Set("was-members", row.Now)
	}
	d.Rows = append(d.Rows, row)
	return v.show(http.StatusPreconditionFailed, "difference", "Changed meanwhile", d)
}

// Limited writes the limits of the project.
func (d *projectPage) Limited() string { return limitsText(d.Tenant) }

// Joined writes the members of the project.
func (d *projectPage) Joined() string { return membersText(d.Tenant) }

// base names the project, and the version that the form was made of. Invalid.
func (v *visit) base() (b api.ProjectBase, err error) {
	n, err := strconv.ParseInt(v.r.PostForm.Get("version"), 10, 64)
	if err != nil {
		return b, croft.Errorf(croft.Invalid, "the form does not say which version it changes: reload the page")
	}
	return api.ProjectBase{ProjectNamed: api.ProjectNamed{Project: v.projectName()}, Base: api.MatchOf(n)}, nil
}

// done leads to the page of the project after a change.
func (v *visit) done(what string, err error) error {
	if err != nil {
		return v.notDone(err)
	}
	return v.redirect("/project", "done", what)
}

// setMember gives a user a role.
func (v *visit) setMember() error {
	user := strings.TrimSpace(v.r.PostForm.Get("user"))
	if user == "" {
		return v.notDone(wrongField("m-user", "the user is missing: write the name as the identity provider has it"))
	}
	return v.done("member", v.changeMembers(func(all map[string]access.Role) {
		all[user] = access.Role(v.r.PostForm.Get("role"))
	}))
}

func (v *visit) changeMembers(change func(map[string]access.Role)) error {
	b, err := v.base()
	if err != nil {
		return err
	}
	p, err := v.client.GetProject(v.ctx, b.ProjectNamed)
	if err != nil {
		return err
	}
	if p.Members == nil {
		p.Members = map[string]access.Role{}
	}
	change(p.Members) // refused if the project is not the version of the form
	_, err = v.client.SetMembers(v.ctx, api.Members{ProjectBase: b, Members: p.Members})
	return err
}

// userOfToken returns who a token of the project stands for. NotFound.
func (v *visit) userOfToken(id string) (string, error) {
	list, err := v.client.ListTokens(v.ctx, v.in())
	for _, token := range list.Tokens {
		if string(token.ID) == id {
			return token.User, nil
		}
	}
	if err != nil {
		return "", err
	}
	return "", croft.Errorf(croft.NotFound, "the project has no token %.40q: reload its page", id)
}

// projectQuestion returns the question before something of a project is removed. NotFound.
func (v *visit) projectQuestion() (q question, err error) {
	get := v.r.FormValue // of the address, or of the form
	q = question{Final: true, Back: v.link("/project"), Post: v.link("/project/" + v.r.PathValue("what") + "/remove"),
		Does: "Remove"}
	switch v.r.PathValue("what") {
	case "members":
		q.Title, q.Name, q.Word = "Remove member", get("user"), get("user")
		q.About = "The user loses the role in this project. Instances and keys stay."
		q.Hidden = map[string]string{"user": get("user"), "version": get("version"), "was-members": get("was-members")}
	case "keys":
		q.Title, q.Name, q.Word = "Remove key", get("name"), get("name")
		q.About = "New instances cannot name it any more. Instances that have it keep it."
		q.Hidden = map[string]string{"name": get("name")}
	case "tokens":
		user, err := v.userOfToken(get("id")) // not of the address: somebody else may have written it
		if err != nil {
			return q, err
		}
		q.Title, q.Name, q.Word, q.Does = "Revoke token", user, user, "Revoke"
		q.About = "Requests and sessions with the token end at once: " + get("id")
		q.Hidden = map[string]string{"id": get("id")}
	}
	if q.Word == "" {
		return q, croft.Errorf(croft.NotFound, "there is no such page")
	}
	return q, nil
}

func (v *visit) confirmRemoval() error {
	q, err := v.projectQuestion()
	if err != nil {
		return err
	}
	return v.askAbout(http.StatusOK, q)
}

func (v *visit) removeOfProject() error {
	q, err := v.projectQuestion()
	if err != nil {
		return err
	}
	if confirmed, err := v.answered(q); !confirmed {
		return err
	}
	f, in := v.r.PostForm, api.InProject{Project: v.projectName()}
	switch what := v.r.PathValue("what"); what {
	case "members":
		return v.done("member-removed", v.changeMembers(func(all map[string]access.Role) {
			delete(all, f.Get("user"))
		}))
	case "keys":
		return v.done("key-removed", v.client.RemoveKey(v.ctx, api.KeyNamed{InProject: in, Name: f.Get("name")}))
	default:
		_, err = v.client.RevokeToken(v.ctx, api.TokenNamed{InProject: in, ID: f.Get("id")})
		return v.done("token-removed", err)
	}
}

// createToken makes a token, and shows it, once.
func (v *visit) createToken() error {
	f := v.r.PostForm
	made, err := v.client.CreateToken(v.ctx, api.NewToken{InProject: api.InProject{Project: v.projectName()},
		User: strings.TrimSpace(f.Get("user")), Role: access.Role(f.Get("role")),
		Note: strings.TrimSpace(f.Get("note")), Life: strings.TrimSpace(f.Get("life"))})
	if err != nil {
		return v.notDone(err)
	}
	return v.show(http.StatusOK, "secret", "New token", made)
}

func (v *visit) addKey() error {
	f := v.r.PostForm
	_, err := v.client.AddKey(v.ctx, api.NewKey{InProject: api.InProject{Project: v.projectName()},
		Name: strings.TrimSpace(f.Get("name")), Line: strings.TrimSpace(f.Get("line"))})
	return v.done("key", err)
}

// setLimit sets one limit, and leaves the others.
func (v *visit) setLimit() error {
	b, err := v.base()
	if err != nil {
		return v.notDone(err)
	}
	m, text := tenant.Measure(v.r.PostForm.Get("measure")), strings.TrimSpace(v.r.PostForm.Get("limit"))
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text == "unlimited":
		n = tenant.Unlimited
	case text == "default":
	case err != nil || n < 0:
		return v.notDone(wrongField("limit",
			"the limit is %.40q: write a whole number from 0, unlimited, or default", text))
	}
	p, err := v.client.GetProject(v.ctx, b.ProjectNamed)
	if err != nil {
		return v.notDone(err)
	}
	limits := maps.Clone(p.Limits)
	if limits == nil {
		limits = tenant.Limits{}
	}
	limits[m] = n
	if text == "default" {
		delete(limits, m)
	}
	_, err = v.client.SetQuota(v.ctx, api.Limits{ProjectBase: b, Limits: limits})
	return v.done("limit", err)
}

// createProject creates a project below the one of the form, or below none.
func (v *visit) createProject() error {
	f := v.r.PostForm
	made, err := v.client.CreateProject(v.ctx, api.NewProject{Name: croft.Project(strings.TrimSpace(f.Get("name"))),
		Parent: croft.Project(f.Get("parent")), Note: strings.TrimSpace(f.Get("note"))})
	if err != nil {
		return v.notDone(err)
	}
	v.project = made.Name
	return v.redirect("/project", "done", "project")
}

// exportUsage answers with the usage of a project by day as CSV.
func (v *visit) exportUsage() error {
	q := v.r.URL.Query()
	report, err := v.client.GetUsage(v.ctx, api.ProjectDays{ProjectNamed: api.ProjectNamed{Project: v.projectName()},
		Days: api.Days{Since: q.Get("since"), Until: q.Get("until")}})
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="usage-%s.csv"`,
		strings.Map(onlyPlain, string(v.projectName()))))
	out := csv.NewWriter(v.w)
	_ = out.Write([]string{"day", "project", "measure", "unit_seconds", "peak", "estimated_seconds"})
	for _, a := range report.Projects {
		for _, d := range a.Days {
			for _, m := range slices.Sorted(maps.Keys(d.Peak)) {
				_ = out.Write([]string{d.Date, string(a.Project), string(m), strconv.FormatInt(d.UnitSeconds[m], 10),
					strconv.FormatInt(d.Peak[m], 10), strconv.FormatInt(d.Estimated, 10)})
			}
		}
	}
	out.Flush() // ignore browsers that disconnected
	return nil
}

// onlyPlain replaces characters that do not belong into the name of a file.
func onlyPlain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
		return r
	}
	return '-'
}
