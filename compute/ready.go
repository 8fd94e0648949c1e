package compute

import (
	"context"
	"errors"
)

// Ready returns why the host does not take orders; nil: it takes orders.
func (a *Agent) Ready(context.Context) error {
	if why := a.troubles.seat.Load(); why != nil {
		return errors.New("this agent does nothing: " + *why)
	}
	if a.known.Load() {
		return nil
	}
	if err := a.troubles.known.Load(); err != nil {
		return errors.Join(errors.New("the host does not take orders yet"), *err)
	}
	return errors.New("the host does not take orders yet")
}

// HypervisorReady returns the error of the last request to the hypervisor, at most ResyncEvery old. If that
// failed, it asks the hypervisor again.
func (a *Agent) HypervisorReady(ctx context.Context) error {
	if a.troubles.hypervisor.Load() == nil {
		return nil
	}
	_, err := a.Hypervisor.List(ctx)
	return err
}
