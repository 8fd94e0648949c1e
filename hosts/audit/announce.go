package audit

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
)

const (
	// announcingTime bounds the announcements of one turn. The remaining ones are left to the next turn.
	announcingTime = 30 * time.Second
	// announcers is the number of concurrent announcements.
	announcers = 8
)

// announce announces instances that expire soon, the earliest end first: in the log, and with Announce, once per
// instance and end. An announcement is noted in the record, so a restart repeats only announcements that were not noted
// yet. A failed announcement is repeated in the next turn.
func (c *Caretaker) announce(ctx context.Context, soon []croft.Instance) {
	slices.SortFunc(soon, func(a, b croft.Instance) int { return a.Expires.Compare(b.Expires) })
	logged := c.warned
	c.warned = map[croft.InstanceID]time.Time{}
	ctx, cancel := context.WithTimeout(ctx, announcingTime)
	defer cancel()
	var work errgroup.Group
	work.SetLimit(announcers)
	for _, inst := range soon {
		c.warned[inst.ID] = inst.Expires
		if !logged[inst.ID].Equal(inst.Expires) {
			c.Log.Info("an instance expires soon; `schedule keep` prolongs it", "instance", inst.ID, "host", inst.Host,
				"at", inst.Expires)
		}
		if c.Announce == nil || inst.Announced.Equal(inst.Expires) {
			continue
		}
		work.Go(func() error {
			if ctx.Err() == nil {
				c.announceOne(ctx, inst)
			}
			return nil
		})
	}
	_ = work.Wait() // every error is logged where it occurs
}

func (c *Caretaker) announceOne(ctx context.Context, inst croft.Instance) {
	result := "ok"
	err := c.Announce(ctx, inst)
	if err == nil {
		err = c.Shared.NoteAnnounced(ctx, inst)
		if croft.KindOf(err) == croft.Conflict {
			err = nil // for example, it was extended; if not, it is announced again
		}
	} else {
		result = "failed"
	}
	c.metrics().announced.WithLabelValues(result).Inc()
	if err != nil {
		c.Log.Warn("the coming end of an instance could not be announced; trying again", "instance", inst.ID, "at",
			inst.Expires, "err", err)
	}
}
