package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/client"
	"croft/control/api"
	"croft/internal/wording"
	"croft/tenant"
)

// The most hosts that are drawn one by one, the most places that are drawn side by side, and the length of a page of
// the table.
const (
	mostDrawn      = 64
	mostPlaces     = 300
	hostsTableRows = 50
)

// hostStates are the words that hosts can be filtered by.
var hostStates = []string{"ready", "drained", "silent", "fencing", "dead", "returned"}

// hostsPage is the picture of the hosts.
type hostsPage struct {
	hostsQuery
	Sites    []*site
	Rows     []*hostRow // of the table
	Total    int
	Counts   []stateCount
	Gauges   []gauge
	Problems []string
	Partial  string // why amounts are missing
	Trail    []trailStep
	Alone    bool // hosts are drawn one by one
	Next     string
	First    string
	Follow   string // address of the stream of changes
}

// hostsQuery is what the address of the picture asks for.
type hostsQuery struct {
	Name, State, At string
	States          []string
	Filtered        bool
}

// trailStep is a place that contains the others that are shown.
type trailStep struct{ Name, Link string }

// stateCount counts the hosts in a state.
type stateCount struct {
	State string
	Count int
	Link  string
}

// site is a site, or the hosts that have no location, with its rows.
type site struct {
	Name string
	Rows []*siteRow
}

// siteRow is a row of racks.
type siteRow struct {
	Name   string
	Places []*place
}

// place is a location as a tile of the picture: a rack or, of large clouds, a row or a site.
type place struct {
	Name   string // its last part
	Path   string
	Link   string
	Hosts  []*hostRow
	Gauges []gauge
	Counts []stateCount
	cells
}

// cells are the hosts of a place as a picture: a cell for each host.
type cells struct {
	Width, Height                      int
	Room, Used, Drained, Silent, Other string // paths
}

// hostRow is a host in the picture and in the table.
type hostRow struct {
	briefHost
	Link   string
	Gauges []gauge
	Most   int // the highest percentage of its gauges
}

// briefHost is what a picture of many hosts needs of api.Host.
type briefHost struct {
	ID       croft.HostID `json:"id"`
	Name     string       `json:"name"`
	State    string       `json:"state"`
	Alive    bool         `json:"alive"`
	Seen     time.Time    `json:"seen"`
	Location string       `json:"location"`
	Version  string       `json:"version"`
	Problems []string     `json:"problems"`
	Findings []struct {
		Level string `json:"level"`
	} `json:"findings"`
	Count   int          `json:"instances"`
	Offered *mainAmounts `json:"offered"` // nil: not known
	Claimed mainAmounts  `json:"claimed"`
}

// mainAmounts are of mainMeasures.
type mainAmounts struct {
	VCPU     int64 `json:"VCPU"`
	MemoryMB int64 `json:"MEMORY_MB"`
	DiskGB   int64 `json:"DISK_GB"`
}

func (a mainAmounts) of(m tenant.Measure) int64 {
	switch croft.ResourceClass(m) {
	case croft.VCPU:
		return a.VCPU
	case croft.MemoryMB:
		return a.MemoryMB
	}
	return a.DiskGB
}

func (v *visit) showHosts() error {
	return v.showLate("hosts", "Hosts", func() (any, error) {
		d, err := v.hosts()
		if err != nil {
			return nil, err
		}
		rows, err := d.rows()
		q := v.r.URL.Query()
		q.Set("seen", markOf(rows))
		d.Follow = Root + "/hosts/events?" + q.Encode()
		return d, err
	})
}

// followHosts streams the rows of the table of hosts.
func (v *visit) followHosts() error {
	return v.followRows(func(v *visit) ([]liveRow, error) {
		d, err := v.hosts()
		if err != nil {
			return nil, err
		}
		return d.rows()
	})
}

