package state

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"croft/grid/unit"
)

// MaxReplicas is the largest number of slots of a job.
const MaxReplicas = 1024

// body is a job to be read: its own file, or the template that its link leads to.
type body struct {
	entry
	job   string // the job's name
	from  string // the file with the body
	above *Value // the values that its directory gives it
}

// loadJobs reads jobs/.
func (l *loading) loadJobs() {
	dirs := map[string]*Value{}
	plain, templates, links := map[string]bool{}, map[string]*Value{}, []body{}
	var jobs []body
	l.files.walk("jobs", ".yaml", &l.problems, func(dir string, in []entry) {
		if dir != "jobs" && !validName.MatchString(path.Base(dir)) {
			l.problems.add(Position{File: dir}, "%q is no name of a directory: %s", path.Base(dir), nameHint)
		}
		values := newMap(Position{File: dir}, 0)
		if at := slices.IndexFunc(in, func(e entry) bool { return e.name == inheritedFile && !e.link }); at >= 0 {
			values = l.read(in[at].path, &l.problems)
		}
		values = inherit(dirs[path.Dir(dir)], values, &l.problems)
		dirs[dir] = values
		for _, e := range in {
			b := body{e, strings.TrimPrefix(path.Join(dir, e.name), "jobs/"), e.path, values}
			name, instance, at := strings.Cut(e.name, "@")
			switch {
			case e.name == inheritedFile && !e.link:
			case !validName.MatchString(name), at && instance != "" && !validName.MatchString(instance):
				l.problems.add(Position{File: e.path}, "%q is no name of a job: %s; an instance is NAME@INSTANCE",
					e.name, nameHint)
			case e.link:
				links = append(links, b)
			case at && instance == "":
				templates[e.path] = nil
			case at:
				l.problems.add(Position{File: e.path}, "%s", l.noLink(e.path, "an instance of a template is a "+
					"symbolic link to "+name+"@.yaml, and this is a file"))
			default:
				plain[e.path] = true
				jobs = append(jobs, b)
			}
		}
	})
	for file := range templates {
		templates[file] = l.read(file, &l.problems)
	}
	for _, b := range links {
		to, err := l.template(b, plain, templates, dirs)
		if err != "" {
			l.problems.add(Position{File: b.path}, "%s", err)
			continue
		}
		b.from = to
		jobs = append(jobs, b)
	}
	made := make([]*Job, len(jobs))
	l.parallel(len(jobs), func(i int, p *problems) { made[i] = l.job(jobs[i], templates, p) })
	if l.ctx.Err() != nil {
		return // not all of them were read
	}
	l.s.Jobs = made
	slices.SortFunc(l.s.Jobs, func(a, b *Job) int { return cmp.Compare(a.Name, b.Name) })
	l.nestedJobs()
}

// nestedJobs reports jobs whose path is the path of another job's slot, and jobs that would have the same unit name on
// a node.
func (l *loading) nestedJobs() {
	names := map[string]*Job{}
	for _, j := range l.s.Jobs {
		name := unit.Unit{Cluster: l.s.Cluster.ID, Job: j.Name}.Name()
		if other := names[name]; other != nil {
			l.problems.add(Position{File: j.Path}, "the jobs %s and %s would have the same unit name on nodes, %s: "+
				"rename one of them", j.Name, other.Name, strings.TrimSuffix(name, "-0"))
		}
		names[name] = j
		if _, err := slotNumber(path.Base(j.Name)); err == nil && l.s.Job(path.Dir(j.Name)) != nil {
			l.problems.add(Position{File: j.Path}, "the job %s has slots with this name: rename this job",
				path.Dir(j.Name))
		}
	}
}

