package revlock_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/grid/machine"
	"croft/grid/revlock"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) {
	patient.SideBySide(4)
	goleak.VerifyTestMain(m)
}

const cluster = "0123456789abcdef0123456789abcdef"

// shell is this machine with another sh, and with output that a login shell prints first.
type shell struct {
	argv  []string // put before the script, such as busybox sh
	noise string
	path  string // instead of PATH
}

// Start implements machine.Machine.
func (s shell) Start(ctx context.Context, c machine.Command) (machine.Process, error) {
	text := machine.Quote(append(append([]string{}, s.argv...), c.Argv[1:]...)...)
	if s.noise != "" {
		text = s.noise + "; exec " + text
	}
	if s.path != "" {
		text = "PATH=" + s.path + "; export PATH; " + text
	}
	c.Argv = []string{"sh", "-c", text}
	return machine.Local{}.Start(ctx, c)
}

// shells runs a test with each shell that a node may have.
func shells(t *testing.T, run func(t *testing.T, m machine.Machine)) {
	for name, argv := range map[string][]string{
		"dash": {"dash"}, "bash": {"bash", "--posix"}, "busybox": {"busybox", "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(argv[0]); err != nil {
				t.Skipf("%s is not installed: scripts/install-deps test", argv[0])
			}
			run(t, shell{argv: argv})
		})
	}
}

func options(t *testing.T) revlock.Options {
	return revlock.Options{Place: revlock.Place{Base: t.TempDir(), Cluster: cluster}, Who: "ann@desk 17", Plan: "p1"}
}

func open(t *testing.T, m machine.Machine, o revlock.Options) *revlock.Holder {
	t.Helper()
	h, err := revlock.Open(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

var revision = "git:" + strings.Repeat("a", 40)

func TestAChangeOfANode(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o := options(t)
		h := open(t, m, o)
		if s := h.State(); s.Revision != "" || s.Epoch != 0 || s.BootNow == "" {
			t.Errorf("a new node stores %+v", s)
		}
		if err := h.Begin(t.Context(), revision, nil); err != nil {
			t.Fatal(err)
		}
		odd := "a b\\n'$HOME`\n\x00\xff" + strings.Repeat("x", 100_000)
		out, err := machine.Output(t.Context(), h, strings.NewReader(odd), "cat")
		if out != odd || err != nil {
			t.Errorf("an order's input comes back as %.20q, %v", out, err)
		}
		out, err = machine.Output(t.Context(), h, io.MultiReader(strings.NewReader(strings.Repeat("y", 3<<20))), "wc",
			"-c")
		if strings.TrimSpace(out) != "3145728" || err != nil {
			t.Errorf("3 MiB of input of unknown length are %q, %v", out, err)
		}
		_, err = machine.Output(t.Context(), h, strings.NewReader(odd), "sh", "-c", "echo a word >&2; exit 7")
		var exit *machine.Exit
		if !errors.As(err, &exit) || exit.Code != 7 || !strings.Contains(exit.Error(), "a word") {
			t.Errorf("exit 7 with unread input: %v", err)
		}
		out, err = machine.Output(t.Context(), h, nil, "printf", `%s\n%s`, `a\nb\\`, "c\nd")
		if want := "a\\nb\\\\\nc\nd"; out != want || err != nil {
			t.Errorf("odd arguments: %q, %v, want %q", out, err, want)
		}
		if err := h.Commit(t.Context(), []byte(`{"units": []}`)); err != nil {
			t.Fatal(err)
		}
		_ = h.Close()
		v, err := revlock.Look(t.Context(), m, o.Place, "")
		if err != nil || v.Revision != revision || v.Epoch != 1 || v.Phase != revlock.Done ||
			string(v.Applied) != `{"units": []}` || len(v.Holders) != 0 {
			t.Errorf("the node stores %+v, %v", v, err)
		}
		journal, _ := os.ReadFile(filepath.Join(o.Base, cluster, "journal"))
		if !strings.Contains(string(journal), "1 start wc -c") || !strings.Contains(string(journal), "exit code 7") ||
			!strings.Contains(string(journal), "0 start begin p1 from nothing, by ann@desk 17\n") {
			t.Errorf("the journal says %s", journal)
		}
	})
}

