package compute

import (
	"bytes"
	"cmp"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// job is an order, the existing state of its instance, and the steps that carry the order out.
type job struct {
	name   string
	order  croft.Order // of generation 4 unless set
	domain *Domain     // of generation 2
	seed   croft.Metadata
	with   func(*logbook)
	steps  []string
}

func (j job) logbook(t *testing.T) *logbook {
	t.Helper()
	l := &logbook{t: t, dir: t.TempDir(), claimed: true, order: &j.order}
	o := l.order
	o.Host, o.Instance, o.Name, o.Partition = here, guest, "web", cmp.Or(o.Partition, home)
	o.Generation, o.Issued = cmp.Or(o.Generation, 4), time.Now()
	o.Spec.Resources = croft.Resources{croft.DiskGB: 9, croft.VCPU: 2, croft.MemoryMB: 512}
	if o.Spec.ISO == nil {
		o.Spec.Image = cmp.Or(o.Spec.Image, "file:///image")
	}
	l.record = &croft.Instance{ID: guest, Host: here}
	if j.domain != nil {
		d := *j.domain
		d.ID, d.Partition = guest, cmp.Or(d.Partition, home)
		d.Generation, d.Name = cmp.Or(d.Generation, 2), cmp.Or(d.Name, o.Name)
		l.domain = &d
		if err := os.MkdirAll(filepath.Join(l.dir, string(guest)), dirMode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(l.dir, string(guest), leftover), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if j.with != nil {
		j.with(l)
	}
	return l
}

func (j job) agent(l *logbook) *Agent {
	a := l.agent()
	if j.seed != "" {
		a.Seeds = logSeeds{l, j.seed}
	}
	return a
}

// one makes a pass, and returns its calls.
func one(t *testing.T, a *Agent, l *logbook) []string {
	t.Helper()
	l.steps, l.calls = nil, nil
	a.pass(t.Context(), guest)
	synctest.Wait()
	return l.steps
}

func run() croft.Order  { return croft.Order{Want: croft.WantRunning} }
func halt() croft.Order { return croft.Order{Want: croft.WantStopped} }
func bury() croft.Order { return croft.Order{Want: croft.WantGone} }

// installing is an order about a guest with a CD and without an image. ejecting is one to eject it.
func installing(want croft.Want, image string) croft.Order {
	return croft.Order{Want: want, Spec: croft.Spec{Image: image, ISO: &croft.ISO{Image: "file:///cd"},
		InstanceSettings: croft.InstanceSettings{Machine: croft.Machine{ISO: "cd"}}}}
}

func ejecting(want croft.Want, rebuilt int64) croft.Order {
	o := installing(want, "")
	o.Ejected, o.Rebuilt = true, rebuilt
	return o
}

// withCD puts an ISO into the drive of the guest.
func withCD(l *logbook) {
	l.domain.CD = true
	if l.domain.Power == PowerOn {
		l.domain.Addresses = append(l.domain.Addresses, reserved)
	}
}

func moved(before ...croft.HostID) croft.Order {
	return croft.Order{Want: croft.WantRunning, MovedFrom: "former", LeftBefore: before}
}

// on returns a running guest, off a guest that croft stopped, and ended a guest that powered itself off.
func on() *Domain  { return &Domain{Power: PowerOn, Started: 2} }
func off() *Domain { return &Domain{Power: PowerOff} }
func poweredOff() *Domain {
	return &Domain{Power: PowerOff, Ordered: Ordered{Generation: 4}, Started: 4, Halted: true}
}

const isRunning = "observe running at 192.0.2.7"

// jobs are all kinds of orders. The order of their steps matters: a step that makes a later one safe comes first.
var jobs = []job{
	{"a guest is built and started", run(), nil, "", nil,
		[]string{"fetch", "disk 9", "define", "start", isRunning}},
	{"its metadata disk is written before it is defined", run(), nil, croft.MetadataNoCloud, nil,
		[]string{"fetch", "disk 9", "seed", "define", "start", isRunning}},
	{"a guest that reads its metadata from the server has no such disk", run(), nil, croft.MetadataServer, nil,
		[]string{"fetch", "disk 9", "define", "start", isRunning}},
	{"a guest that should be stopped is built only", halt(), nil, "", nil,
		[]string{"fetch", "disk 9", "define", "observe stopped"}},
	{"a running guest is marked as the work of a later order", run(), on(), "", func(l *logbook) {
		l.domain.Addresses = append(l.domain.Addresses, reserved)
	}, []string{"mark 4", isRunning}},
	{"a guest that is off is marked, then started", run(), off(), "", nil, []string{"mark 4", "start", isRunning}},
	{"a running guest is stopped", halt(), on(), "", nil, []string{"stop", "observe stopped"}},
	{"a stopped guest stays so", halt(), off(), "", nil, []string{"observe stopped"}},
	{"a guest that powered itself off stays off", run(), poweredOff(), "", nil,
		[]string{"observe stopped by the guest powered itself off"}},
	{"a reboot stops, marks and starts", croft.Order{Want: croft.WantRunning, Rebooted: 4}, on(), "", nil,
		[]string{"stop", "mark 4", "start", isRunning}},
	{"a rebuild stops the guest once the image is there", croft.Order{Want: croft.WantRunning, Rebuilt: 4}, on(), "",
		nil, []string{"fetch", "stop", "disk 9", "define", "start", isRunning}},
	{"a stopped guest is rebuilt only", croft.Order{Want: croft.WantStopped, Rebuilt: 4}, off(), "", nil,
		[]string{"fetch", "stop", "disk 9", "define", "observe stopped"}},
	{"what is to be gone is removed, released, forgotten", bury(), on(), "", nil,
		[]string{"remove", "release [h]", "forget"}},
	{"so it is where nothing is left but the order", bury(), nil, "", func(l *logbook) { l.record = nil },
		[]string{"remove", "release [h]", "forget"}},
	{"an instance that was to move has its claim on either host", bury(), on(), "",
		func(l *logbook) { l.record.Moving = "other" }, []string{"remove", "release [h other]", "forget"}},
	{"an instance that moved away keeps its claim on other hosts", bury(), on(), "",
		func(l *logbook) { l.record.Host = "other" }, []string{"remove", "release [h]", "forget"}},
	{"one that comes back has its claim", bury(), on(), "",
		func(l *logbook) { l.record.Host, l.record.Moving = "other", here }, []string{"remove", "forget"}},
	{"so has another one of the UUID that is being scheduled", bury(), on(), "",
		func(l *logbook) { l.record.Host, l.record.State = "", croft.StateScheduling }, []string{"remove", "forget"}},
	{"what moved here is built once its former hosts have nothing", moved(here, "before"), nil, "", nil,
		[]string{"fetch", "disk 9", "define", "start", isRunning}},
	{"until then it is pending", moved(), nil, "", func(l *logbook) { l.remains = append(l.remains, "former") },
		[]string{"observe pending"}},
	{"so it is for every former host", moved(here, "before"), nil, "",
		func(l *logbook) { l.remains = append(l.remains, here, "before") }, []string{"observe pending"}},
	{"this host is not waited for", moved(here), nil, "", func(l *logbook) { l.remains = append(l.remains, here) },
		[]string{"fetch", "disk 9", "define", "start", isRunning}},
	{"a rebuild waits too", croft.Order{Want: croft.WantRunning, Rebuilt: 4, MovedFrom: "former"}, on(), "",
		func(l *logbook) { l.remains = append(l.remains, "former") }, []string{"observe pending"}},
	{"a guest gets its CD before it is defined", installing(croft.WantRunning, "file:///image"), nil, "", nil,
		[]string{"fetch", "fetch", "disk 9", "cd", "define", "start", isRunning}},
	{"without an image its disk is empty", installing(croft.WantRunning, ""), nil, "", nil,
		[]string{"fetch", "empty disk 9", "cd", "define", "start", isRunning}},
	{"a CD is ejected while the guest runs", ejecting(croft.WantRunning, 0), on(), "", withCD,
		[]string{"eject", "mark 4", isRunning}},
	{"a CD is ejected while the guest is off", ejecting(croft.WantStopped, 0), off(), "", withCD,
		[]string{"eject", "observe stopped"}},
	{"a CD that was ejected does not come back with a rebuild", ejecting(croft.WantRunning, 4), on(), "", nil,
		[]string{"stop", "empty disk 9", "define", "start", isRunning}},
	{"nor with a new domain", ejecting(croft.WantRunning, 0), nil, "", nil,
		[]string{"empty disk 9", "define", "start", isRunning}},
	{"a CD that is not to be ejected stays", installing(croft.WantStopped, ""), off(), "", withCD,
		[]string{"observe stopped"}},
	{"an order of another installation is none", croft.Order{Want: croft.WantGone, Partition: "q"}, on(), "", nil, nil},
	{"an older order changes nothing", croft.Order{Want: croft.WantGone, Generation: 1}, off(), "", nil,
		[]string{"observe stopped"}},
	{"a guest without an order is left alone", croft.Order{}, on(), "", func(l *logbook) { l.order = nil }, nil},
	{"nothing without an order is nothing to do", croft.Order{}, nil, "", func(l *logbook) { l.order = nil }, nil},
	{"a want of a later version is refused", croft.Order{Want: "asleep"}, off(), "", nil, []string{
		`observe failed since the order wants "asleep", which this agent does not know; upgrade it`}},
	{"a guest of another installation is refused", run(), &Domain{Partition: "q"}, "", nil, []string{
		"observe failed since a domain of this UUID belongs to another installation, q"}},
}

func TestOrdersAreCarriedOutStepByStep(t *testing.T) {
	t.Parallel()
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := j.logbook(t)
				a := j.agent(l)
				if got := one(t, a, l); !slices.Equal(got, j.steps) {
					t.Errorf("done: %q, want %q", got, j.steps)
				}
				if got := one(t, a, l); len(got) > 0 && !strings.HasPrefix(got[0], "observe") {
					t.Errorf("the next pass does %q, want nothing", got)
				}
				_, remembered := a.instances.all[guest]
				if want := l.order != nil || l.domain != nil; remembered != want {
					t.Errorf("the instance is remembered: %v, want %v", remembered, want)
				}
				if len(a.builds) > 0 {
					t.Error("a build still has its place")
				}
			})
		})
	}
}

