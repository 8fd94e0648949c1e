package state

// IDs is the file ids.yaml: which ids were given. Ids are inputs of where everything goes, and are never given twice.
type IDs struct {
	NextNode   int // the next node's: 0 or more
	NextBucket int // the next directory's: -1 or less
	// Filters are the ids that buckets have in the tree of the nodes that a filter leaves, by the filter as text and
	// the id of the bucket.
	Filters map[string]map[int]int
}
