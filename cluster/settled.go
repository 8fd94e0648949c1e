package cluster

import "slices"

// Settled reports whether nothing is under way that ends by itself, or about to be: what is wanted is what the site was
// told, even if the manager has not seen yet that something else is wanted.
func (c Cluster) Settled() bool {
	if c.State == Ready || c.State == Degraded {
		return c.Sizing.Taken && slices.Equal(c.Sizing.Told, c.Indexes)
	}
	return c.State.Settled()
}
