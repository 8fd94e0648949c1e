// Package docs has the documents for users in the program, which serves them.
package docs

import "embed"

// Files has users/*.md and api.md.
//
//go:embed users/*.md api.md
var Files embed.FS
