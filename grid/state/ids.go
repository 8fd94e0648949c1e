package state

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// IDsFile remembers which ids were given.
const IDsFile = "ids.yaml"

// IDs is the file ids.yaml: which ids were given. Ids are inputs of where everything goes, and are never given twice.
type IDs struct {
	NextNode   int // the next node's: 0 or more
	NextBucket int // the next directory's: -1 or less
	// Filters are the ids that buckets have in the tree of the nodes that a filter leaves, by the filter as text and
	// the id of the bucket.
	Filters map[string]map[int]int
}

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

// given counts the ids of the tree as given, so that the file may lag behind it.
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

// Clone copies the ids, so that others can be given.
func (ids IDs) Clone() IDs {
	filters := make(map[string]map[int]int, len(ids.Filters))
	for filter, of := range ids.Filters {
		filters[filter] = maps.Clone(of)
	}
	ids.Filters = filters
	return ids
}

// GiveNode gives the next id of a node.
func (ids *IDs) GiveNode() int {
	ids.NextNode++
	return ids.NextNode - 1
}

// GiveBucket gives the next id of a directory.
func (ids *IDs) GiveBucket() int {
	ids.NextBucket--
	return ids.NextBucket + 1
}

// Shadow returns the id of a bucket among the nodes that a filter leaves, and gives it one if it has none.
func (ids *IDs) Shadow(filter string, bucket int) int {
	of := ids.Filters[filter]
	if of == nil {
		of = map[int]int{}
		ids.Filters[filter] = of
	}
	if of[bucket] == 0 {
		of[bucket] = ids.GiveBucket()
	}
	return of[bucket]
}

// Text is the file ids.yaml.
func (ids IDs) Text() string {
	var b strings.Builder
	b.WriteString("# Which ids were given: they say where everything goes, so none is given twice. Kept by grid node and\n" +
		"# grid place; after a merge that does not fit, run grid node renumber.\n")
	fmt.Fprintf(&b, "next_node: %d\nnext_bucket: %d\n", ids.NextNode, ids.NextBucket)
	if len(ids.Filters) > 0 {
		b.WriteString("filters:\n")
	}
	for _, filter := range slices.Sorted(maps.Keys(ids.Filters)) {
		fmt.Fprintf(&b, "  %q:\n", filter)
		for _, bucket := range slices.Backward(slices.Sorted(maps.Keys(ids.Filters[filter]))) {
			fmt.Fprintf(&b, "    %d: %d\n", bucket, ids.Filters[filter][bucket])
		}
	}
	return b.String()
}
