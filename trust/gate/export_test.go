package gate

import (
	"context"
	"strings"
)

// Policy returns what a host may do with each method that is served.
func Policy() map[string]string {
	allows := map[string]string{}
	for name, m := range policy {
		allows[name] = m.allows
	}
	return allows
}

// Clean is what a gate makes of a text.
func Clean(text string) string { return clean(text) }

// Longest bounds a text that is too long.
var Longest = strings.Repeat("x", longest)

// What one host may have under way.
const (
	MostStreams = mostStreams
	AtOnce      = atOnce
	PerSecond   = perSecond
)

// NewAllowance is what a host may take, and pays for what it sends.
func NewAllowance() (pay func(ctx context.Context, bytes int) error) {
	return new(allowances).of("").pay
}

// NewNames pays for the names that a host brings.
func NewNames() (bring func(map[string]bool) error) {
	return new(allowances).of("").bring
}
