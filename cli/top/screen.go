package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"croft"
	"croft/cli/instances"
	"croft/internal/out"
)

// screen is the state of the display: the list in focus, and for each list its order and scroll position.
type screen struct {
	color bool
	focus int // 0: hosts, 1: instances
	lists [2]list
}

type list struct {
	sort    int // index of a column
	reverse bool
	offset  int
	rows    int // number of rows, and of rows that fit, when last drawn
	fits    int
}

// column describes a column: its head, its text, and its order.
type column[T any] struct {
	head  string
	show  func(T) out.Cell
	order func(a, b T) int
}

var hostColumns = []column[host]{
	{"HOST", func(h host) out.Cell { return out.Cell{Text: h.Name} },
		func(a, b host) int { return cmp.Compare(a.Name, b.Name) }},
	{"STATE", host.state, func(a, b host) int { return cmp.Compare(a.State, b.State) }},
	{"INSTANCES", func(h host) out.Cell { return out.Cell{Text: fmt.Sprint(h.Instances)} },
		func(a, b host) int { return cmp.Compare(b.Instances, a.Instances) }},
	{"CPU", func(h host) out.Cell { return out.Cell{Text: percent(h.CPU)} },
		func(a, b host) int { return compareKnown(b.CPU, a.CPU) }},
	{"VCPU", func(h host) out.Cell { return out.Cell{Text: h.share(croft.VCPU)} }, byShare(croft.VCPU)},
	{"MEMORY_MB", func(h host) out.Cell { return out.Cell{Text: h.share(croft.MemoryMB)} }, byShare(croft.MemoryMB)},
	{"DISK_GB", func(h host) out.Cell { return out.Cell{Text: h.share(croft.DiskGB)} }, byShare(croft.DiskGB)},
}

var instanceColumns = []column[instance]{
	{"INSTANCE", func(i instance) out.Cell { return out.Cell{Text: i.label()} },
		func(a, b instance) int { return cmp.Compare(a.label(), b.label()) }},
	{"STATE", instance.state, func(a, b instance) int { return cmp.Compare(a.State, b.State) }},
	{"HOST", func(i instance) out.Cell { return out.Cell{Text: out.OrDash(i.Host)} },
		func(a, b instance) int { return cmp.Compare(a.Host, b.Host) }},
	{"CPU", func(i instance) out.Cell { return out.Cell{Text: percent(i.CPU)} },
		func(a, b instance) int { return compareKnown(b.CPU, a.CPU) }},
	{"MEMORY", func(i instance) out.Cell { return out.Cell{Text: mebibytes(i.Memory)} },
		func(a, b instance) int { return compareKnown(b.Memory, a.Memory) }},
	{"VCPU", func(i instance) out.Cell { return out.Cell{Text: fmt.Sprint(i.Resources[croft.VCPU])} },
		func(a, b instance) int {
			return cmp.Compare(b.Resources[croft.VCPU], a.Resources[croft.VCPU])
		}},
	{"ADDRESS", func(i instance) out.Cell { return out.Cell{Text: out.OrDash(i.Address)} },
		func(a, b instance) int { return cmp.Compare(a.Address, b.Address) }},
	{"CREATED", func(i instance) out.Cell { return out.Cell{Text: i.Created.Local().Format("Jan _2 15:04")} },
		func(a, b instance) int { return b.Created.Compare(a.Created) }},
}

func (h host) state() out.Cell {
	switch {
	case h.State == "silent":
		return out.Cell{Text: h.State, Color: out.Red}
	case len(h.Problems) > 0:
		return out.Cell{Text: h.State + " !", Color: out.Red}
	case h.State == "drained":
		return out.Cell{Text: h.State, Color: out.Yellow}
	}
	return out.Cell{Text: h.State, Color: out.Green}
}

// label returns an instance's name, with its project if all projects are shown.
func (i instance) label() string {
	if i.ofAll {
		return string(i.Project) + "/" + i.Name
	}
	return i.Name
}

