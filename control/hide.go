package control

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"croft"
	"croft/control/api"
	"croft/schedule"
	"croft/tenant/access"
)

// instance returns a status as the caller may see it: only operators see hosts, and only callers who may create
// instances in its project see user-data.
func (c *call) instance(st croft.Status) api.Instance {
	if !access.May(c.caller, access.Changes, st.Instance.Project) {
		st.Instance.Spec.UserData = nil
	}
	if !c.caller.Operator() {
		st = withoutHosts(st)
	}
	return api.InstanceOf(st)
}

// listed returns an instance for a list or an event, which have no user-data.
func (c *call) listed(st croft.Status) api.Instance {
	st.Instance.Spec.UserData = nil
	return c.instance(st)
}

// changed returns a change of an instance for an event.
func (c *call) changed(change croft.Change) api.Change {
	shown := api.Change{Revision: change.Revision, Instance: c.listed(change.Status)}
	if change.Gone {
		shown.Gone, shown.State = true, goneState
	}
	return shown
}

// gone returns an instance that no longer exists.
func (c *call) gone(inst croft.Instance) api.Instance {
	shown := c.instance(croft.Status{Instance: inst})
	shown.Gone, shown.State = true, goneState
	return shown
}

// goneState is the state of an instance that no longer exists.
const goneState = "gone"

// withoutHosts removes every name and UUID of a host from a status. It keeps whether the host is alive.
func withoutHosts(st croft.Status) croft.Status {
	i := &st.Instance
	hidden := []string{string(i.Host), string(i.Moving), string(i.MovedFrom)}
	for _, host := range slices.Concat(i.LeftBefore, i.TakesFrom) {
		hidden = append(hidden, string(host))
	}
	i.Host, i.Moving, i.MovedFrom, i.LeftBefore, i.Session = "", "", "", nil, ""
	i.Copying, i.Unmoved, i.TakesFrom = false, "", nil
	paths := []string{hostFile(i.Spec.Image), hostFile(i.Spec.Machine.ISO)}
	i.Spec, i.Refused = withoutPlaces(i.Spec), nil
	if i.Lost != nil {
		i.Lost = &croft.Loss{At: i.Lost.At, Reason: i.Lost.Reason}
	}
	if st.Host != nil {
		hidden = append(append(hidden, st.Host.Name, st.Host.API, st.Host.Place), st.Host.Addresses...)
		st.Host = &croft.Host{Alive: st.Host.Alive, NoSetUp: st.Host.NoSetUp}
	}
	st.Order = nil
	if st.Observation != nil {
		o := *st.Observation
		o.Host = ""
		for _, word := range hidden {
			if word != "" {
				o.Error = strings.ReplaceAll(o.Error, word, "its host")
			}
		}
		for _, path := range paths {
			if path != "" {
				o.Error = strings.ReplaceAll(o.Error, path, filepath.Base(path))
			}
		}
		st.Observation = &o
	}
	return st
}

// withoutPlaces removes the names of hosts and of their files and locations from a spec. It keeps the instances to be
// near to, which the user named. It removes the bounds, the filters of hosts and the aggregates to be near to
// completely, because an operator may have created the instance with names that tenants do not know.
func withoutPlaces(spec croft.Spec) croft.Spec {
	spec.In, spec.Where, spec.WhereNot = nil, nil, nil
	if q, err := schedule.ParseQuery(spec.Query); err != nil || q.NamesAggregates() {
		spec.Query = ""
	}
	if path := hostFile(spec.Image); path != "" {
		spec.Image = filepath.Base(path)
	}
	if path := hostFile(spec.Machine.ISO); path != "" {
		spec.Machine.ISO = filepath.Base(path)
	}
	spec.ISO = nil
	spec.Near = slices.DeleteFunc(slices.Clone(spec.Near), func(n croft.Near) bool { return n.Aggregate })
	for i := range spec.Near {
		spec.Near[i].Location = ""
	}
	return spec
}

// imageFor returns the image of a spec as the caller may see it, not yet redacted: of a file on hosts, tenants see the
// base name.
func imageFor(spec *croft.Spec, operator bool) string {
	if path := hostFile(spec.Image); path != "" && spec.ImageName == "" && !operator {
		return filepath.Base(path)
	}
	return cmp.Or(spec.ImageName, spec.Image)
}

// hostFile returns the path of an image that is a file on hosts, to be replaced by its base name; empty: the image has
// another address.
func hostFile(reference string) string {
	path, _, _ := strings.Cut(strings.TrimPrefix(reference, "file://"), "#")
	if strings.HasPrefix(path, "/") {
		return path
	}
	return ""
}

// explanation returns an explanation as the caller may see it: tenants see numbers instead of host names, in the order
// of occurrence.
func (c *call) explanation(why *schedule.Explanation) *schedule.Explanation {
	if c.caller.Operator() {
		return why
	}
	numbers := map[string]string{}
	number := func(name string) string {
		if numbers[name] == "" {
			numbers[name] = fmt.Sprintf("host %d", len(numbers)+1)
		}
		return numbers[name]
	}
	shown := &schedule.Explanation{Wanted: why.Wanted, Hosts: why.Hosts, Fits: []schedule.Fit{},
		Requirements: []schedule.Requirement{}, Rows: []schedule.Row{}, Policy: why.Policy}
	for _, s := range why.Trace {
		s.Host, s.ID = number(s.Host), ""
		shown.Trace = append(shown.Trace, s)
	}
	for _, f := range why.Fits {
		f.Host, f.ID = number(f.Host), ""
		shown.Fits = append(shown.Fits, f)
	}
	for _, row := range why.Rows {
		var hosts []string
		for _, name := range row.Hosts {
			hosts = append(hosts, number(name))
		}
		shown.Rows = append(shown.Rows, schedule.Row{Hosts: hosts, Missing: row.Missing})
	}
	if why.Change != nil {
		shown.Change = &schedule.Adjustment{Host: number(why.Change.Host), Resources: why.Change.Resources,
			Without: why.Change.Without}
	}
	for _, r := range why.Requirements {
		r.Nearest = number(r.Nearest)
		shown.Requirements = append(shown.Requirements, r)
	}
	return shown
}