// A pass ends at its first failure, the instance is checked again soon or at the next resync, and then the order is
// carried out as if nothing had failed.
func TestAPassEndsWithWhatFailsAndTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			var calls []string
			var whole string
			synctest.Test(t, func(t *testing.T) {
				l := j.logbook(t)
				_ = one(t, j.agent(l), l)
				calls, whole = l.calls, l.end()
			})
			for i, call := range calls {
				synctest.Test(t, func(t *testing.T) {
					l := j.logbook(t)
					a, n := j.agent(l), 0
					l.fail = func(string) error {
						if n++; n-1 == i {
							return errPlanned
						}
						return nil
					}
					_ = one(t, a, l)
					var more []string
					if len(l.calls) > i+1 {
						more = l.calls[i+1:]
					}
					more = slices.DeleteFunc(more, func(s string) bool {
						return strings.HasPrefix(s, "observe failed since ") && strings.HasSuffix(s, "planned")
					})
					if wrote := strings.HasPrefix(call, "observe "); len(more) > 0 && !wrote {
						t.Errorf("after %s (%d) failed: %q, want no more", call, i, more)
					}
					told := l.seen != nil && l.seen.State == croft.StateFailed && l.seen.ErrorKind == croft.Unavailable
					if !a.instances.awaited[guest] && !told {
						t.Errorf("after %s (%d) failed, nobody looks again, and it is not told: %+v", call, i, l.seen)
					}
					l.fail = nil
					a.instances.remember(guest).started = time.Time{} // a while later
					_ = one(t, a, l)
					if got := l.end(); got != whole {
						t.Errorf("%s (%d) failed once: it ends with %s, without that with %s", call, i, got, whole)
					}
				})
			}
		})
	}
}

