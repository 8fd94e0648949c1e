package tenants

import (
	"context"
	"time"

	"croft/internal/delay"
)

// settleEvery is how often Settle looks for entries that nobody settled.
const settleEvery = time.Minute

// Settle settles entries until ctx ends, so that what projects do not use for long leaves none, and removes tokens
// that expired long ago. Any number of processes may do so.
func (s *Projects) Settle(ctx context.Context) error {
	delay.Every(ctx, settleEvery, func(ctx context.Context) { // the next time is the retry
		_ = NewAccessTokens(s).removeExpired(ctx)
		_ = s.settle(ctx)
	})
	return ctx.Err()
}
