package sim_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/hvtest"
	"croft/compute/hypervisor/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	for name, config := range map[string]sim.Config{
		"guests that boot at once":         {},
		"guests that need a while to boot": {Boot: time.Millisecond, Shutdown: time.Hour, StopGrace: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			hvtest.Suite{
				New: func(t *testing.T) compute.Hypervisor {
					c := config
					c.Arch = croft.Archs()
					c.File = filepath.Join(t.TempDir(), "sim.json")
					return open(t, c)
				},
				Restart: func(t *testing.T, first compute.Hypervisor) compute.Hypervisor {
					old := first.(*sim.Hypervisor)
					_ = old.Close()
					return open(t, sim.Config{File: old.File()})
				},
				Machine: hvtest.Machine,
				Kill: func(t *testing.T, hv compute.Hypervisor, id croft.InstanceID) {
					must(t, hv.(*sim.Hypervisor).Crash(id))
				},
				Pause: func(t *testing.T, hv compute.Hypervisor, id croft.InstanceID) {
					must(t, hv.(*sim.Hypervisor).Pause(id))
				},
				Halt: func(t *testing.T, hv compute.Hypervisor, id croft.InstanceID) {
					must(t, hv.(*sim.Hypervisor).Halt(id))
				},
				Late: func(t *testing.T) hvtest.Late { return late(t, config) },
			}.Run(t)
		})
	}
}

// late returns a driver whose calls can be held.
func late(t *testing.T, c sim.Config) hvtest.Late {
	t.Helper()
	var mu sync.Mutex
	var wait chan struct{} // nil, or open while calls are held
	held := make(chan struct{}, 16)
	c.Late = func(string, croft.InstanceID) {
		mu.Lock()
		until := wait
		mu.Unlock()
		if until != nil {
			held <- struct{}{}
			<-until
		}
	}
	return hvtest.Late{
		Hypervisor: open(t, c),
		Hold: func() <-chan struct{} {
			mu.Lock()
			defer mu.Unlock()
			wait = make(chan struct{})
			return held
		},
		Release: func() {
			mu.Lock()
			defer mu.Unlock()
			close(wait)
			wait = nil
		},
	}
}

func open(t *testing.T, c sim.Config) *sim.Hypervisor {
	t.Helper()
	h, err := sim.New(c)
	must(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func machine(t *testing.T) compute.Machine {
	t.Helper()
	id := croft.NewInstanceID()
	return compute.Machine{
		ID: id, Partition: "p", Ordered: compute.Ordered{Generation: 1}, Name: "one", VCPUs: 1, MemoryMiB: 64,
		Console: filepath.Join(t.TempDir(), "console.log"),
		NICs:    []compute.NIC{{MAC: id.MAC(0).String(), Network: "default"}},
	}
}

func start(t *testing.T, h *sim.Hypervisor, m compute.Machine) {
	t.Helper()
	must(t, h.Define(t.Context(), m))
	must(t, h.Start(t.Context(), m.ID))
}

func addresses(t *testing.T, h *sim.Hypervisor, id croft.InstanceID) []netip.Addr {
	t.Helper()
	d, err := h.Get(t.Context(), id)
	must(t, err)
	return d.Addresses
}

func TestAddressComesWithTheBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, sim.Config{Boot: 8 * time.Second})
		m := machine(t)
		woken := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- h.Watch(ctx, func(croft.InstanceID) { woken++ }) }()
		start(t, h, m)
		synctest.Wait()
		before := woken

		time.Sleep(8*time.Second - time.Nanosecond)
		if got := addresses(t, h, m.ID); len(got) > 0 {
			t.Errorf("it has %v before it is up", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		got := addresses(t, h, m.ID)
		if len(got) != 1 || !netip.MustParsePrefix("10.0.0.0/8").Contains(got[0]) {
			t.Fatalf("it has %v", got)
		}
		if woken != before+1 {
			t.Errorf("woken %d times for the address", woken-before)
		}
		if owner, err := h.Owner(t.Context(), got[0]); err != nil || owner != m.ID {
			t.Errorf("its owner is %v, %v", owner, err)
		}
		must(t, h.Stop(t.Context(), m.ID))
		if _, err := h.Owner(t.Context(), got[0]); !errors.Is(err, croft.NotFound) {
			t.Errorf("off, it still owns its address: %v", err)
		}
		console, err := os.ReadFile(m.Console)
		must(t, err)
		if want := got[0].String() + "\ncroft sim: ready"; !strings.Contains(string(console), want) {
			t.Errorf("no %q in console:\n%s", want, console)
		}
		cancel()
		<-ended
	})
}

func TestStopBeforeTheBootIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, sim.Config{Boot: 8 * time.Second})
		m := machine(t)
		start(t, h, m)
		time.Sleep(time.Second)
		must(t, h.Stop(t.Context(), m.ID))
		must(t, h.Start(t.Context(), m.ID))
		time.Sleep(7500 * time.Millisecond) // past the first boot's end, not the second's
		synctest.Wait()
		if got := addresses(t, h, m.ID); len(got) > 0 {
			t.Errorf("the first boot gave the second its address %v", got)
		}
	})
}

func TestStopTakesTheGuestsTimeAtMostTheGrace(t *testing.T) {
	for name, c := range map[string]struct {
		shutdown, grace, ctx, want time.Duration
	}{
		"a guest that listens powers off itself":   {2 * time.Second, 30 * time.Second, time.Hour, 2 * time.Second},
		"a deaf guest loses its power":             {time.Hour, 30 * time.Second, time.Hour, 30 * time.Second},
		"the end of the context cuts it too":       {time.Hour, 30 * time.Second, 5 * time.Second, 5 * time.Second},
		"a guest that needs no time takes no time": {0, 30 * time.Second, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, sim.Config{Shutdown: c.shutdown, StopGrace: c.grace})
				m := machine(t)
				start(t, h, m)
				ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
				defer cancel()
				began := time.Now()
				must(t, h.Stop(ctx, m.ID))
				if got := time.Since(began); got != c.want {
					t.Errorf("it took %v, want %v", got, c.want)
				}
				if d, _ := h.Get(t.Context(), m.ID); d.Power != compute.PowerOff {
					t.Errorf("its power is %s", d.Power)
				}
			})
		})
	}
}

func TestRestartFindsItsGuests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "sim.json")
		h := open(t, sim.Config{File: file, Boot: 8 * time.Second})
		up, booting, off := machine(t), machine(t), machine(t)
		start(t, h, up)
		must(t, h.Define(t.Context(), off))
		time.Sleep(9 * time.Second)
		start(t, h, booting)
		want := addresses(t, h, up.ID)
		must(t, h.Close())

		h = open(t, sim.Config{File: file, Boot: 8 * time.Second})
		if got := addresses(t, h, up.ID); !slices.Equal(got, want) {
			t.Errorf("it had %v, now %v", want, got)
		}
		if got := addresses(t, h, booting.ID); len(got) > 0 {
			t.Errorf("the restart ended the boot: %v", got)
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if got := addresses(t, h, booting.ID); len(got) != 1 {
			t.Errorf("the boot never ended: %v", got)
		}
		if got := addresses(t, h, off.ID); len(got) > 0 {
			t.Errorf("what is off has %v", got)
		}
	})
}

