package revlock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/revlock"
	"croft/internal/testing/patient"
)

// armed makes a node change a file, and arms a script that undoes it.
func armed(t *testing.T, m machine.Machine, after time.Duration) (o revlock.Options, h *revlock.Holder, file string) {
	t.Helper()
	o = options(t)
	h = open(t, m, o)
	file = filepath.Join(o.Base, "changed")
	if err := h.Begin(t.Context(), revision, nil); err != nil {
		t.Fatal(err)
	}
	c := revlock.Change{ID: "s1", Title: "touch\nit", After: after, Keep: `echo "it's kept" >"$kept/note"`,
		Undo: "cp \"$kept/note\" " + machine.Quote(file) + ".note && rm " + machine.Quote(file) + "\n"}
	if err := h.Arm(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := machine.Output(t.Context(), h, nil, "touch", file); err != nil {
		t.Fatal(err)
	}
	return o, h, file
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func TestAChangeThatIsConfirmedStays(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o, h, file := armed(t, m, time.Hour)
		for range 2 { // the first answer may have been lost
			if v, err := revlock.Confirm(t.Context(), m, o.Place, "s1"); v != revlock.Confirmed || err != nil {
				t.Fatalf("confirm: %s, %v", v, err)
			}
		}
		if err := h.Commit(t.Context(), []byte("{}")); err != nil || !exists(file) {
			t.Errorf("after that: %v, the change is there: %v", err, exists(file))
		}
		if v, _, err := revlock.Recall(t.Context(), m, o.Place, "s1", time.Minute); v != revlock.Confirmed ||
			err != nil {
			t.Errorf("taken back after it was confirmed: %s, %v", v, err)
		}
		_ = h.Close()
		o.Wait = 5 * time.Second
		open(t, m, o) // the watcher has released the lock
		if v, err := revlock.Confirm(t.Context(), m, o.Place, "s1"); v != revlock.None || err != nil {
			t.Errorf("a change that nobody remembers: %s, %v", v, err)
		}
	})
}

func TestAChangeThatNobodyConfirmsIsTakenBack(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o, h, file := armed(t, m, time.Second)
		_ = h.Close() // the operator loses the connection
		var v revlock.View
		for v.Phase != revlock.Returned {
			var err error
			if v, err = revlock.Look(t.Context(), m, o.Place, ""); err != nil {
				t.Fatal(err)
			}
			if v.Phase == revlock.Applying && len(v.Holders) == 0 {
				t.Fatal("nobody has the lock before the change was taken back")
			}
		}
		if exists(file) || v.Epoch != 2 {
			t.Errorf("the change is there: %v; %+v", exists(file), v.State)
		}
		if late, err := revlock.Confirm(t.Context(), m, o.Place, "s1"); late != revlock.Back || err != nil {
			t.Errorf("a late confirmation: %s, %v", late, err)
		}
		o.Wait = 5 * time.Second
		if s := open(t, m, o).State(); s.Phase != revlock.Returned || s.Epoch != 2 {
			t.Errorf("the next finds %+v", s)
		}
	})
}

func TestAfterAChangeWasTakenBackItsHolderGivesNoOrders(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o, h, file := armed(t, m, time.Hour)
		v, failed, err := revlock.Recall(t.Context(), m, o.Place, "s1", time.Minute)
		if v != revlock.Back || failed || err != nil || exists(file) {
			t.Fatalf("recall: %s, %v, %v; the change is there: %v", v, failed, err, exists(file))
		}
		if _, err := machine.Output(t.Context(), h, nil, "touch", file); err == nil || exists(file) {
			t.Errorf("an order after that: %v; it was run: %v", err, exists(file))
		}
	})
}

// restart kills all processes of a node that have the lock, as a restart does.
func restart(t *testing.T, o revlock.Options, h *revlock.Holder) {
	t.Helper()
	_ = h.Close()
	mark := filepath.Join(o.Base, cluster, "armed")
	patient.Until(t, "the watcher has ended", func() bool {
		left := false
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			text, _ := os.ReadFile(file)
			if !strings.Contains(string(text), mark) {
				continue
			}
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
			left = true
			_ = syscall.Kill(-pid, syscall.SIGKILL) // and its sleep, which has the lock too
		}
		return !left
	})
}

