package template

import _ "embed"

// Minimal is what builds a cluster of an image alone: a master with a floating IP, and slaves like it.
//
//go:embed minimal.yaml
var Minimal string
