package revlock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"croft/grid/machine"
	"croft/grid/revlock"
)

// armed has a node change a file and arms what changes it back.
func armed(t *testing.T, m machine.Machine, after time.Duration) (o revlock.Options, h *revlock.Holder, file string) {
	t.Helper()
	o = options(t)
	h = open(t, m, o)
	file = filepath.Join(o.Base, "changed")
	if err := h.Begin(t.Context(), revision, nil); err != nil {
		t.Fatal(err)
	}
	if err := h.Arm(t.Context(), "s1", after, "rm "+machine.Quote(file)+"\n"); err != nil {
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
	shells(t, func(t *testing.T, m machine.Machine) {
		o, h, file := armed(t, m, time.Hour)
		for range 2 { // its answer may have been lost
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
		open(t, m, o) // the watcher has given the lock back
		if v, err := revlock.Confirm(t.Context(), m, o.Place, "s1"); v != revlock.None || err != nil {
			t.Errorf("a change that nobody remembers: %s, %v", v, err)
		}
	})
}

func TestAChangeThatNobodyConfirmsIsTakenBack(t *testing.T) {
	shells(t, func(t *testing.T, m machine.Machine) {
		o, h, file := armed(t, m, time.Second)
		_ = h.Close() // the operator is cut off
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

// TestAFrozenClientLosesItsLock stops a client that has a lock, with SIGSTOP. Its holder hears no beat and ends.
func TestAFrozenClientLosesItsLock(t *testing.T) {
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

// TestOutputWithoutEnd is taken from one program, whose holder is lost then: nobody knows when it ends.
func TestOutputWithoutEnd(t *testing.T) {
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
