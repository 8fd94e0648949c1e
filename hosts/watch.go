package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"croft"
	"croft/internal/delay"
)

// Watcher logs hosts that fall silent or return, and finishes what fences began: it marks the remaining instances of
// dead hosts as lost, and recreates lost instances with the restart policy elsewhere as soon as a host has room. It
// declares no host dead. Any number of processes may run one.
type Watcher struct {
	Fleet *Fleet
	Every time.Duration // between two looks; a minute by default
	Log   *slog.Logger

	silent map[croft.HostID]bool
	stays  map[croft.InstanceID]string // why an instance could not be recreated, as logged
}

// Run looks until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	delay.Every(ctx, cmp.Or(w.Every, time.Minute), func(ctx context.Context) {
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			w.Log.Warn("the hosts could not be watched; trying again", "err", err)
		}
	})
	return ctx.Err()
}

// Look looks once at all hosts and instances.
func (w *Watcher) Look(ctx context.Context) error {
	hosts, err := w.Fleet.Hosts.Hosts(ctx)
	if err != nil {
		return err
	}
	w.tell(hosts)
	for _, h := range hosts {
		if h.IsDead() {
			_, lost := w.Fleet.loseAll(ctx, Host{Host: h}, true, false)
			err = errors.Join(err, lost)
		}
	}
	seen, listed := w.Fleet.Instances.Overview(ctx, "")
	var lost []croft.InstanceID
	for _, st := range seen {
		if isToRecreate(st.Instance) {
			lost = append(lost, st.Instance.ID)
		}
	}
	var all []croft.Status
	if listed == nil {
		all, listed = w.Fleet.Instances.Some(ctx, lost)
	}
	if listed != nil {
		return errors.Join(err, listed)
	}
	stays := map[croft.InstanceID]string{}
	for _, st := range all {
		inst := st.Instance
		if !isToRecreate(inst) {
			continue
		}
		l := LostInstance{}
		if failed := w.Fleet.recreate(ctx, inst, &l); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		if l.Stays == "" {
			w.Log.Info("lost instance recreated", "instance", inst.ID, "host", l.To)
			continue
		}
		if w.stays[inst.ID] != l.Stays {
			w.Log.Warn("a lost instance cannot be recreated yet", "instance", inst.ID, "reason", l.Stays)
		}
		stays[inst.ID] = l.Stays
	}
	w.stays = stays
	return err
}

// isToRecreate reports whether an instance is lost and to run elsewhere.
func isToRecreate(inst croft.Instance) bool {
	return inst.State == croft.StateLost && inst.Spec.Restart.Elsewhere(inst.Storage != "")
}

// tell logs which hosts have fallen silent, or returned.
func (w *Watcher) tell(hosts map[croft.HostID]croft.Host) {
	silent := map[croft.HostID]bool{}
	for id, h := range hosts {
		silent[id] = !h.Alive && h.Death == nil
		switch {
		case silent[id] && !w.silent[id]:
			w.Log.Warn("a host is silent; its guests may still run", "host", id, "name", h.Name, "reason", fmt.Sprintf(
				"its agent was last alive at %s; `croft host fence %s` declares it dead", h.Seen.Format(time.RFC3339), h.Name))
		case h.Alive && w.silent[id]:
			w.Log.Info("a host has returned", "host", id, "name", h.Name)
		}
	}
	w.silent = silent
}
