package template

import _ "embed"

// Minimal is the template for a cluster from an image alone: a master with a floating IP, and slaves of the same kind.
//
//go:embed minimal.yaml
var Minimal string
