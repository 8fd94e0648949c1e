package state

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// loadIDs reads ids.yaml.
func (l *loading) loadIDs() {
	ids := IDs{NextBucket: -1, Filters: map[string]map[int]int{}}
	defer func() { l.s.IDs = ids }()
	if !l.files.has(IDsFile) {
		return
	}
	top := fields{l.read(IDsFile, &l.problems), &l.problems, ""}
	ids.NextNode, ids.NextBucket = top.number("next_node", 0, 1<<30, 0), top.number("next_bucket", -1<<30, -1, -1)
	filters := top.below("filters")
	if filters.v == nil {
		return
	}
	for _, filter := range filters.v.Keys {
		in := filters.below(filter)
		ids.Filters[filter] = map[int]int{}
		if in.v == nil {
			continue
		}
		for _, key := range in.v.Keys {
			bucket, err := strconv.Atoi(key)
			if err != nil || bucket >= 0 {
				l.problems.add(in.at(key), "%q is no id of a directory", key)
				continue
			}
			ids.Filters[filter][bucket] = in.number(key, -1<<30, -1, -1)
		}
	}
}

// given raises the next ids above the ids that the tree uses, in case ids.yaml lags behind the tree.
func (l *loading) given() {
	ids := &l.s.IDs
	for _, n := range l.s.Leaves {
		ids.NextNode = max(ids.NextNode, n.ID+1)
	}
	for _, b := range l.s.Buckets {
		ids.NextBucket = min(ids.NextBucket, b.ID-1)
	}
	for _, of := range ids.Filters {
		for _, id := range of {
			ids.NextBucket = min(ids.NextBucket, id-1)
		}
	}
}

// checkNodes reports duplicate addresses and other node settings that contradict each other.
func (l *loading) checkNodes() {
	byAddress := map[string]*Node{}
	weighs := false
	for i, n := range l.s.Leaves {
		if i > 0 && l.s.Leaves[i-1].Name == n.Name {
			l.problems.add(Position{File: n.Path}, "the node %s is also in %s: names of nodes are unique in the cluster",
				n.Name, l.s.Leaves[i-1].Path)
			continue
		}
		weighs = weighs || n.Weight > 0
		address := n.Address
		if n.Local {
			address = "this machine, with the state_dir " + n.StateDir
		}
		if other := byAddress[address]; other != nil && address != "" {
			l.problems.add(fields{v: n.Values}.at("address"), "the node %s has the address of %s (%s): %s", n.Name,
				other.Name, other.Path, strings.TrimSuffix(address, ", with the state_dir "))
			continue
		}
		byAddress[address] = n
	}
	if len(l.s.Leaves) > 0 && !weighs {
		l.warn(Position{File: l.s.Root.Path}, "every node has the weight 0, so nothing can be placed")
	}
	for _, b := range l.s.Buckets {
		if b.Parent != nil && len(b.Nodes) == 0 && len(b.Buckets) == 0 {
			l.warn(Position{File: b.Path}, "the directory has no nodes")
		}
	}
}

// checkIDs reports ids that are missing or used twice.
func (l *loading) checkIDs() {
	had := map[int]string{}
	for _, b := range l.s.Buckets {
		l.checkID(had, b.ID, b.ID == 0, path.Join(b.Path, "_.yaml"), fields{v: b.Values}.at("id"))
	}
	for _, n := range l.s.Leaves {
		l.checkID(had, n.ID, n.ID < 0, n.Path, fields{v: n.Values}.at("id"))
	}
	for filter, ids := range l.s.IDs.Filters {
		for bucket, id := range ids {
			if other := had[id]; other != "" {
				l.ids.add(Position{File: IDsFile}, "the id %d of the bucket %d among the nodes of %q is also the id "+
					"of %s: run grid node renumber", id, bucket, filter, other)
			}
			had[id] = "the filter " + filter
		}
	}
}

func (l *loading) checkID(had map[int]string, id int, missing bool, file string, at Position) {
	switch {
	case missing:
		l.ids.add(Position{File: file}, "this needs an id: grid node renumber gives it one")
	case had[id] != "":
		l.ids.add(at, "the id %d is also the id of %s: grid node renumber fixes it", id, had[id])
	default:
		had[id] = file
	}
}

// checkFacts reports facts that jobs require and no node has.
func (l *loading) checkFacts() {
	had := map[string]bool{}
	for _, j := range l.s.Jobs {
		for _, fact := range j.Require {
			if _, known := had[fact]; !known {
				had[fact] = slices.ContainsFunc(l.s.Leaves, func(n *Node) bool { return n.Matches(fact) })
			}
			if !had[fact] {
				l.warn(fields{v: j.Values}.at("require"), "no node has the fact %s, which the job %s requires", fact,
					j.Name)
			}
		}
	}
}

// nameBuckets names the buckets of the CRUSH map: by the directory's name if it is unique, otherwise by its path with
// dots.
func (l *loading) nameBuckets() {
	times := map[string]int{"default": 1}
	for _, n := range l.s.Leaves {
		times[n.Name]++
	}
	for _, b := range l.s.Buckets[min(1, len(l.s.Buckets)):] {
		times[path.Base(b.Path)]++
	}
	taken := map[string]string{}
	for _, n := range l.s.Leaves {
		taken[n.Name] = n.Path
	}
	for _, b := range l.s.Buckets {
		switch b.Name = path.Base(b.Path); {
		case b.Parent == nil:
			b.Name = "default"
		case times[b.Name] > 1:
			_, below, _ := strings.Cut(b.Path, "/")
			b.Name = strings.ReplaceAll(below, "/", ".")
		}
		if other := taken[b.Name]; other != "" {
			l.problems.add(Position{File: b.Path}, "the directory has the name %s, and so has %s: rename one of them",
				b.Name, other)
		}
		taken[b.Name] = b.Path
	}
}
