package state

import (
	"fmt"
	"maps"
	"slices"
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
