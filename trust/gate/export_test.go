package gate

import (
	"context"
	"strings"
)

// Policy returns what a host may do with each served method.
func Policy() map[string]string {
	allows := map[string]string{}
	for name, m := range policy {
		allows[name] = m.allows
	}
	return allows
}

// Clean returns a text as cleaned by the gate.
func Clean(text string) string { return clean(text) }

// CleanTexts cleans what a host sent.
func CleanTexts(sent any) { cleanTexts(sent) }

// Longest is a text of the maximum length.
var Longest = strings.Repeat("x", longest)

// Limits on what one host may have in flight.
const (
	MostStreams = mostStreams
	AtOnce      = atOnce
	PerSecond   = perSecond
)

// NewAllowance returns a function that pays for messages of one host.
func NewAllowance() (pay func(ctx context.Context, bytes int) error) {
	return new(allowances).of("").pay
}

// NewNames returns a function that charges for the names of one host.
func NewNames() (bring func(map[string]bool) error) {
	return new(allowances).of("").bring
}