func (i instance) state() out.Cell { return instances.StateCell(i.State) }

// percent formats the load in percent of one CPU.
func percent(cpus *float64) string {
	if cpus == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", *cpus*100)
}

func mebibytes(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%d MiB", *n>>20)
}

// compareKnown sorts unknown values first.
func compareKnown[T cmp.Ordered](a, b *T) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}

// byShare sorts the hosts with the highest claimed share of a class first.
func byShare(class croft.ResourceClass) func(a, b host) int {
	part := func(h host) float64 {
		if h.Offered[class] == 0 {
			return -1
		}
		return float64(h.Claimed[class]) / float64(h.Offered[class])
	}
	return func(a, b host) int { return cmp.Compare(part(b), part(a)) }
}

// sortedLines sorts a list and returns its head and its rows.
func sortedLines[T any](list []T, columns []column[T], how list, tie func(a, b T) int, color bool) (head string,
	rows []string, order []T) {
	order = slices.Clone(list)
	by := columns[how.sort]
	slices.SortFunc(order, func(a, b T) int {
		if how.reverse {
			a, b = b, a
		}
		return cmp.Or(by.order(a, b), tie(a, b))
	})
	t := out.Table{Color: color}
	var heads []string
	for i, c := range columns {
		if i == how.sort {
			c.head += map[bool]string{false: "↓", true: "↑"}[how.reverse]
		}
		heads = append(heads, c.head)
	}
	t.Head(heads...)
	for _, one := range order {
		var row []out.Cell
		for _, c := range columns {
			row = append(row, c.show(one))
		}
		t.Row(row...)
	}
	text := strings.Split(strings.TrimSuffix(t.String(), "\n"), "\n")
	return text[0], text[1:], order
}

func (s *screen) hosts(v View) (string, []string, []host) {
	return sortedLines(v.Hosts, hostColumns, s.lists[0], func(a, b host) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	}, s.color)
}

func (s *screen) instances(v View) (string, []string, []instance) {
	return sortedLines(v.Instances, instanceColumns, s.lists[1],
		func(a, b instance) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) }, s.color)
}

// whole returns the whole output, for printing once.
func (s *screen) whole(v View) string {
	hostHead, hosts, _ := s.hosts(v)
	instanceHead, instances, _ := s.instances(v)
	all := slices.Concat(s.summary(v), []string{"", hostHead}, hosts, []string{"", instanceHead}, instances)
	return strings.Join(all, "\n") + "\n"
}

// summary describes the cloud in two lines.
func (s *screen) summary(v View) []string {
	states, words := map[string]int{}, map[string]int{}
	offered, claimed := croft.Resources{}, croft.Resources{}
	for _, h := range v.Hosts {
		states[h.State]++
		for class, n := range h.Offered {
			offered[class] += n
			claimed[class] += h.Claimed[class]
		}
	}
	for _, i := range v.Instances {
		words[i.State]++
	}
	second := "claimed: "
	for _, class := range []croft.ResourceClass{croft.VCPU, croft.MemoryMB, croft.DiskGB} {
		part := "-"
		if offered[class] > 0 {
			part = fmt.Sprintf("%d/%d (%d%%)", claimed[class], offered[class], 100*claimed[class]/offered[class])
		}
		second += fmt.Sprintf("%s %s  ", class, part)
	}
	instances := tally(fmt.Sprint(len(v.Instances)), words)
	if v.Others > 0 {
		instances = tally(fmt.Sprintf("%d of %d", len(v.Instances), len(v.Instances)+v.Others), words) +
			"; -a shows all projects"
	}
	return []string{
		fmt.Sprintf("croft %s   hosts: %s   instances: %s", v.At.Local().Format(time.TimeOnly),
			tally(fmt.Sprint(len(v.Hosts)), states), instances),
		strings.TrimSpace(second),
	}
}

