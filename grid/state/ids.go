package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// IDsFile is the file that records which ids were given.
const IDsFile = "ids.yaml"

// IDs is the content of ids.yaml: which ids were given. Placement depends on the ids, so an id is never given twice.
type IDs struct {
	NextNode   int // the id of the next new node: 0 or more
	NextBucket int // the id of the next new directory: -1 or less
	// Filters are the ids of shadow buckets: the copy of a bucket that contains only the nodes that pass a filter. The
	// keys are the filter's text and the id of the bucket.
	Filters map[string]map[int]int
}

// Clone returns a deep copy, in which ids can be given.
func (ids IDs) Clone() IDs {
	filters := make(map[string]map[int]int, len(ids.Filters))
	for filter, of := range ids.Filters {
		filters[filter] = maps.Clone(of)
	}
	ids.Filters = filters
	return ids
}

// GiveNode returns the next node id and counts it as given.
func (ids *IDs) GiveNode() int {
	ids.NextNode++
	return ids.NextNode - 1
}

// GiveBucket returns the next directory id and counts it as given.
func (ids *IDs) GiveBucket() int {
	ids.NextBucket--
	return ids.NextBucket + 1
}

// Shadow returns the id of a bucket's shadow bucket for a filter, and gives it one if it has none.
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

// Text returns the content of ids.yaml.
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