// noLink returns the problem of a file where a link is expected: the advice to enable symbolic links if the file
// contains the text of a link, or else otherwise.
func (l *loading) noLink(file, otherwise string) string {
	text, err := l.files.read(file, maxFile)
	if err == nil && len(text) < 4096 && !strings.Contains(strings.TrimSpace(text), "\n") &&
		(strings.HasSuffix(strings.TrimSpace(text), ".yaml")) && !strings.Contains(text, ": ") {
		return "this is a file with the text of a symbolic link: the version control system keeps none here; switch " +
			"that on (git config core.symlinks true, fossil settings allow-symlinks on) and check the file out again"
	}
	return otherwise
}

// template returns the template file that an instance's link leads to, or the problem of the link.
func (l *loading) template(b body, plain map[string]bool, templates map[string]*Value,
	dirs map[string]*Value) (string, string) {
	to, err := target(b.path, b.to)
	if err != nil {
		return "", err.Error()
	}
	name, _, instance := strings.Cut(b.name, "@")
	_, isTemplate := templates[to]
	switch {
	case strings.HasSuffix(b.name, "@"):
		return "", "a template is a file, and this is a symbolic link: link instances to the file itself"
	case dirs[to] != nil:
		return "", "the link leads to " + b.to + ", a directory: an instance leads to a template, NAME@.yaml"
	case !instance:
		return "", "only instances of templates are symbolic links: name it " + name +
			"@INSTANCE.yaml, or make it a file"
	case isTemplate:
		return to, ""
	case plain[to]:
		return "", "the link leads to " + b.to + ", which is a job and no template: templates are named NAME@.yaml"
	case l.files.isLink(to):
		return "", "the link leads to " + b.to + ", which is a link too: link it to the template itself"
	}
	return "", "the link leads to " + b.to + ", and there is no such template"
}

// jobKeys are the known keys of a job's file.
var jobKeys = []string{"runtime", "image", "command", "env", "user", "files", "mounts", "ports", "network", "address",
	"interface",
	"uses", "limits", "vm", "options", "replicas", "policy", "require", "avoid", "balance", "priority", "exclusive",
	"max_unavailable", "ready", "gate", "canary", "confirm", "var"}

// placingKeys are the keys whose values are the same for all slots, and which are read once per job.
var placingKeys = []string{"uses", "replicas", "policy", "require", "avoid", "balance", "priority", "exclusive",
	"max_unavailable", "gate", "canary", "confirm"}

// job reads a job.
func (l *loading) job(from body, templates map[string]*Value, p *problems) *Job {
	own := templates[from.from]
	if own == nil {
		own = l.read(from.from, p)
	}
	j := &Job{Name: from.job, Path: from.path, Values: inherit(from.above, own, p), Balance: 1}
	_, j.Instance, _ = strings.Cut(path.Base(j.Name), "@")
	s := j.scope()
	values := newMap(j.Values.At, len(placingKeys))
	for _, key := range placingKeys {
		v := j.Values.Fields[key]
		if v == nil {
			continue
		}
		expanded, problem := s.expand(v)
		if problem != nil {
			p.list = append(p.list, *problem)
			continue
		}
		values.set(key, expanded)
	}
	j.place(fields{values, p, ""})
	l.tryUnit(j, p)
	return j
}

// scope returns the names that are known for all slots of the job.
func (j *Job) scope() *scope {
	names := map[string]*Value{"name": text(j.Name)}
	if j.Instance != "" {
		names["instance"] = guessed(j.Instance)
	}
	return &scope{names: names, own: j.Values}
}

// place reads the keys that control where the job runs and how it is changed.
func (j *Job) place(f fields) {
	j.Policy, j.PolicyAt = f.text("policy"), f.at("policy")
	j.Every = strings.TrimSpace(j.Policy) == "every"
	j.replicas(f)
	j.Require, j.Avoid = j.facts(f, "require"), j.facts(f, "avoid")
	for _, fact := range j.Require {
		if slices.Contains(j.Avoid, fact) {
			f.p.add(f.at("avoid"), "the fact %s is both required and avoided, so no node fits", fact)
		}
	}
	j.Uses = f.amounts("uses")
	j.Balance = f.number("balance", 1, 64, 1)
	j.Priority = f.number("priority", -1_000_000, 1_000_000, 0)
	j.Exclusive = f.boolean("exclusive")
	j.MaxUnavailable = f.number("max_unavailable", 1, MaxReplicas, 0)
	j.Canary = f.number("canary", 0, MaxReplicas, 0)
	j.Confirm = f.number("confirm", 0, 24*3600, 0)
	j.Gate = check(f.below("gate"))
}

