package state

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"croft/grid/unit"
)

// RosterFile lists the nodes that have had slots, and how to connect to them.
const RosterFile = "roster.yaml"

// Left is the state of a node that has had slots and whose file was removed or renamed. Its units may still run.
const Left = "left"

// loadRoster reads roster.yaml.
func (l *loading) loadRoster() {
	if !l.files.has(RosterFile) {
		return
	}
	v := l.read(RosterFile, &l.problems)
	for _, name := range v.Keys {
		f := fields{v, &l.problems, ""}.below(name)
		if f.v == nil {
			continue
		}
		n := unit.Node{Name: name, ID: f.number("id", 0, 1<<30, 0), Local: f.text("local") != "",
			Address: cmp.Or(f.text("address"), name), User: f.text("user"), HostKey: f.text("host_key"),
			StateDir: f.text("state_dir"), State: Left, Units: []unit.Unit{}}
		if !validName.MatchString(name) {
			l.problems.add(f.at(""), "%q is no name of a node: %s", name, nameHint)
		}
		l.s.Roster = append(l.s.Roster, n)
	}
	slices.SortFunc(l.s.Roster, func(a, b unit.Node) int { return strings.Compare(a.Name, b.Name) })
}

// Reach returns how to connect to a node and where it keeps its state, without its units.
func (s *State) Reach(n *Node) unit.Node {
	return unit.Node{Name: n.Name, ID: n.ID, Local: n.Local, Address: n.Address, User: n.User, HostKey: n.HostKey,
		StateDir: cmp.Or(n.StateDir, s.Cluster.StateDir), State: n.State, Units: []unit.Unit{}}
}

// Left returns the nodes of the roster that no longer have a file, by name. It omits a node with the same address, user
// and state directory as a node that has a file: that one was renamed.
func (s *State) Left() []unit.Node {
	return slices.DeleteFunc(slices.Clone(s.Roster), func(old unit.Node) bool {
		return slices.ContainsFunc(s.Leaves, func(n *Node) bool {
			now := s.Reach(n)
			return now.Name == old.Name || now.Local == old.Local && now.StateDir == old.StateDir &&
				(now.Local || now.Address == old.Address && now.User == old.User)
		})
	})
}

// RosterText returns the content of roster.yaml with the nodes in has, the nodes of the roster, and the nodes that
// links below alloc/ still lead to. "": the file does not change.
func (s *State) RosterText(has []*Node) string {
	known := map[string]unit.Node{}
	for _, n := range s.Left() {
		known[n.Name] = n
	}
	add := func(n *Node) { known[n.Name] = s.Reach(n) }
	for _, n := range has {
		add(n)
	}
	for _, old := range s.Roster {
		if n := s.Node(old.Name); n != nil {
			add(n)
		}
	}
	orphans := s.Orphans
	for _, j := range s.Jobs {
		orphans = append(orphans[:len(orphans):len(orphans)], j.Slots...)
	}
	for _, slot := range orphans {
		name := strings.TrimSuffix(path.Base(slot.Target), ".yaml")
		if _, is := known[name]; is || !validName.MatchString(name) {
			continue
		}
		if n := s.Node(name); n != nil {
			add(n)
		} else {
			known[name] = unit.Node{Name: name, Address: name, StateDir: s.Cluster.StateDir}
		}
	}
	text := rosterText(known)
	if text == rosterText(byName(s.Roster)) {
		return ""
	}
	return text
}

// WithoutLeft returns the content of roster.yaml without the named nodes, which no longer have a file.
func (s *State) WithoutLeft(names []string) string {
	known := byName(s.Roster)
	for _, name := range names {
		delete(known, name)
	}
	return rosterText(known)
}

func byName(nodes []unit.Node) map[string]unit.Node {
	all := map[string]unit.Node{}
	for _, n := range nodes {
		all[n.Name] = n
	}
	return all
}

func rosterText(nodes map[string]unit.Node) string {
	list := make([]unit.Node, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b unit.Node) int { return strings.Compare(a.Name, b.Name) })
	var b strings.Builder
	b.WriteString("# The nodes that have had slots, and how they are reached. Kept by grid place. Where the file of a node is\n" +
		"# removed, grid apply ends what still runs there; once nothing does, run grid node gone.\n")
	for _, n := range list {
		fmt.Fprintf(&b, "%s: {id: %d", strconv.Quote(n.Name), n.ID)
		if n.Local {
			b.WriteString(", local: 'true'")
		}
		for _, f := range [][2]string{{"address", n.Address}, {"user", n.User}, {"host_key", n.HostKey},
			{"state_dir", n.StateDir}} {
			if f[1] != "" && (f[0] != "address" || f[1] != n.Name && !n.Local) {
				fmt.Fprintf(&b, ", %s: %s", f[0], strconv.Quote(f[1]))
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}
