package cluster

import "slices"

// Settled reports whether no operation is in progress or about to start: the size that the site was last asked for is
// the wanted one. It notices a change that the manager has not seen yet.
func (c Cluster) Settled() bool {
	if c.State == Ready || c.State == Degraded {
		return c.Sizing.Taken && slices.Equal(c.Sizing.Told, c.Indexes)
	}
	return c.State.Settled()
}
