package move

import (
	"errors"
	"os"
	"sync"
	"testing"

	"croft"
)

func TestAnInstanceMovesWithItsDisk(t *testing.T) {
	w, disk := newWorld(t, nil), data(5)
	inst := w.place("web", "a", disk)
	w.must(w.Report(t.Context(), "web", croft.CloudInit{State: croft.CloudInitDone}))
	w.must(os.WriteFile(w.file("a", inst.ID, "nvram.fd"), []byte("boot entries"), 0o600)) // of its UEFI
	w.must(w.move(inst.ID, "b"))
	w.awaitOnly(inst.ID, "b", croft.StateRunning, disk)
	if text, err := os.ReadFile(w.file("b", inst.ID, "nvram.fd")); string(text) != "boot entries" || err != nil {
		t.Errorf("the variables of its UEFI are %q now, %v", text, err)
	}
	w.await("its report came along", inst.ID, func(st croft.Status) bool { return st.Observation.CloudInit != nil })
	w.must(w.move(inst.ID, "")) // the cloud chooses
	w.await("it moved on", inst.ID, func(st croft.Status) bool { return st.Instance.Host != w.host("b") })
}

func TestAStoppedInstanceStaysStopped(t *testing.T) {
	w, disk := newWorld(t, nil), data(1)
	inst := w.place("web", "a", disk)
	_, err := w.scheduler.Stop(t.Context(), croft.DefaultProject, "web")
	w.must(err)
	w.await("it stops", inst.ID, func(st croft.Status) bool { return st.Observation.State == croft.StateStopped })
	w.must(w.move(inst.ID, "c"))
	w.awaitOnly(inst.ID, "c", croft.StateStopped, disk)
	_, err = w.scheduler.Start(t.Context(), croft.DefaultProject, "web")
	w.must(err)
	w.await("it starts", inst.ID, func(st croft.Status) bool { return runsOn(st, w.host("c")) })
}

// Of two moves at the same time to different hosts, one is refused; the same move twice is one.
func TestTwoMovesAtTheSameTime(t *testing.T) {
	w, disk := newWorld(t, nil), data(2)
	inst := w.place("web", "a", disk)
	at := w.status(inst.ID)
	var work sync.WaitGroup
	results := map[string]*error{"b": new(error), "c": new(error)}
	for to, result := range results {
		work.Go(func() { _, *result = w.fleet.Move(t.Context(), at, to) })
	}
	work.Wait()
	won, lost := "b", *results["c"]
	if *results["b"] != nil {
		won, lost = "c", *results["b"]
	}
	if *results[won] != nil || !errors.Is(lost, croft.Conflict) {
		t.Fatalf("to b: %v; to c: %v", *results["b"], *results["c"])
	}
	w.awaitOnly(inst.ID, won, croft.StateRunning, disk)
}

// The claim is made before the guest is stopped.
func TestAFullHostIsRefused(t *testing.T) {
	w, disk := newWorld(t, nil), data(1)
	inst := w.place("web", "a", disk)
	w.place("one", "b", nil)
	w.place("two", "b", nil)
	if err := w.move(inst.ID, "b"); !errors.Is(err, croft.NoCapacity) {
		t.Fatalf("got %v", err)
	}
	if st := w.status(inst.ID); !runsOn(st, w.host("a")) || st.Instance.Moving != "" {
		t.Errorf("it is %+v", st.Instance)
	}
}

// While the disk is copied, no other order reaches the guest; its end does.
func TestOrdersDuringAMove(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, func(w *world) { w.Peers = heldUntil(gate) })
	inst := w.place("web", "a", data(2))
	w.must(w.move(inst.ID, "b"))
	if err := w.move(inst.ID, "b"); err != nil {
		t.Errorf("the same move again: %v", err)
	}
	if err := w.move(inst.ID, "c"); !errors.Is(err, croft.Conflict) {
		t.Errorf("a move to another host: %v", err)
	}
	for name, do := range map[string]func() error{
		"stop":    func() error { _, err := w.scheduler.Stop(t.Context(), croft.DefaultProject, "web"); return err },
		"reboot":  func() error { _, err := w.scheduler.Reboot(t.Context(), croft.DefaultProject, "web"); return err },
		"rebuild": func() error { _, err := w.scheduler.Rebuild(t.Context(), croft.DefaultProject, "web"); return err },
	} {
		if err := do(); !errors.Is(err, croft.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := w.scheduler.Destroy(t.Context(), croft.DefaultProject, "web", false)
	w.must(err)
	close(gate)
	w.awaitNothing(inst.ID)
}

// An operator ends a move: the guest has its disk again, and the target keeps nothing.
func TestAMoveIsEnded(t *testing.T) {
	gate := make(chan struct{})
	w, disk := newWorld(t, func(w *world) { w.Peers = heldUntil(gate) }), data(2)
	defer close(gate)
	inst := w.place("web", "a", disk)
	w.must(w.move(inst.ID, "b"))
	w.must(w.fleet.EndCopy(t.Context(), w.status(inst.ID).Instance, "an operator ended the move"))
	w.awaitOnly(inst.ID, "a", croft.StateRunning, disk)
	if why := w.status(inst.ID).Instance.Unmoved; why != "an operator ended the move" {
		t.Errorf("the record says %q", why)
	}
	if err := w.fleet.EndCopy(t.Context(), w.status(inst.ID).Instance, ""); !errors.Is(err, croft.Conflict) {
		t.Errorf("ended again: %v", err)
	}
}

// Files of an earlier instance on the target are never taken for the disk, and never removed.
func TestOldFilesOnTheTargetAreKept(t *testing.T) {
	w, disk := newWorld(t, nil), data(1)
	inst := w.place("web", "a", disk)
	old := w.file("b", inst.ID, "disk.qcow2")
	w.must(os.MkdirAll(w.file("b", inst.ID, ""), 0o711))
	w.must(os.WriteFile(old, []byte("old"), 0o600))
	w.must(w.move(inst.ID, "b"))
	w.await("it stays", inst.ID, func(st croft.Status) bool {
		return st.Instance.Unmoved != "" && runsOn(st, w.host("a"))
	})
	if got, err := os.ReadFile(old); err != nil || string(got) != "old" {
		t.Errorf("the old file: %q, %v", got, err)
	}
}
