package sim

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"time"

	"croft"
	"croft/compute"
)

// Define keeps the machine, shut off. The definition of one that is there is
// replaced; its power stays as it is.
func (h *Hypervisor) Define(ctx context.Context, m compute.Machine) error {
	if err := h.fault(ctx, OpDefine, m.ID); err != nil {
		return err
	}
	if id, err := croft.ParseInstanceID(string(m.ID)); err != nil || id != m.ID {
		return croft.Errorf(croft.Invalid, "define instance: %q is not a UUID", m.ID)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.guests[m.ID]
	switch {
	case !ok:
		addr, err := h.lend(m.ID)
		if err != nil {
			return err
		}
		g = &guest{Power: compute.PowerOff, Address: addr}
		h.guests[m.ID] = g
	case g.Machine.Partition != m.Partition:
		return croft.Errorf(croft.Conflict, "define instance %s: partition %s has an instance of that ID on this host", m.ID, g.Machine.Partition)
	case reflect.DeepEqual(g.Machine, m):
		return nil
	}
	g.Machine = m
	return h.saved(m.ID)
}

// Mark changes the generation of a machine that is defined.
func (h *Hypervisor) Mark(ctx context.Context, id croft.InstanceID, generation int64) error {
	if err := h.fault(ctx, OpDefine, id); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil || g.Machine.Generation == generation {
		return err
	}
	g.Machine.Generation = generation
	return h.saved(id)
}

// Start lets a guest boot; it has its address after Config.Boot.
func (h *Hypervisor) Start(ctx context.Context, id croft.InstanceID) error {
	if err := h.fault(ctx, OpStart, id); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil {
		return err
	}
	if g.Power == compute.PowerOn {
		return nil
	}
	if g.Power == compute.PowerOff {
		if err := g.print("croft sim: instance %s (%s) starts with %d VCPU and %d MiB\n", id, g.Machine.Name, g.Machine.VCPUs, g.Machine.MemoryMiB); err != nil {
			return fmt.Errorf("start instance %s: its console: %w", id, err)
		}
		g.Booted = time.Now().Add(h.config.Boot)
	}
	g.Power, g.Crashed = compute.PowerOn, false
	h.boot(id, g)
	return h.saved(id)
}

// boot arranges for the address to be announced. It wants h.mu held.
func (h *Hypervisor) boot(id croft.InstanceID, g *guest) {
	g.endBoot()
	if h.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(g.Booted), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if g.timer != timer {
			return // stopped, or started anew, meanwhile
		}
		g.timer = nil
		if err := g.print("croft sim: eth0 has %s\ncroft sim: ready\n", g.Address); err != nil {
			h.config.Log.Warn("the console of a simulated guest cannot be written", "instance", id, "op", "boot", "err", err)
		}
		h.changed.Put(id)
	})
	g.timer = timer
}

// Stop asks the guest to power off, which takes it Config.Shutdown, and cuts the
// power when ctx or the grace period ends before.
func (h *Hypervisor) Stop(ctx context.Context, id croft.InstanceID) error {
	if err := h.fault(ctx, OpStop, id); err != nil {
		return err
	}
	h.mu.Lock()
	g, err := h.find(id)
	if err != nil || g.Power == compute.PowerOff {
		h.mu.Unlock()
		return err
	}
	wait := min(h.config.Shutdown, h.config.StopGrace)
	if g.Power == compute.PowerPaused {
		wait = 0 // it does not hear the button
	}
	h.mu.Unlock()

	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.guests[id] != g {
		return nil // removed meanwhile
	}
	return h.off(id, g, false)
}

// Remove cuts the power and forgets the instance.
func (h *Hypervisor) Remove(ctx context.Context, id croft.InstanceID) error {
	if err := h.fault(ctx, OpRemove, id); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.guests[id]
	if !ok {
		return nil
	}
	g.endBoot()
	g.hangUp()
	delete(h.guests, id)
	delete(h.used, g.Address)
	return h.saved(id)
}

// Crash ends a running guest as a kernel panic does, or the death of its process.
func (h *Hypervisor) Crash(id croft.InstanceID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil || g.Power == compute.PowerOff {
		return err
	}
	return h.off(id, g, true)
}

// Pause keeps a running guest from making progress, as a full disk does. Start
// lets it go on.
func (h *Hypervisor) Pause(id croft.InstanceID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil || g.Power != compute.PowerOn {
		return err
	}
	g.Power = compute.PowerPaused
	return h.saved(id)
}

// off wants h.mu held.
func (h *Hypervisor) off(id croft.InstanceID, g *guest, crashed bool) error {
	if g.Power == compute.PowerOff {
		return nil
	}
	g.endBoot()
	g.hangUp()
	g.Power, g.Crashed = compute.PowerOff, crashed
	if err := g.print("croft sim: power off\n"); err != nil {
		h.config.Log.Warn("the console of a simulated guest cannot be written", "instance", id, "op", "stop", "err", err)
	}
	return h.saved(id)
}

// print appends to the machine's console, where it has one.
func (g *guest) print(format string, args ...any) error {
	if g.Machine.Console == "" {
		return nil
	}
	f, err := os.OpenFile(g.Machine.Console, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format, args...)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
