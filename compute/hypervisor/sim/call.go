package sim

import (
	"context"

	"croft"
)

// call runs f under h.mu, after all earlier requests for the same instance.
func call[T any](ctx context.Context, h *Hypervisor, op string, id croft.InstanceID, f func() (T, error)) (T, error) {
	var none T
	if h.config.Fault != nil {
		if err := h.config.Fault(ctx, op, id); err != nil {
			return none, err
		}
	}
	gone := func() (T, error) {
		return none, croft.Errorf(croft.Unavailable, "%s %s: %w", op, id, context.Cause(ctx))
	}
	if ctx.Err() != nil {
		return gone()
	}
	locked := func() (T, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return f()
	}
	if h.config.Late == nil {
		return locked()
	}
	leave := func() {}
	if id != "" {
		var err error
		if leave, err = h.turns.Take(ctx, id); err != nil {
			return gone()
		}
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	h.late.Go(func() {
		defer leave()
		h.config.Late(op, id)
		value, err := locked()
		done <- answer{value, err}
	})
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return gone()
	}
}

// do is call for operations without a result.
func (h *Hypervisor) do(ctx context.Context, op string, id croft.InstanceID, f func() error) error {
	_, err := call(ctx, h, op, id, func() (struct{}, error) { return struct{}{}, f() })
	return err
}
