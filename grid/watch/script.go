package watch

import _ "embed"

// Script is the program that a node runs to send beats, and to stop its exclusive jobs when it has no lease. ¶
//
//go:embed node.sh
var Script string