// A permanent failure is reported, and the partly built domain is removed, but nothing else.
func TestAnOrderThatCannotBeCarriedOutLeavesNothingHalfBuilt(t *testing.T) {
	t.Parallel()
	final := croft.Errorf(croft.Invalid, "never")
	const told = "observe failed since never"
	for _, c := range []struct {
		name   string
		job    job
		fails  string // the call that fails permanently
		before func(*logbook, *memory)
		left   bool // domain and files are left
		again  []string
	}{
		{"before anything is there", job{order: run()}, "fetch", nil, false, nil},
		{"at the disk", job{order: run()}, "disk 9", nil, false, nil},
		{"at the definition", job{order: run()}, "define", nil, false, nil},
		{"at the start", job{order: run()}, "start", nil, false, nil},
		{"what ran once may have the only copy of its data", job{order: run(), domain: off()}, "start",
			func(_ *logbook, m *memory) { m.recalled = true; m.note(croft.EventRunning) }, true, nil},
		{"a running guest stays although nobody knows that it ever ran",
			job{order: croft.Order{Want: croft.WantRunning, Rebuilt: 4}, domain: on()}, "fetch", nil, true, nil},
		{"so does a paused one", job{order: run(), domain: &Domain{Power: PowerPaused}}, "start", nil, true, nil},
		{"a tombstone is tried again", job{order: bury(), domain: on()}, "release [h]", nil, false,
			[]string{"remove", "release [h]", "forget"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := c.job.logbook(t)
				a := c.job.agent(l)
				if c.before != nil {
					c.before(l, a.instances.remember(guest))
				}
				l.fail = func(call string) error {
					if call == c.fails {
						return final
					}
					return nil
				}
				got := one(t, a, l)
				if len(got) == 0 || got[len(got)-1] != told {
					t.Errorf("done: %q, want that it is told", got)
				}
				if l.seen == nil || !errors.Is(l.seen.ErrorKind, croft.Invalid) {
					t.Errorf("told: %+v", l.seen)
				}
				if (l.domain != nil) != c.left || l.has("") != c.left {
					t.Errorf("left are the domain %+v and files: %v, want them: %v", l.domain, l.has(""), c.left)
				}
				l.fail = nil
				if got := one(t, a, l); !slices.Equal(got, c.again) {
					t.Errorf("the next pass does %q, want %q", got, c.again)
				}
				if l.order == nil {
					return
				}
				l.order.Generation++ // another order is tried again
				if got := one(t, a, l); len(got) == 0 || got[len(got)-1] != isRunning {
					t.Errorf("the next order is carried out by %q", got)
				}
			})
		})
	}
}