func TestDamagedFileIsNamed(t *testing.T) {
	for name, content := range map[string]string{
		"no JSON":               "{",
		"a null instance":       `{"guests":{"x":null}}`,
		"an ID that is another": `{"guests":{"x":{"machine":{"ID":"y"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "sim.json")
			must(t, os.WriteFile(file, []byte(content), 0o600))
			_, err := sim.New(sim.Config{File: file})
			if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A program that waits for the address reads the console next.
func TestAnAddressIsOnTheConsoleBeforeItIsKnown(t *testing.T) {
	for range 20 { // the order of goroutines at one moment varies
		synctest.Test(t, func(t *testing.T) {
			h := open(t, sim.Config{Boot: time.Second})
			m := machine(t)
			start(t, h, m)
			time.Sleep(time.Second)
			for len(addresses(t, h, m.ID)) == 0 {
				synctest.Wait()
			}
			console, err := os.ReadFile(m.Console)
			must(t, err)
			if !strings.Contains(string(console), "croft sim: ready") {
				t.Errorf("it has an address, and the console says %q", console)
			}
		})
	}
}

func TestAddressesAreNeverShared(t *testing.T) {
	h := open(t, sim.Config{Subnet: netip.MustParsePrefix("10.1.0.0/29")})
	seen := map[netip.Addr]bool{}
	for range 5 { // .2 to .6
		m := machine(t)
		must(t, h.Define(t.Context(), m))
		must(t, h.Start(t.Context(), m.ID))
		seen[addresses(t, h, m.ID)[0]] = true
	}
	if len(seen) != 5 || seen[netip.MustParseAddr("10.1.0.0")] || seen[netip.MustParseAddr("10.1.0.1")] ||
		seen[netip.MustParseAddr("10.1.0.7")] {
		t.Errorf("got %v", seen)
	}
	if err := h.Define(t.Context(), machine(t)); !errors.Is(err, croft.NoCapacity) {
		t.Errorf("a sixth got %v", err)
	}
}

func TestFaultFailsWhatItSays(t *testing.T) {
	broken := errors.New("broken")
	h := open(t, sim.Config{Fault: func(_ context.Context, op string, _ croft.InstanceID) error {
		if op == sim.OpStart {
			return broken
		}
		return nil
	}})
	m := machine(t)
	must(t, h.Define(t.Context(), m))
	if err := h.Start(t.Context(), m.ID); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if d, err := h.Get(t.Context(), m.ID); err != nil || d.Power != compute.PowerOff {
		t.Errorf("it is %+v, %v", d, err)
	}
}

// A program that types at the console knows which data the guest has on which disks.
func TestAGuestWritesWhatIsTypedToItsDisksAndNamesThem(t *testing.T) {
	hv := open(t, sim.Config{File: filepath.Join(t.TempDir(), "sim.json")})
	defer hv.Close()
	m := hvtest.Machine(t)
	volume := compute.Volume{ID: croft.VolumeID(croft.NewInstanceID()), Path: filepath.Join(t.TempDir(), "volume")}
	for _, path := range []string{m.Disk[0].Path, volume.Path} {
		must(t, sim.Images{}.Volume(t.Context(), path, 1))
	}
	m.Disk, m.Volumes = m.Disk[:1], []compute.Volume{volume}
	must(t, hv.Define(t.Context(), m))
	must(t, hv.Start(t.Context(), m.ID))
	console, err := hv.OpenConsole(t.Context(), m.ID, false)
	must(t, err)
	defer console.Close()
	for _, typed := range []string{"wri", "te so", "me data\rls\r", "write \r"} {
		_, err := console.Write([]byte(typed))
		must(t, err)
	}
	got := make([]byte, 1<<10)
	n, err := console.Read(got)
	must(t, err)
	want := "write some data\r\nls\r\nwritten to disk " + string(volume.ID) + "\r\nwrite \r\n"
	if string(got[:n]) != want {
		t.Errorf("the console says %q, want %q", got[:n], want)
	}
	for _, path := range []string{m.Disk[0].Path, volume.Path} {
		if data, err := sim.FileContent(path); err != nil || data != "some data" {
			t.Errorf("%s has %q, %v", path, data, err)
		}
	}
}

func TestADiskOnAnotherFileSystemGetsACopyOfTheFileOfItsImage(t *testing.T) {
	elsewhere, err := os.MkdirTemp("/dev/shm", "croft-sim-")
	if err != nil {
		t.Skipf("there is no other file system to write to: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
	image := filepath.Join(t.TempDir(), "image.raw")
	if err := os.WriteFile(image, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	img := compute.CachedImage{Path: image, Format: "raw", Digest: "1"}
	if _, err := (sim.Images{}).Disk(t.Context(), img, elsewhere, 1); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(elsewhere, "base.raw")); err != nil || string(text) != "data" {
		t.Errorf("the file of the image is %q: %v", text, err)
	}
}
