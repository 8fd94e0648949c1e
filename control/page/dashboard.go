package page

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"croft"
	"croft/client"
	"croft/control/api"
	"croft/internal/wording"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/usage"
)

// dashboard is what the dashboard shows.
type dashboard struct {
	Operator bool
	Gauges   []gauge // of the hosts that take instances
	Counts   []stateCount
	Storages []gauge
	Trend    *history
	Troubles []trouble
	Heavy    []heavy
	Missing  []string // parts that could not be read, and why
}

// trouble is a problem with what to do about it.
type trouble struct {
	Bad        bool
	Kind       string // of the object
	Name, Link string
	What       string
	Do, DoLink string
}

// heavy is a project with what it used.
type heavy struct {
	Project        croft.Project
	Link           string
	Hours, Memory  string
	gauge                // its part of all processor time
	processorsTime int64 // unit-seconds
}

const (
	mostTroubles = 20 // of each kind
	mostHeavy    = 10
	heavyDays    = 7
	soonExpired  = 14 * 24 * time.Hour
)

func (v *visit) showDashboard() error {
	return v.showLate("dashboard", "Dashboard", func() (any, error) { return v.readDashboard() })
}

func (v *visit) readDashboard() (*dashboard, error) {
	d := &dashboard{Operator: v.caller.Operator()}
	in := api.InProject{Project: v.project}
	var groups [5][]trouble // each read by one of the functions below
	var err error
	d.Missing, err = readAll([]reading{
		{name: "hosts", read: func() (err error) { groups[0], err = d.readHosts(v); return err }},
		{name: "instances", read: func() (err error) { groups[1], err = v.troubledInstances(in); return err }},
		{name: "volumes and backup stores",
			read: func() (err error) { groups[2], err = v.troubledStorage(in); return err }},
		{name: "backups", read: func() (err error) { groups[3], err = v.overdueBackups(in); return err }},
		{name: "tokens", read: func() (err error) { groups[4], err = v.endingTokens(in); return err }},
		{name: "usage", read: func() error { return d.readUsage(v) }},
		{name: "shared storage", read: func() error { return d.readStorages(v) }},
	}, croft.NotFound) // the project does not exist for the caller
	if err != nil {
		return nil, err
	}
	d.Troubles = slices.Concat(groups[:]...)
	if d.Trend != nil && d.Trend.Stale && !d.Trend.Until.IsZero() {
		d.Troubles = append(d.Troubles, trouble{Kind: "usage", What: "nothing has been recorded since " +
			d.Trend.Until.UTC().Format("2 Jan 15:04"), Do: "see that a server of the API runs"})
	}
	return d, nil
}

