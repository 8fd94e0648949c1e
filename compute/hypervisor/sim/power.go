package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"croft"
	"croft/compute"
)

// Define stores the machine, shut off. An existing definition is replaced; its power state is unchanged.
func (h *Hypervisor) Define(ctx context.Context, m compute.Machine) error {
	return h.do(ctx, OpDefine, m.ID, func() error {
		if id, err := croft.ParseInstanceID(string(m.ID)); err != nil || id != m.ID {
			return croft.Errorf(croft.Invalid, "define instance: %q is not a UUID", m.ID)
		}
		g, ok := h.guests[m.ID]
		switch {
		case !ok:
			addr, err := h.lend(m)
			if err != nil {
				return err
			}
			g = &guest{Power: compute.PowerOff, Address: addr}
			h.guests[m.ID] = g
		case g.Machine.Partition != m.Partition:
			return croft.Errorf(croft.Conflict,
				"define instance %s: partition %s has an instance of that ID on this host", m.ID, g.Machine.Partition)
		case reflect.DeepEqual(g.Machine, m):
			return nil
		}
		g.Machine, g.Started = m, 0
		return h.saved(m.ID)
	})
}

// Mark changes the mark of a defined machine.
func (h *Hypervisor) Mark(ctx context.Context, id croft.InstanceID, m compute.Ordered) error {
	return h.do(ctx, OpMark, id, func() error {
		g, err := h.find(id)
		if err != nil {
			return err
		}
		g.Machine.Ordered = m
		if g.Power != compute.PowerOff {
			g.Started = m.Generation
		}
		return h.saved(id)
	})
}

// Start boots a guest; it gets its address after Config.Boot.
func (h *Hypervisor) Start(ctx context.Context, id croft.InstanceID) error {
	return h.do(ctx, OpStart, id, func() error {
		g, err := h.find(id)
		if err != nil || g.Power == compute.PowerOn {
			return err
		}
		if g.Power == compute.PowerOff {
			if err := h.freePCI(id, g.Machine.PCI); err != nil {
				return err
			}
			if err := g.print("croft sim: instance %s (%s) starts with %d VCPU and %d MiB\n", id, g.Machine.Name,
				g.Machine.VCPUs, g.Machine.MemoryMiB); err != nil {
				return fmt.Errorf("start instance %s: its console: %w", id, err)
			}
			g.Booted = time.Now().Add(h.config.Boot)
			g.runs, g.processes = g.runs+1, nil
			h.boot(id, g)
		}
		g.Power, g.Crashed, g.Halted, g.Started = compute.PowerOn, false, false, g.Machine.Generation
		return h.saved(id)
	})
}

// boot announces the address at the end of the boot. The caller holds h.mu.
func (h *Hypervisor) boot(id croft.InstanceID, g *guest) {
	g.endTimers()
	if h.closed {
		return
	}
	left := time.Until(g.Booted)
	if left <= 0 {
		h.announce(id, g)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if g.timer != timer {
			return // stopped or restarted meanwhile
		}
		g.timer = nil
		h.announce(id, g)
	})
	g.timer = timer
}

// announce prints the address of a booted guest on its console. The caller holds h.mu.
func (h *Hypervisor) announce(id croft.InstanceID, g *guest) {
	if err := g.print("croft sim: eth0 has %s\ncroft sim: ready\n", g.Address); err != nil {
		h.config.Log.Warn("the console of a simulated guest cannot be written", "instance", id, "op", "boot", "err",
			err)
	}
	h.changed.Put(id)
}