func (d *hostsPage) rows() (all []liveRow, err error) {
	for _, h := range d.Rows {
		row, err := rendered("hosts", "host", string(h.ID), h)
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, nil
}

// hosts reads what the address asks for.
func (v *visit) hosts() (*hostsPage, error) {
	q := v.r.URL.Query()
	asked := hostsQuery{Name: q.Get("name"), State: q.Get("state"), At: strings.Trim(q.Get("at"), "/"),
		States: hostStates}
	asked.Filtered = cmp.Or(asked.Name, asked.State, asked.At) != ""
	which := api.Listing{}
	which.Name, which.State = given(q["name"]), given(q["state"])
	for i, name := range which.Name {
		if _, err := croft.ParseHostID(name); err != nil && !strings.HasSuffix(name, "*") {
			which.Name[i] = name + "*"
		}
	}
	end, err := v.manyHosts(v.ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var all []*hostRow
	list, err := client.EachHost(v.ctx, v.client, which, func(h briefHost) {
		if isWithin(h.Location, asked.At) {
			all = append(all, rowOfHost(h))
		}
	})
	if err != nil {
		return nil, err
	}
	d := pictureOf(list, all, asked.At, q)
	d.hostsQuery = asked
	return d, nil
}

// pictures is how many pictures of all hosts are made at once, however many pages are open: each of a few thousand
// hosts takes some megabytes.
const pictures = 2

// manyHosts waits for a turn to read all hosts; end ends it.
func (s *Server) manyHosts(ctx context.Context) (end func(), err error) {
	select {
	case s.pictures <- struct{}{}:
		return func() { <-s.pictures }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// isWithin reports whether a location is another one, or inside of it.
func isWithin(location, at string) bool {
	return at == "" || location == at || strings.HasPrefix(location, at+"/")
}

// pictureOf draws the hosts at a location; list has what else is known of them.
func pictureOf(list api.HostList, all []*hostRow, at string, q url.Values) *hostsPage {
	d := &hostsPage{Problems: list.Problems, Partial: list.Error}
	to := func(name, value string) string {
		next := url.Values{}
		for _, key := range []string{"name", "state", "at"} {
			if q.Get(key) != "" {
				next.Set(key, q.Get(key))
			}
		}
		next.Set(name, value)
		if value == "" {
			next.Del(name)
		}
		if len(next) == 0 {
			return Root + "/hosts"
		}
		return Root + "/hosts?" + next.Encode()
	}
	d.Total, d.Gauges = len(all), sumOf(all)
	d.Counts = countStates(all, func(state string) string { return to("state", state) })
	d.Alone = len(all) <= mostDrawn
	path := ""
	for part := range strings.SplitSeq(at, "/") {
		if part != "" {
			path = strings.TrimPrefix(path+"/"+part, "/")
			d.Trail = append(d.Trail, trailStep{part, to("at", path)})
		}
	}
	d.arrange(all, func(location string) string { return to("at", location) })
	start := 0
	if name, id, paged := strings.Cut(q.Get("after"), "/"); paged {
		start = slices.IndexFunc(all, func(h *hostRow) bool {
			return cmp.Or(cmp.Compare(h.Name, name), cmp.Compare(string(h.ID), id)) > 0
		})
		if start < 0 {
			start = len(all)
		}
	}
	d.Rows = all[start:min(len(all), start+hostsTableRows)]
	if start > 0 {
		d.First = to("after", "")
	}
	if start+hostsTableRows < len(all) {
		last := d.Rows[len(d.Rows)-1]
		d.Next = to("after", last.Name+"/"+string(last.ID))
	}
	return d
}

func rowOfHost(h briefHost) *hostRow {
	r := &hostRow{briefHost: h, Link: Root + "/hosts/" + string(h.ID), Gauges: make([]gauge, 0, len(mainMeasures))}
	var offered mainAmounts
	if h.Offered != nil {
		offered = *h.Offered
	}
	for _, m := range mainMeasures {
		g := gaugeOf(m, h.Claimed.of(m), offered.of(m))
		g.Unknown, g.Withdrawn = h.Offered == nil, g.Total == 0
		r.Gauges, r.Most = append(r.Gauges, g), max(r.Most, g.Percent())
	}
	return r
}

// sumOf adds up the inventories of hosts, and the claims on them. Silent hosts offer nothing, whatever is claimed.
func sumOf(all []*hostRow) []gauge {
	var sums []gauge
	for i, m := range mainMeasures {
		sum := gaugeOf(m, 0, 0)
		for _, h := range all {
			if h.Alive {
				sum.Used, sum.Total = sum.Used+h.Gauges[i].Used, sum.Total+h.Gauges[i].Total
			}
		}
		sums = append(sums, sum)
	}
	return sums
}

// countStates counts hosts by state, in the order of hostStates.
func countStates(all []*hostRow, to func(string) string) []stateCount {
	counts := map[string]int{}
	for _, h := range all {
		counts[h.State]++
	}
	var list []stateCount
	for _, state := range hostStates {
		if n := counts[state]; n > 0 {
			list = append(list, stateCount{state, n, to(state)})
		}
	}
	return list
}

// arrange draws places by site and row. Of too many racks it draws the rows, of too many rows the sites.
func (d *hostsPage) arrange(all []*hostRow, to func(string) string) {
	depth := len(croft.Levels) - 1
	var places map[string]*place
	for ; depth > 0; depth-- {
		places = map[string]*place{}
		for _, h := range all {
			path := firstParts(h.Location, depth)
			if places[path] == nil {
				places[path] = &place{Path: path, Name: path[strings.LastIndex(path, "/")+1:], Link: to(path)}
			}
			places[path].Hosts = append(places[path].Hosts, h)
		}
		if len(places) <= mostPlaces {
			break
		}
	}
	sites, rows := map[string]*site{}, map[string]*siteRow{}
	for _, path := range slices.SortedFunc(maps.Keys(places), byNumber) {
		p := places[path]
		p.Gauges = sumOf(p.Hosts)
		p.Counts = countStates(p.Hosts, func(string) string { return "" })
		slices.SortStableFunc(p.Hosts, func(a, b *hostRow) int { return byNumber(a.Name, b.Name) })
		if !d.Alone {
			p.cells = draw(p.Hosts)
		}
		top := firstParts(path, 1)
		if depth == 1 || !strings.Contains(path, "/") {
			top = "" // the tile has the name of the site
		}
		if sites[top] == nil {
			sites[top] = &site{Name: top}
			d.Sites = append(d.Sites, sites[top])
		}
		row := ""
		if strings.Count(path, "/") == 2 {
			row = firstParts(path, 2)
		}
		key := top + "\x00" + row
		if rows[key] == nil {
			rows[key] = &siteRow{Name: row[strings.LastIndex(row, "/")+1:]}
			sites[top].Rows = append(sites[top].Rows, rows[key])
		}
		rows[key].Places = append(rows[key].Places, p)
	}
}

// firstParts returns the first parts of a location.
func firstParts(location string, n int) string {
	parts := strings.Split(location, "/")
	return strings.Join(parts[:min(n, len(parts))], "/")
}

// byNumber compares names such that rack2 comes before rack10.
func byNumber(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x > 0 && y > 0 {
			m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
			if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
				return c
			}
			a, b = a[x:], b[y:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits counts the digits at the start of a text.
func digits(text string) int { return len(text) - len(strings.TrimLeft(text, "0123456789")) }

// The picture of a cell, in units of the picture.
const (
	cellSize  = 16
	cellPitch = 20
)

// draw draws a cell for each host, filled from below by its scarcest resource. A mark in a cell tells that its host is
// drained (a stroke), silent (a cross), or otherwise not ready (a square).
func draw(all []*hostRow) cells {
	columns := 10
	for columns*columns*2 < len(all) {
		columns += 5
	}
	lines := (len(all) + columns - 1) / columns
	c := cells{Width: min(columns, len(all))*cellPitch - cellPitch + cellSize + 2,
		Height: lines*cellPitch - cellPitch + cellSize + 2}
	var room, used, drained, silent, other strings.Builder
	for i, h := range all {
		x, y := i%columns*cellPitch+1, i/columns*cellPitch+1
		fmt.Fprintf(&room, "M%d %dh%dv%dh-%dz", x, y, cellSize, cellSize, cellSize)
		if n := (h.Most*cellSize + 50) / 100; n > 0 {
			fmt.Fprintf(&used, "M%d %dh%dv%dh-%dz", x, y+cellSize-n, cellSize, n, cellSize)
		}
		switch h.State {
		case "ready":
		case "drained":
			fmt.Fprintf(&drained, "M%d %dl%d -%d", x, y+cellSize, cellSize, cellSize)
		case "silent":
			fmt.Fprintf(&silent, "M%d %dl%d %dm-%d 0l%d -%d", x, y, cellSize, cellSize, cellSize, cellSize, cellSize)
		default:
			fmt.Fprintf(&other, "M%d %dh%dv%dh-%dz", x+4, y+4, cellSize-8, cellSize-8, cellSize-8)
		}
	}
	c.Room, c.Used, c.Drained = room.String(), used.String(), drained.String()
	c.Silent, c.Other = silent.String(), other.String()
	return c
}

// Says describes a place in words.
func (p *place) Says() string {
	says := wording.Count(len(p.Hosts), "host")
	for _, g := range p.Gauges {
		says += fmt.Sprintf(", %s %d%%", g.Name, g.Percent())
	}
	for _, c := range p.Counts {
		if c.State != "ready" {
			says += fmt.Sprintf(", %d %s", c.Count, c.State)
		}
	}
	return says
}

// Full is the highest percentage of the gauges.
func (p *place) Full() int {
	most := 0
	for _, g := range p.Gauges {
		most = max(most, g.Percent())
	}
	return most
}