// readHosts adds up what hosts have, and lists their problems. Only operators see hosts.
func (d *dashboard) readHosts(v *visit) (all []trouble, err error) {
	if !d.Operator {
		return nil, nil
	}
	end, err := v.manyHosts(v.ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var rows, taking []*hostRow
	list, err := client.EachHost(v.ctx, v.client, api.Listing{}, func(h briefHost) {
		rows = append(rows, rowOfHost(h))
	})
	if err != nil {
		return nil, err
	}
	for _, says := range list.Problems {
		all = append(all, trouble{Bad: true, Kind: "cloud", What: says,
			Do: "do what it says; the guide to operations has more", DoLink: docsRoot + "/operations"})
	}
	var found findings
	for _, h := range rows {
		if h.State == "ready" {
			taking = append(taking, h)
		}
		one := trouble{Bad: true, Kind: "host", Name: h.Name, Link: h.Link, DoLink: h.Link}
		if h.State == "silent" || h.State == "fencing" || h.State == "returned" {
			one.What = fmt.Sprintf("%s, with %s", h.State, wording.Count(h.Count, "instance"))
			one.Do, one.DoLink = "bring it back, or fence it", h.Link+"/fence"
			if h.State == "returned" {
				one.Do, one.DoLink = "take it back", h.Link+"/take-back"
			}
			all = append(all, one)
		}
		for _, says := range h.Problems {
			one.What, one.Do, one.DoLink = says, "look at the host", h.Link
			all = append(all, one)
		}
		if h.Alive {
			found.add(h)
		}
	}
	all = append(all, found.troubles()...)
	d.Gauges = sumOf(taking)
	d.Counts = countStates(rows, func(state string) string { return Root + "/hosts?state=" + state })
	return most(all, Root+"/hosts"), list.Incomplete()
}

// findings counts what doctor found on hosts.
type findings struct {
	failed   []trouble  // one for each host on which a check failed
	warnings int        // on the other hosts
	warned   []*hostRow // the hosts with these warnings
}

func (f *findings) add(h *hostRow) {
	failed := 0
	for _, one := range h.Findings {
		if one.Level == croft.FindingFail {
			failed++
		}
	}
	switch warned := len(h.Findings) - failed; {
	case failed > 0:
		what := "doctor found " + wording.Count(failed, "fault")
		if warned > 0 {
			what += " and " + wording.Count(warned, "warning")
		}
		f.failed = append(f.failed, trouble{Bad: true, Kind: "host", Name: h.Name, Link: h.Link, What: what,
			Do: "see what to do", DoLink: h.Link + "#h-doctor"})
	case warned > 0:
		f.warnings, f.warned = f.warnings+warned, append(f.warned, h)
	}
}

// troubles returns a problem for each host on which a check failed, and one for all warnings.
func (f *findings) troubles() []trouble {
	if len(f.warned) == 0 {
		return f.failed
	}
	one := trouble{Kind: "host", What: "doctor found " + wording.Count(f.warnings, "warning"), Do: "see what to do"}
	if first := f.warned[0]; len(f.warned) == 1 {
		one.Name, one.Link, one.DoLink = first.Name, first.Link, first.Link+"#h-doctor"
	} else {
		one.What += " on " + wording.Count(len(f.warned), "host")
		one.Do, one.DoLink = "look at the hosts with findings", Root+"/hosts"
	}
	return append(f.failed, one)
}

func (d *dashboard) readStorages(v *visit) error {
	if !d.Operator {
		return nil
	}
	list, err := v.client.ListStorages(v.ctx)
	for _, s := range list.Storages {
		g := gaugeOf(tenant.Measure(croft.DiskGB), s.ClaimedGB, s.TotalGB)
		g.Name = s.Name
		d.Storages = append(d.Storages, g)
	}
	return err
}

// most cuts a list of problems of one kind.
func most(all []trouble, rest string) []trouble {
	if over := len(all) - mostTroubles; over > 0 {
		what := fmt.Sprint(over, " more are like this")
		if over == 1 {
			what = "1 more is like this"
		}
		all = append(all[:mostTroubles:mostTroubles], trouble{Kind: all[0].Kind, What: what, Do: "show all",
			DoLink: rest})
	}
	return all
}

// troubledInstances lists instances that failed or were lost.
func (v *visit) troubledInstances(in api.InProject) (all []trouble, err error) {
	list, err := v.client.ListInstances(v.ctx, api.InstanceFilter{InProject: in,
		Terms: api.Terms{State: []string{"failed", string(croft.StateLost)}}, Page: api.Page{Limit: mostTroubles}})
	for _, i := range list.Instances {
		at := "/instances/" + string(i.ID)
		one := trouble{Bad: true, Kind: "instance", Name: i.Name, Link: link(i.Project, at),
			What: i.State + ": " + i.Error, Do: "look at it, then start or rebuild it", DoLink: link(i.Project, at)}
		if i.State == string(croft.StateLost) {
			one.Do = "restore it from a backup, or remove it"
		}
		all = append(all, one)
	}
	if list.Next != "" {
		all = append(all, trouble{Bad: true, Kind: "instance", What: "there are more that failed or are lost",
			Do: "show those that failed", DoLink: v.link("/instances", "state", "failed")})
	}
	return all, err
}

// troubledStorage lists volumes and stores of backups that cannot be used.
func (v *visit) troubledStorage(in api.InProject) (all []trouble, err error) {
	list, err := v.client.ListVolumes(v.ctx, in, api.Listing{Limit: mostTroubles,
		Terms: api.Terms{State: []string{"failed", "lost", "unreachable"}}})
	for _, one := range list.Volumes {
		all = append(all, trouble{Bad: true, Kind: "volume", Name: one.Name, What: one.State + ": " +
			cmp.Or(one.Error, "its host does not answer"), Do: "schedule volume show " + one.Name})
	}
	stores, failed := v.client.ListBackupStores(v.ctx, in)
	for _, s := range stores.Stores {
		if s.State != "ready" && s.State != "checking" {
			all = append(all, trouble{Bad: true, Kind: "backup store", Name: s.Name,
				What: string(s.State) + ": " + cmp.Or(s.Error, "ask an operator"),
				Do:   "croft backup store check " + s.Name})
		}
	}
	return all, errors.Join(err, failed)
}

// overdueBackups lists instances whose last backup is old or failed, and counts the ones that never had one.
func (v *visit) overdueBackups(in api.InProject) (all []trouble, err error) {
	list, err := v.client.ListUnprotected(v.ctx, api.OverdueFilter{InProject: in}, api.Listing{Limit: mostTroubles})
	without := 0
	for _, u := range list.Instances {
		if u.Last == nil && u.Failed == "" && u.Schedule == "" {
			without++
			continue
		}
		one := trouble{Kind: "backup", Name: u.Name, Link: link(u.Project, "/instances/"+string(u.Instance)),
			Bad: u.Failed != "" || u.Schedule != "", What: "no backup yet", Do: "make one",
			DoLink: link(u.Project, "/instances/"+string(u.Instance)+"/backup")}
		if u.Last != nil {
			one.What = "the last backup is " + wording.Age(time.Since(*u.Last)) + " old"
		}
		if u.Failed != "" {
			one.What += "; the newest attempt failed: " + u.Failed
		}
		if u.Schedule != "" {
			one.What += ", although schedule " + u.Schedule + " makes them"
		}
		all = append(all, one)
	}
	if without > 0 {
		what := wording.Count(without, "instance") + " without any backup"
		if list.Next != "" {
			what = "at least " + what
		}
		all = append(all, trouble{Kind: "backup", What: what, Do: "make a schedule",
			DoLink: link(in.Project, "/backups")})
	}
	return all, err
}

// endsSoon reports whether a token that was made for a time, and has some of it left, is to be replaced: in its last
// two weeks, or in the last quarter of a shorter life. A token that is made for a day expires as intended.
func endsSoon(life, left time.Duration) bool {
	most := soonExpired
	if life <= soonExpired {
		most = life / 4
	}
	return left > 0 && left <= most && life > 24*time.Hour
}

// endingTokens lists tokens that expire soon. Members do not see tokens.
func (v *visit) endingTokens(in api.InProject) (all []trouble, err error) {
	if !access.MayAnywhere(access.Manages, v.caller.Roles) {
		return nil, nil
	}
	list, err := v.client.ListTokens(v.ctx, in)
	for _, t := range list.Tokens {
		left := time.Until(t.Expires)
		if !endsSoon(t.Expires.Sub(t.Created), left) {
			continue
		}
		all = append(all, trouble{Kind: "token", Name: t.User,
			What: "expires in " + wording.Age(left), Do: "make a new one",
			DoLink: link(t.Project, "/project")})
	}
	return most(all, v.link("/project")), err
}

// readUsage draws the history, and finds the projects that used most.
func (d *dashboard) readUsage(v *visit) error {
	_, _, periods := v.wantsHistory()
	week := time.Now().UTC().AddDate(0, 0, 1-heavyDays).Format(time.DateOnly)
	since := min(periods[0].First.Format(time.DateOnly), week)
	report, err := v.client.ListUsage(v.ctx, api.Days{Since: since})
	if err != nil {
		return err
	}
	above, err := v.parents()
	if err != nil {
		return err
	}
	has, roots := map[croft.Project]bool{}, []usage.Account(nil)
	for _, a := range report.Projects {
		has[a.Project] = true
	}
	for _, a := range report.Projects {
		if a.Project == v.project || v.project == "" && !has[above[a.Project]] {
			roots = append(roots, a)
		}
	}
	capacity := report.Capacity
	if v.project != "" {
		capacity = nil // it is of the whole cloud
	}
	d.Trend = v.historyOf("/dashboard", roots, capacity, report.Until)
	total := recently(roots, week)
	for _, a := range report.Projects {
		sum := recently([]usage.Account{a}, week)
		if sum.UnitSeconds[measureOf(croft.VCPU)] == 0 {
			continue
		}
		d.Heavy = append(d.Heavy, heavyOf(a.Project, sum, total))
	}
	slices.SortStableFunc(d.Heavy, func(a, b heavy) int { return cmp.Compare(b.processorsTime, a.processorsTime) })
	d.Heavy = d.Heavy[:min(len(d.Heavy), mostHeavy)]
	return nil
}

// parents returns the project above each project that the caller sees.
func (v *visit) parents() (map[croft.Project]croft.Project, error) {
	list, err := v.client.ListProjects(v.ctx)
	above := map[croft.Project]croft.Project{}
	for _, p := range list.Projects {
		above[p.Name] = p.Parent
	}
	return above, err
}

// recently adds up the usage of accounts from a day on.
func recently(accounts []usage.Account, since string) usage.Day {
	var days []usage.Day
	for _, a := range accounts {
		for _, d := range a.Days {
			if d.Date >= since {
				days = append(days, d)
			}
		}
	}
	return usage.Sum(days)
}

func heavyOf(p croft.Project, sum, total usage.Day) heavy {
	hours := func(class croft.ResourceClass, unit int64) string {
		n := float64(sum.UnitSeconds[measureOf(class)]) / float64(unit) / 3600
		if n > 0 && n < 0.1 {
			return "< 0.1"
		}
		return fmt.Sprintf("%.1f", n)
	}
	h := heavy{Project: p, Link: link(p, "/project"), Hours: hours(croft.VCPU, 1),
		Memory:         hours(croft.MemoryMB, 1024),
		processorsTime: sum.UnitSeconds[measureOf(croft.VCPU)]}
	h.gauge = gauge{Used: h.processorsTime, Total: max(h.processorsTime, total.UnitSeconds[measureOf(croft.VCPU)])}
	return h
}