// Stop asks the guest to power off, which takes Config.Shutdown, and cuts the power if ctx or the grace
// period ends first.
func (h *Hypervisor) Stop(ctx context.Context, id croft.InstanceID) error {
	g, err := call(ctx, h, OpStop, id, func() (*guest, error) {
		g, err := h.find(id)
		if err != nil {
			return nil, err
		}
		g.Started, g.Halted = 0, false
		if g.Power == compute.PowerOff {
			return nil, h.saved(id)
		}
		if g.Power == compute.PowerPaused || h.config.Shutdown == 0 { // a paused guest does not see the button
			return nil, h.off(id, g, false)
		}
		h.press(id, g)
		return g, nil
	})
	if g == nil {
		return err
	}
	if wait := min(h.config.Shutdown, h.config.StopGrace); wait > 0 {
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

// Eject empties the CD drive.
func (h *Hypervisor) Eject(ctx context.Context, id croft.InstanceID) error {
	return h.do(ctx, OpEject, id, func() error {
		g, err := h.find(id)
		if err != nil || g.Machine.CD == "" {
			return err
		}
		g.Machine.CD = ""
		return h.saved(id)
	})
}

// CutPower ends the guest without asking it.
func (h *Hypervisor) CutPower(ctx context.Context, id croft.InstanceID) error {
	_, err := call(ctx, h, OpStop, id, func() (struct{}, error) {
		g, err := h.find(id)
		if err != nil {
			return struct{}{}, err
		}
		g.Started, g.Halted = 0, false
		if g.Power == compute.PowerOff {
			return struct{}{}, h.saved(id)
		}
		return struct{}{}, h.off(id, g, false)
	})
	return err
}

// press makes the guest power off after Config.Shutdown. The caller holds h.mu.
func (h *Hypervisor) press(id croft.InstanceID, g *guest) {
	if g.button != nil {
		return
	}
	var button *time.Timer
	button = time.AfterFunc(h.config.Shutdown, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if g.button != button {
			return // already off
		}
		if err := h.off(id, g, false); err != nil {
			h.config.Log.Warn("that a simulated guest went off could not be kept", "instance", id, "op", "stop", "err",
				err)
		}
	})
	g.button = button
}

// Remove cuts the power and deletes the instance.
func (h *Hypervisor) Remove(ctx context.Context, id croft.InstanceID) error {
	return h.do(ctx, OpRemove, id, func() error {
		g, ok := h.guests[id]
		if !ok {
			return nil
		}
		g.endTimers()
		g.hangUp()
		delete(h.guests, id)
		delete(h.used, g.Address)
		return h.saved(id)
	})
}

// Crash ends a running guest like a kernel panic or the death of its process.
func (h *Hypervisor) Crash(id croft.InstanceID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil || g.Power == compute.PowerOff {
		return err
	}
	return h.off(id, g, true)
}

// Halt ends a running guest as if it had powered itself off.
func (h *Hypervisor) Halt(id croft.InstanceID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil || g.Power == compute.PowerOff {
		return err
	}
	g.Halted = g.Started != 0
	return h.off(id, g, false)
}

// PowerLoss ends all guests as a power failure of the host does: the reason why they are off is lost.
func (h *Hypervisor) PowerLoss() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for id, g := range h.guests {
		err := h.off(id, g, false)
		g.Crashed, g.Halted = false, false
		errs = append(errs, err, h.saved(id))
	}
	return errors.Join(errs...)
}

// Pause suspends a running guest, as a full disk does. Start resumes it.
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

// off ends a guest. The caller holds h.mu.
func (h *Hypervisor) off(id croft.InstanceID, g *guest, crashed bool) error {
	if g.Power == compute.PowerOff {
		return nil
	}
	g.endTimers()
	g.hangUp()
	g.Power, g.Crashed = compute.PowerOff, crashed
	if err := g.print("croft sim: power off\n"); err != nil {
		h.config.Log.Warn("the console of a simulated guest cannot be written", "instance", id, "op", "stop", "err",
			err)
	}
	return h.saved(id)
}

// print appends to the machine's console log, if it has one.
func (g *guest) print(format string, args ...any) error {
	if g.Machine.Console == "" {
		return nil
	}
	f, err := os.OpenFile(g.Machine.Console, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format, args...)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