func (j *Job) replicas(f fields) {
	j.Want, j.Min = 1, 1
	v := f.get("replicas")
	switch {
	case v == nil:
	case j.Every:
		f.p.add(v.At, "replicas: the policy every has one on each node that fits: leave them out")
	case v.Kind == Map:
		in := f.below("replicas")
		j.Want = in.number("want", 0, MaxReplicas, 1)
		j.Min = in.number("min", 0, MaxReplicas, j.Want)
		if in.get("want") == nil {
			f.p.add(v.At, "replicas: say how many are wanted, as in {want: 3, min: 2}")
		} else if j.Want < j.Min {
			f.p.add(in.at("min"), "replicas: %d are wanted, fewer than the least of %d", j.Want, j.Min)
		}
	case v.Kind == Int:
		j.Want = f.number("replicas", 0, MaxReplicas, 1)
		j.Min = j.Want
	default:
		f.wants(v, "replicas", "a whole number, or {want: 3, min: 2}")
	}
}

// facts reads a list of facts, and returns it sorted and without duplicates.
func (j *Job) facts(f fields, key string) []string {
	list := f.texts(key)
	for _, fact := range list {
		name, _, _ := strings.Cut(fact, "=")
		if !validFact(name) || strings.ContainsAny(fact, ";\n\" ") {
			f.p.add(f.at(key), "%s: %q is neither a fact nor FACT=VALUE", key, fact)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Filter returns the facts that the job requires and avoids as text; equal lists give equal texts. "": the job requires
// and avoids nothing.
func (j *Job) Filter() string {
	var parts []string
	if len(j.Require) > 0 {
		parts = append(parts, "require "+strings.Join(j.Require, " "))
	}
	if len(j.Avoid) > 0 {
		parts = append(parts, "avoid "+strings.Join(j.Avoid, " "))
	}
	return strings.Join(parts, "; ")
}

// Admits reports whether a node passes the job's filter.
func (j *Job) Admits(n *Node) bool {
	return !slices.ContainsFunc(j.Require, func(fact string) bool { return !n.Matches(fact) }) &&
		!slices.ContainsFunc(j.Avoid, n.Matches)
}

// check reads a health check.
func check(f fields) (c unit.Check) {
	if f.v == nil {
		return c
	}
	c = unit.Check{Command: f.texts("command"), Here: f.texts("here"), URL: f.text("url"), Query: f.text("query"),
		Timeout: f.number("timeout", 1, 24*3600, 0), Stay: f.get("restore") != nil && !f.boolean("restore")}
	ways := 0
	for _, key := range []string{"command", "here", "url"} {
		if f.v.Fields[key] != nil {
			ways++
		}
	}
	switch {
	case ways != 1:
		f.p.add(f.v.At, "%s: give one of command (on the node), here (on your machine) and url",
			strings.TrimSuffix(f.named, "."))
	case c.Query != "" && f.v.Fields["url"] == nil:
		f.p.add(f.at("query"), "%squery: a query needs the url of a Prometheus server", f.named)
	case c.URL != "" && !strings.HasPrefix(c.URL, "http://") && !strings.HasPrefix(c.URL, "https://"):
		f.p.add(f.at("url"), "%surl: %q starts with neither http:// nor https://", f.named, c.URL)
	case f.v.Fields["command"] != nil && len(c.Command) == 0, f.v.Fields["here"] != nil && len(c.Here) == 0:
		f.p.add(f.v.At, "%s: the command is empty", strings.TrimSuffix(f.named, "."))
	}
	return c
}
