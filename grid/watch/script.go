package watch

import _ "embed"

// Script is the program of a node that sends its beats, and ends its exclusive jobs when it has no lease.
//
//go:embed node.sh
var Script string