// The removal of a partly built domain is retried until it succeeds, and is then not repeated.
func TestWhatIsHalfBuiltIsRemovedByALaterPass(t *testing.T) {
	t.Parallel()
	for _, fails := range []string{"domain", "remove"} {
		t.Run(fails, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := job{order: run()}
				l := j.logbook(t)
				a := j.agent(l)
				broken := false
				l.fail = func(call string) error {
					switch {
					case call == "start":
						broken = true
						return croft.Errorf(croft.NotFound, "never")
					case call == fails && broken:
						return errPlanned
					}
					return nil
				}
				_ = one(t, a, l)
				if l.domain == nil || !l.has("") || !a.instances.awaited[guest] {
					t.Errorf("domain %+v, files: %v, looked at again: %v", l.domain, l.has(""), a.instances.awaited)
				}
				broken = false
				if got := one(t, a, l); !slices.Equal(got, []string{"remove"}) || l.has("") {
					t.Errorf("the next pass does %q, files are left: %v", got, l.has(""))
				}
				if got := one(t, a, l); len(got) > 0 || a.instances.awaited[guest] {
					t.Errorf("the pass after it does %q", got)
				}
			})
		})
	}
}

func TestABuildIsLoggedWithWhatIsBuilt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		j := job{order: run()}
		j.order.Name, j.order.Project = "web", "lab"
		j.order.Spec = croft.Spec{Image: "https://u:secret@images.example/debian.qcow2?sig=secret",
			Resources: croft.Resources{croft.VCPU: 2, croft.DiskGB: 9}}
		l := j.logbook(t)
		a := j.agent(l)
		a.Log = slog.New(slog.NewTextHandler(&written, &slog.HandlerOptions{Level: slog.LevelInfo}))
		one(t, a, l)
		for _, want := range []string{"level=INFO msg=building", "instance=" + string(guest), "name=web",
			"image=https://images.example/debian.qcow2", "DISK_GB:9,MEMORY_MB:512,VCPU:2"} {
			if !strings.Contains(written.String(), want) {
				t.Errorf("the log lacks %s:\n%s", want, written.String())
			}
		}
		if strings.Contains(written.String(), "secret") {
			t.Errorf("the log has a secret:\n%s", written.String())
		}
	})
}
