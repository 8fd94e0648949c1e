package page

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// pageLength is the length of a page of the list.
const pageLength = 100

// instanceList is what the list of instances shows.
type instanceList struct {
	Rows     []row
	Operator bool
	Projects bool
	Picks    bool
	Name     string // parts of the address
	State    string
	Host     string
	Image    string
	Filter   string
	Sort     string
	States   []string
	Filtered bool
	Next     string // address of the next page; empty: this is the last
	First    string // address of the first page; empty: this is it
	Columns  []column
	Follow   string // address of the stream of changes
}

// column is a head of the list.
type column struct {
	Name, Title, Link, Sorted string // Sorted is ascending, descending or none
	Class                     string
}

var sortable = []column{{Name: "name", Title: "Name"}, {Name: "state", Title: "State"},
	{Name: "address", Title: "Address"}, {Name: "host", Title: "Host"}, {Name: "project", Title: "Project"},
	{Name: "resources", Title: "Resources", Class: "wide"}, {Name: "image", Title: "Image", Class: "wide"},
	{Name: "age", Title: "Age", Class: "n"}, {Name: "expires", Title: "Expires", Class: "wide n"}}

// states are the words that the list can be filtered by.
var states = func() []string {
	words := []string{string(croft.StateScheduling), string(croft.StateHeld), schedule.Ordered}
	for _, s := range croft.ObservedStates {
		words = append(words, string(s))
	}
	return append(words, schedule.Unknown, string(croft.StateDestroying), string(croft.StateLost))
}()

func (v *visit) listInstances() error {
	q := v.r.URL.Query()
	d := instanceList{Operator: v.caller.Operator(), Picks: v.mayChange(), Name: q.Get("name"), State: q.Get("state"),
		Host: q.Get("host"), Image: q.Get("image"), Filter: q.Get("filter"),
		Sort: cmp.Or(q.Get("sort"), "name"), States: states}
	d.Projects = v.project == "" && (v.caller.Operator() || v.caller.Project == "")
	d.Filtered = cmp.Or(d.Name, d.State, d.Host, d.Image, d.Filter) != ""
	by, backward := strings.CutPrefix(d.Sort, "-")
	if !slices.ContainsFunc(sortable, func(c column) bool { return c.Name == by }) {
		return croft.Errorf(croft.Invalid, "there is no column %.40q to sort by", by)
	}
	in := v.chosenBy(q)
	in.Page = api.Page{Limit: pageLength, After: q.Get("after")}
	if by == "age" { // the youngest is the one that was created last
		by, backward = "created", !backward
	}
	if in.Sort = by; backward {
		in.Sort = "-" + by
	}
	list, err := v.client.ListInstances(v.ctx, in)
	if err != nil {
		return err
	}
	d.fill(v, list, q)
	return v.show(http.StatusOK, "instances", "Instances", d)
}

// filters are the parts of an address that choose the instances of a list.
var filters = []string{"name", "state", "host", "image", "filter"}

// chosenBy returns the filter of an address.
func (v *visit) chosenBy(q url.Values) api.InstanceFilter {
	in := api.InstanceFilter{InProject: api.InProject{Project: v.project},
		Filtered: api.Filtered{Filter: given(q["filter"])},
		Terms: api.Terms{State: given(q["state"]), Host: given(q["host"]), Image: given(q["image"]),
			Name: given(q["name"])}}
	for i, name := range in.Name {
		if _, err := croft.ParseInstanceID(name); err != nil && !strings.HasSuffix(name, "*") {
			in.Name[i] = name + "*"
		}
	}
	return in
}

// given leaves out empty values, which forms send for empty fields.
func given(values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(s string) bool { return s == "" })
}

// fill sets the rows, and the addresses of other views of the list.
func (d *instanceList) fill(v *visit, list api.InstanceList, q url.Values) {
	for _, i := range list.Instances {
		d.Rows = append(d.Rows, d.row(i))
	}
	at := func(name, value string) string {
		to := url.Values{}
		for key, values := range q {
			if key != "after" && key != "done" && key != "to" && values[0] != "" {
				to[key] = values
			}
		}
		to.Set(name, value)
		return Root + "/instances?" + to.Encode()
	}
	if list.Next != "" {
		d.Next = at("after", list.Next)
	}
	if q.Get("after") != "" {
		d.First = at("sort", d.Sort)
	}
	for _, c := range sortable {
		if c.Name == "host" && !d.Operator || c.Name == "project" && !d.Projects {
			continue
		}
		c.Sorted, c.Link = "none", at("sort", c.Name)
		switch d.Sort {
		case c.Name:
			c.Sorted, c.Link = "ascending", at("sort", "-"+c.Name)
		case "-" + c.Name:
			c.Sorted = "descending"
		}
		d.Columns = append(d.Columns, c)
	}
	var chosen []string
	for _, name := range filters {
		for _, value := range given(q[name]) {
			chosen = append(chosen, name, value)
		}
	}
	d.Follow = v.link("/instances/events", chosen...)
}

// row returns the line of an instance.
func (d *instanceList) row(i api.Instance) row {
	return row{Instance: i, Link: link(i.Project, "/instances/"+string(i.ID)), Operator: d.Operator,
		Projects: d.Projects, Picks: d.Picks}
}