// tally returns a text like "3 (2 ready, 1 silent)".
func tally(n string, by map[string]int) string {
	var parts []string
	for _, word := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%d %s", by[word], word))
	}
	if len(parts) == 0 {
		return n
	}
	return fmt.Sprintf("%s (%s)", n, strings.Join(parts, ", "))
}

// draw returns the screen, line by line, and the hosts whose guests it shows.
func (s *screen) draw(v View, width, height int) (screen []string, shown []croft.HostID) {
	hostHead, hosts, order := s.hosts(v)
	instanceHead, instances, guests := s.instances(v)
	last := "q quit  Tab other list  s sort  r reverse  ↑↓ PgUp PgDn scroll"
	if v.Trouble != "" {
		last = out.Paint(v.Trouble, out.Red, s.color)
	}
	room := max(height-6, 2) // two lines of summary, one of help, a blank one, two heads
	s.share(room, len(hosts), len(instances))
	screen = append(s.summary(v), hostHead)
	screen = append(screen, window(s.lists[0], hosts)...)
	screen = append(screen, "", instanceHead)
	screen = append(screen, window(s.lists[1], instances)...)
	for len(screen) < height-1 {
		screen = append(screen, "")
	}
	screen = append(screen[:max(height-1, 0)], last)
	for i := range screen {
		screen[i] = clip(screen[i], width)
	}
	for _, h := range window(s.lists[0], order) {
		shown = append(shown, h.ID)
	}
	for _, i := range window(s.lists[1], guests) {
		if i.hostID != "" {
			shown = append(shown, i.hostID)
		}
	}
	return screen, shown
}

// share divides the lines between the lists: the one in focus gets two thirds, if it needs them.
func (s *screen) share(room, hosts, instances int) {
	need := [2]int{hosts, instances}
	small := 1 - s.focus
	fits := max(room/3, min(room-need[s.focus], need[small]))
	s.lists[small].lay(need[small], min(fits, max(need[small], 1)))
	s.lists[s.focus].lay(need[s.focus], room-s.lists[small].fits)
}

// lay records how many rows there are and how many fit, and limits the scroll position.
func (l *list) lay(rows, fits int) {
	l.rows, l.fits = rows, max(fits, 0)
	l.offset = max(0, min(l.offset, rows-l.fits))
}

// window returns the visible part of a list.
func window[T any](l list, rows []T) []T {
	return rows[l.offset:min(l.offset+l.fits, len(rows))]
}

// clip shortens a line with colors to a width.
func clip(line string, width int) string {
	var b strings.Builder
	for seen := 0; line != ""; {
		if strings.HasPrefix(line, "\x1b[") {
			end := strings.IndexByte(line, 'm') + 1
			b.WriteString(line[:end])
			line = line[end:]
			continue
		}
		_, size := utf8.DecodeRuneInString(line)
		if seen < width {
			b.WriteString(line[:size])
		}
		seen++
		line = line[size:]
	}
	return b.String()
}

// key handles a key, and reports whether to quit.
func (s *screen) key(key string) (quit bool) {
	l := &s.lists[s.focus]
	columns := [2]int{len(hostColumns), len(instanceColumns)}[s.focus]
	switch key {
	case "q", "\x03", "\x04":
		return true
	case "\t":
		s.focus = 1 - s.focus
	case "s":
		l.sort = (l.sort + 1) % columns
	case "r":
		l.reverse = !l.reverse
	case "\x1b[A", "\x1bOA", "k":
		l.offset--
	case "\x1b[B", "\x1bOB", "j":
		l.offset++
	case "\x1b[5~":
		l.offset -= l.fits
	case "\x1b[6~", " ":
		l.offset += l.fits
	case "\x1b[H", "\x1b[1~", "g":
		l.offset = 0
	case "\x1b[F", "\x1b[4~", "G":
		l.offset = l.rows
	}
	l.lay(l.rows, l.fits)
	return false
}
