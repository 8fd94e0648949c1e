package audit

import (
	"context"

	"croft"
)

// Resizes ends requests to resize instances whose processes died.
type Resizes interface {
	// EndResize ends a request if its session is still the record's: the instance claims what its record says. A record
	// that changed meanwhile is no error.
	EndResize(ctx context.Context, inst croft.Instance) error
}

// checkResize finds a request to resize an instance whose process died.
func (c *comparison) checkResize(inst croft.Instance) {
	if inst.Resizing != nil && c.Sessions != nil && !c.Sessions[inst.Resizing.Session] {
		c.report(inst, Difference{Kind: AbandonedResize, Mendable: true,
			Cause: "the program that was resizing it to " + inst.Resizing.Resources.String() + " died"})
	}
}