func TestAnInterruptedChangeKeepsTheRevisionThatWasDoneLast(t *testing.T) {
	t.Parallel()
	o := options(t)
	m := shell{argv: []string{"sh"}}
	for i, letter := range []string{"a", "b", "c"} {
		h := open(t, m, o)
		if err := h.Begin(t.Context(), "git:"+strings.Repeat(letter, 40), nil); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := h.Commit(t.Context(), []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		_ = h.Close()
	}
	v, err := revlock.Look(t.Context(), m, o.Place, "")
	if err != nil || v.Previous != revision {
		t.Errorf("after two interrupted changes: %+v, %v, want previous %s", v.State, err, revision)
	}
}

// A file is on the disk before it gets its name, and the name is after that.
func TestWhatANodeStoresOutlastsThePower(t *testing.T) {
	t.Parallel()
	bin, o := t.TempDir(), options(t)
	log := filepath.Join(bin, "log")
	script := "#!/bin/sh\nfor f; do [ -e \"$f\" ] && echo \"sync ${f##*/}\" >>" + log + "; done\n"
	if err := os.WriteFile(filepath.Join(bin, "sync"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	h := open(t, shell{argv: []string{"sh"}, path: bin + ":" + os.Getenv("PATH")}, o)
	if err := h.Begin(t.Context(), revision, nil); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(log)
	if want := "sync rev.new\nsync " + cluster + "\n"; string(text) != want {
		t.Errorf("it ran %q, want %q", text, want)
	}
}

func TestALockIsHeldOnce(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o := options(t)
		h := open(t, m, o)
		_, err := revlock.Open(t.Context(), m, o)
		var busy *revlock.Busy
		if !errors.As(err, &busy) || !strings.Contains(err.Error(), "ann@desk 17, plan p1, since 20") {
			t.Errorf("a second holder: %v", err)
		}
		v, err := revlock.Look(t.Context(), m, o.Place, "")
		if err != nil || len(v.Holders) != 1 || !strings.Contains(v.Holders[0], "ann@desk 17") {
			t.Errorf("who has it: %v, %v", v.Holders, err)
		}
		_ = h.Close()
		o.Shared = true
		one, two := open(t, m, o), open(t, m, o)
		o.Shared = false
		if _, err := revlock.Open(t.Context(), m, o); !errors.As(err, &busy) {
			t.Errorf("a change beside two readers: %v", err)
		}
		if v, err := revlock.Look(t.Context(), m, o.Place, ""); err != nil || len(v.Holders) != 2 {
			t.Errorf("who reads it: %v, %v", v.Holders, err)
		}
		_, _ = one.Close(), two.Close()
		o.Wait = 10 * time.Second
		open(t, m, o)
	})
}

func TestADaemonDoesNotKeepTheLock(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o := options(t)
		h := open(t, m, o)
		pid, err := machine.Output(t.Context(), h, nil, "sh", "-c",
			"setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!")
		if err != nil {
			t.Fatal(err)
		}
		defer exec.Command("kill", "-9", strings.TrimSpace(pid)).Run() //nolint:errcheck // it may be gone
		_ = h.Close()
		open(t, m, o)
	})
}

func TestABrokenLockRunsNoOrders(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o := options(t)
		h := open(t, m, o)
		if err := h.Begin(t.Context(), revision, nil); err != nil {
			t.Fatal(err)
		}
		held, err := revlock.Break(t.Context(), m, o.Place, "bob@desk", "ann is away")
		if !held || err != nil {
			t.Fatalf("break: %v, %v", held, err)
		}
		mark := filepath.Join(o.Base, "ran")
		if _, err := machine.Output(t.Context(), h, nil, "touch", mark); err == nil {
			t.Error("an order after the break succeeds")
		}
		if _, err := os.Stat(mark); err == nil {
			t.Error("an order after the break was run")
		}
		next := open(t, m, o)
		if s := next.State(); s.Epoch != 2 || s.Phase != revlock.Applying {
			t.Errorf("the next finds %+v", s)
		}
		_ = next.Close()
		if held, err := revlock.Break(t.Context(), m, o.Place, "bob@desk", "again"); held || err != nil {
			t.Errorf("break of a free lock: %v, %v", held, err)
		}
	})
}

