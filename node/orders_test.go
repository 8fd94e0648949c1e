package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/compute"
)

// oracle gives configured answers.
type oracle struct {
	compute.Orders
	answer func(ctx context.Context) (croft.Order, error)
	asked  int
}

func (o *oracle) Order(ctx context.Context, _ croft.HostID, _ croft.InstanceID) (croft.Order, error) {
	o.asked++
	return o.answer(ctx)
}

func TestAGuestsOrderIsRememberedWhileNobodyAnswers(t *testing.T) {
	there := func(context.Context) (croft.Order, error) { return croft.Order{Generation: 1}, nil }
	changed := func(context.Context) (croft.Order, error) { return croft.Order{Generation: 2}, nil }
	away := func(context.Context) (croft.Order, error) {
		return croft.Order{}, croft.Errorf(croft.Unavailable, "away")
	}
	gone := func(context.Context) (croft.Order, error) { return croft.Order{}, croft.Errorf(croft.NotFound, "gone") }
	hangs := func(ctx context.Context) (croft.Order, error) { <-ctx.Done(); return croft.Order{}, ctx.Err() }
	type answer = func(context.Context) (croft.Order, error)
	for _, c := range []struct {
		name    string
		answers []answer
		want    int64
		kind    croft.Kind
	}{
		{"what is read counts", []answer{there, changed}, 2, ""},
		{"what was read last counts where nobody answers", []answer{there, away, away}, 1, ""},
		{"also where the answer does not come", []answer{there, hangs}, 1, ""},
		{"what was never read is unavailable", []answer{away}, 0, croft.Unavailable},
		{"an order that has gone is not remembered", []answer{there, gone, away}, 0, croft.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &oracle{}
				n := cachedOrders{o, "host", &orderMemory{}}
				var got croft.Order
				var err error
				for _, o.answer = range c.answers {
					got, err = n.forGuest(t.Context(), "instance")
					time.Sleep(ordersLast)
				}
				if got.Generation != c.want || croft.KindOf(err) != c.kind {
					t.Errorf("got generation %d and %v, want %d and kind %q", got.Generation, err, c.want, c.kind)
				}
			})
		})
	}
}

func TestAGuestsOrderIsReadOnceInAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{answer: func(context.Context) (croft.Order, error) { return croft.Order{}, nil }}
		n := cachedOrders{o, "host", &orderMemory{}}
		for range 24 {
			_, _ = n.forGuest(t.Context(), "instance")
		}
		if o.asked != 1 {
			t.Errorf("it was read %d times", o.asked)
		}
	})
}
