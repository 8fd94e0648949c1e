package tenants

import (
	"context"
	"time"

	"croft/internal/delay"
)

// settleEvery is the interval at which Settle looks for unsettled entries.
const settleEvery = time.Minute

// Settle settles entries until ctx ends, so that entries of projects without new requests are settled too, and removes
// tokens that expired long ago. Any number of processes may do so.
func (s *Projects) Settle(ctx context.Context) error {
	delay.Every(ctx, settleEvery, func(ctx context.Context) { // an error is retried at the next interval
		_ = NewAccessTokens(s).removeExpired(ctx)
		_ = s.settle(ctx)
	})
	return ctx.Err()
}