// TestTheEpochIsCompared has another write the epoch while the holder keeps its lock, as after a break whose kill did
// not reach it.
func TestTheEpochIsCompared(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o := options(t)
		h := open(t, m, o)
		if err := h.Begin(t.Context(), revision, nil); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(o.Base, cluster, "rev")
		text, _ := os.ReadFile(file)
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), "epoch 1", "epoch 2", 1)),
			0o600); err != nil {
			t.Fatal(err)
		}
		_, err := machine.Output(t.Context(), h, strings.NewReader("input"), "touch", filepath.Join(o.Base, "ran"))
		var stale *revlock.Stale
		if !errors.As(err, &stale) || stale.Theirs != 2 {
			t.Errorf("an order with an old epoch: %v", err)
		}
		if _, err := os.Stat(filepath.Join(o.Base, "ran")); err == nil {
			t.Error("it was run")
		}
	})
}

func TestALostConnectionIsALostLock(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o := options(t)
		h := open(t, m, o)
		ctx, cancel := context.WithCancel(t.Context())
		p, err := h.Start(ctx, machine.Command{Argv: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		var lost *machine.Lost
		if err := p.Wait(); !errors.As(err, &lost) {
			t.Errorf("an order that was given up: %v", err)
		}
		if _, err := machine.Output(t.Context(), h, nil, "true"); !errors.As(err, &lost) {
			t.Errorf("an order after a lost one: %v", err)
		}
	})
}

func TestWhatANodeMayLack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		m    shell
		base func(t *testing.T) string
		want string
	}{
		{"a chatty login shell", shell{noise: "echo welcome; echo; seq 10000; printf 'no line end'"}, nil, ""},
		{"a login shell that prints without end", shell{noise: "yes"}, nil, "print without end"},
		{"no flock", shell{path: "/nowhere"}, nil, ""},
		{"a state directory that is a file", shell{}, func(t *testing.T) string {
			file := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}, "cannot write its state directory"},
		{"a state directory that cannot be written", shell{}, func(*testing.T) string { return "/proc/croft" },
			"cannot write its state directory"},
		{"a state directory with a quote", shell{}, func(*testing.T) string { return "/tmp/a'b" }, "absolute path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.m.argv = []string{"dash"}
			o := options(t)
			if c.base != nil {
				o.Base = c.base(t)
			}
			if c.m.path != "" {
				c.m.path, c.want = withoutFlock(t), "flock(1) is missing"
			}
			h, err := revlock.Open(t.Context(), c.m, o)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				_ = h.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want a sentence with %q", err, c.want)
			}
		})
	}
}

// withoutFlock makes a directory of programs.
func withoutFlock(t *testing.T) string {
	dir := t.TempDir()
	for _, name := range []string{"sh", "dash", "head", "id", "mkdir", "tr", "sleep", "cat", "date"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestANodeThatLies(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a revision that is an option":  "revision --upload-pack=x\nepoch 1\nphase done\n",
		"a revision with a shell in it": "revision git:$(id)\nepoch 1\nphase done\n",
		"an epoch that is no number":    "revision " + revision + "\nepoch many\nphase done\n",
		"an epoch beyond all":           "revision " + revision + "\nepoch 99999999999999999999\nphase done\n",
		"a phase that nobody knows":     "revision " + revision + "\nepoch 1\nphase happy\n",
		"a value without end":           "revision " + strings.Repeat("a", 3000),
		"bytes that are no text at all": "revision \x00\x01\xff\nepoch 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			dir := filepath.Join(o.Base, cluster)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "rev"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := revlock.Open(t.Context(), machine.Local{}, o); !errors.Is(err, croft.Invalid) {
				t.Errorf("a lock: %v", err)
			}
			if _, err := revlock.Look(t.Context(), machine.Local{}, o.Place, ""); !errors.Is(err, croft.Invalid) {
				t.Errorf("a look: %v", err)
			}
		})
	}
}