// TestAChangeWhoseNodeRestarts checks that such a change is neither confirmed nor undone on its own. Look reports it,
// and GiveBack or the next holder of the lock undoes it.
func TestAChangeWhoseNodeRestarts(t *testing.T) {
	t.Parallel()
	look := func(t *testing.T, m machine.Machine, o revlock.Options) revlock.View {
		t.Helper()
		v, err := revlock.Look(t.Context(), m, o.Place, "")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	returned := func(t *testing.T, m machine.Machine, o revlock.Options, file string) {
		t.Helper()
		if note, err := os.ReadFile(file + ".note"); exists(file) || string(note) != "it's kept\n" {
			t.Errorf("the change is there: %v; what was kept: %q, %v", exists(file), note, err)
		}
		left, _ := filepath.Glob(filepath.Join(o.Base, cluster, "armed", "*.kept"))
		if v := look(t, m, o); len(v.Unwatched)+len(left) > 0 || v.Phase != revlock.Returned || v.Epoch != 2 {
			t.Errorf("after that: %+v, %q", v, left)
		}
	}
	for name, back := range map[string]func(t *testing.T, m machine.Machine, o revlock.Options){
		"somebody has it taken back": func(t *testing.T, m machine.Machine, o revlock.Options) {
			list, err := revlock.GiveBack(t.Context(), m, o.Place)
			if err != nil || len(list) != 1 || list[0] != (revlock.GivenBack{Title: "touch it"}) {
				t.Errorf("given back: %+v, %v", list, err)
			}
			if list, err := revlock.GiveBack(t.Context(), m, o.Place); err != nil || len(list) > 0 {
				t.Errorf("again: %+v, %v", list, err)
			}
		},
		"its client has it taken back": func(t *testing.T, m machine.Machine, o revlock.Options) {
			v, failed, err := revlock.Recall(t.Context(), m, o.Place, "s1", time.Minute)
			if v != revlock.Back || failed || err != nil {
				t.Errorf("recall: %s, %v, %v", v, failed, err)
			}
		},
		"the next one takes the lock": func(t *testing.T, m machine.Machine, o revlock.Options) {
			o.Wait = 5 * time.Second
			next := open(t, m, o)
			if s := next.State(); s.Phase != revlock.Returned || s.Epoch != 2 {
				t.Errorf("it finds %+v", s)
			}
			_ = next.Close()
		},
		"it was cut off once": func(t *testing.T, m machine.Machine, o revlock.Options) {
			if err := os.Symlink("back", filepath.Join(o.Base, cluster, "armed", "s1.verdict")); err != nil {
				t.Fatal(err)
			}
			if list, err := revlock.GiveBack(t.Context(), m, o.Place); err != nil || len(list) != 1 {
				t.Errorf("given back: %+v, %v", list, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			shells(t, func(t *testing.T, m machine.Machine) {
				o, h, file := armed(t, m, time.Hour)
				if v := look(t, m, o); len(v.Unwatched) > 0 {
					t.Errorf("while it is watched: %+v", v)
				}
				restart(t, o, h)
				if v := look(t, m, o); len(v.Unwatched) != 1 || v.Unwatched[0] != "touch it" {
					t.Errorf("after the restart: %+v", v)
				}
				back(t, m, o)
				returned(t, m, o, file)
			})
		})
	}
}

// TestAChangeThatCouldNotBeTakenBackIsNotArmed arms a change whose Keep script finds nothing to keep.
func TestAChangeThatCouldNotBeTakenBackIsNotArmed(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, m machine.Machine) {
		o := options(t)
		h := open(t, m, o)
		if err := h.Begin(t.Context(), revision, nil); err != nil {
			t.Fatal(err)
		}
		err := h.Arm(t.Context(), revlock.Change{ID: "s1", After: time.Hour, Keep: "echo 'it is gone' >&2; exit 71"})
		if croft.KindOf(err) != croft.Conflict || err.Error() != "it is gone" {
			t.Errorf("got %v", err)
		}
		if v, err := revlock.Confirm(t.Context(), m, o.Place, "s1"); v != revlock.None || err != nil {
			t.Errorf("it is armed: %s, %v", v, err)
		}
	})
}

// TestAFrozenClientLosesItsLock stops a client that has a lock, with SIGSTOP. Its holder hears no beat and ends.
func TestAFrozenClientLosesItsLock(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("CROFT_REVLOCK_CLIENT"); dir != "" {
		h := open(t, machine.Local{}, revlock.Options{Place: revlock.Place{Base: dir, Cluster: cluster}, Who: "frozen"})
		_, _ = os.Stdout.WriteString("locked\n")
		<-t.Context().Done()
		_ = h
		return
	}
	o := options(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "CROFT_REVLOCK_CLIENT="+o.Base)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("locked\n"))
	if _, err := out.Read(line); err != nil || !strings.HasPrefix(string(line), "locked") {
		t.Fatalf("the client says %q, %v", line, err)
	}
	if err := exec.CommandContext(t.Context(), "kill", "-STOP", strconv.Itoa(cmd.Process.Pid)).Run(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	o.Wait = 5 * time.Minute
	open(t, machine.Local{}, o)
	t.Logf("the lock was free %v after its client froze", time.Since(began))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestOutputWithoutEnd cancels a program that prints without end. Its holder is lost then, since the end of the program
// is not known.
func TestOutputWithoutEnd(t *testing.T) {
	t.Parallel()
	o := options(t)
	h := open(t, machine.Local{}, o)
	if _, err := machine.Output(t.Context(), h, nil, "yes"); err == nil || !strings.Contains(err.Error(),
		"bytes of output") {
		t.Errorf("endless output: %v", err)
	}
	if _, err := machine.Output(t.Context(), h, nil, "true"); err == nil {
		t.Error("an order after that is run")
	}
	_ = h.Close()
	o.Wait = time.Minute
	open(t, machine.Local{}, o)
}
