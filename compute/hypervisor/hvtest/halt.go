package hvtest

import (
	"os"
	"testing"

	"croft/compute"
)

// Halting returns a disk image from which a PC boots and powers itself off at once: a boot sector that writes
// the sleep type S5 to the ACPI control register of QEMU's i440FX.
func Halting() []byte {
	code := []byte{
		0xfa,             // cli
		0xba, 0x04, 0x06, // mov dx, 0x604
		0xb8, 0x00, 0x20, // mov ax, 0x2000
		0xef,       // out dx, ax
		0xf4,       // hlt
		0xeb, 0xfd, // jmp to hlt
	}
	disk := make([]byte, 1<<20)
	copy(disk, code)
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}

func (s Suite) halt(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(os.WriteFile(m.Disk[0].Path, Halting(), 0o600))
	wakes := b.watch(m.ID)
	b.must(b.hv.Define(b.ctx, m))
	b.started(m, 0)
	for generation := int64(1); generation <= 2; generation++ {
		// off: it was not started for this generation
		b.must(b.hv.Mark(b.ctx, m.ID, compute.Ordered{Generation: generation}))
		b.started(m, generation-1)
		b.must(b.hv.Start(b.ctx, m.ID))
		b.started(m, generation)
		s.Halt(t, b.hv, m.ID)
		b.until(wakes, "it powered itself off", m.ID,
			func(d compute.Domain) bool { return d.Power == compute.PowerOff })
		if d := b.get(m.ID); !d.Halted || d.Crashed || d.Started != generation {
			t.Errorf("it powered itself off, and is %+v", d)
		}
	}
	b.must(b.hv.Stop(b.ctx, m.ID))
	if d := b.get(m.ID); d.Halted || d.Started != 0 {
		t.Errorf("stopped since, it is %+v", d)
	}
}

func (s Suite) started(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.Start(b.ctx, m.ID))
	b.started(m, m.Generation)
	b.must(b.hv.Mark(b.ctx, m.ID, compute.Ordered{Generation: 4})) // running: it is started for this generation
	b.started(m, 4)
	b.must(b.hv.Stop(b.ctx, m.ID))
	b.started(m, 0)
	if d := b.get(m.ID); d.Halted {
		t.Error("it was stopped, and counts as one that powered itself off")
	}
	b.must(b.hv.Start(b.ctx, m.ID))
	s.Kill(t, b.hv, m.ID)
	for b.get(m.ID).Power != compute.PowerOff {
		b.must(b.ctx.Err())
	}
	if d := b.get(m.ID); d.Halted || d.Started != 4 {
		t.Errorf("killed, it is %+v", d)
	}
}

// started checks the generation for which an instance was started.
func (b bench) started(m compute.Machine, want int64) {
	b.Helper()
	if got := b.get(m.ID).Started; got != want {
		b.Errorf("it was started for the generation %d, want %d", got, want)
	}
}
