package system

import (
	"context"
	"fmt"

	"croft"
	"croft/schedule"
)

// machine returns a kind of machine.
func (a *actor) machine() croft.Machine {
	if a.rng.IntN(2) == 0 {
		return croft.Machine{}
	}
	if a.rng.IntN(3) == 0 {
		return croft.Machine{
			Arch:     croft.ArchAArch64,
			Firmware: []croft.Firmware{"", croft.FirmwareUEFI}[a.rng.IntN(2)],
			TPM:      a.rng.IntN(4) == 0,
			Display:  []croft.Display{"", croft.DisplayVNC}[a.rng.IntN(2)],
		}
	}
	return croft.Machine{
		Firmware: []croft.Firmware{"", croft.FirmwareBIOS, croft.FirmwareUEFI, croft.FirmwareUEFISecure}[a.rng.IntN(4)],
		TPM:      a.rng.IntN(4) == 0,
		Display:  []croft.Display{"", croft.DisplayVNC}[a.rng.IntN(2)],
		Devices:  []croft.Devices{"", croft.DevicesPlain}[a.rng.IntN(2)],
		OS:       []croft.GuestOS{"", croft.OSWindows}[a.rng.IntN(2)],
	}
}

// guestsAreOfTheirKind: every guest is the kind of machine that its record says, on a host that runs machines of its
// architecture.
func (w *world) guestsAreOfTheirKind(ctx context.Context) (bad []string) {
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return []string{err.Error()}
	}
	for _, st := range all {
		m := w.machineOrNil(st.Instance.Host)
		if m == nil {
			continue
		}
		guest, err := m.hv.Machine(st.Instance.ID)
		if err != nil {
			continue // another invariant is about it
		}
		if why := (croft.Host{Arch: m.archs}).Runs(guest.Kind.Arch); why != nil {
			bad = append(bad, fmt.Sprintf("the guest of %s is on host%d, which %v", st.Instance.ID, m.n, why))
		}
		want := st.Instance.Spec.Machine
		if want.Firmware == "" {
			want.Firmware = guest.Kind.Firmware // its disk decides
		}
		if guest.Kind != want {
			bad = append(bad, fmt.Sprintf("the guest of %s is %+v, and its record says %+v", st.Instance.ID, guest.Kind,
				want))
		}
	}
	return bad
}

// protect protects an instance, or ends its protection.
func (a *actor) protect(ctx context.Context) {
	id, on := a.some(), a.rng.IntN(3) > 0
	protected := a.protecting(id, on)
	err := a.scheduler(a.lifetime(), func(s *schedule.Scheduler) error {
		_, err := s.Amend(ctx, croft.DefaultProject, string(id), "protect", schedule.Amendment{Protected: &on}, nil)
		return err
	})
	protected(err == nil)
}

// protecting records that the protection of an instance is requested, or its end. The returned function records whether
// that was acknowledged.
func (w *world) protecting(id croft.InstanceID, on bool) func(acknowledged bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.facts[id]
	if f == nil { // the request still runs
		return func(bool) {}
	}
	if !on {
		f.unprotected++
		f.ending++
	}
	before := f.unprotected
	return func(acknowledged bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !on {
			f.ending--
		}
		if acknowledged && on && f.unprotected == before && f.ending == 0 {
			f.protected = before + 1
			w.tally.add("protected an instance")
		}
	}
}

// isProtected reports whether an instance is surely protected. The caller holds w.mu.
func (w *world) isProtected(id croft.InstanceID, f *fact) bool {
	return f != nil && f.protected == f.unprotected+1 && !w.reused[id]
}

// unprotect ends the protection of an instance that is to be removed.
func (w *world) unprotect(ctx context.Context, inst croft.Instance) error {
	if !inst.Protected {
		return nil
	}
	w.mu.Lock()
	if f := w.facts[inst.ID]; f != nil {
		f.unprotected++
	}
	w.mu.Unlock()
	return w.scheduler(0, func(s *schedule.Scheduler) error {
		off := false
		_, err := s.Amend(ctx, inst.Project, string(inst.ID), "protect", schedule.Amendment{Protected: &off}, nil)
		return unless(err, croft.NotFound)
	})
}
