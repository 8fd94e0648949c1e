package node

import (
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"croft/node/settings"
)

func TestAProcessWithKeysLeavesNoCore(t *testing.T) {
	dumpable := func() int {
		t.Helper()
		now, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := dumpable()
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0) })
	s := settings.Defaults()
	s.StateDir = t.TempDir()
	s.Clusters.Enabled = true
	if _, err := newBuilding(&s, false, slog.New(slog.DiscardHandler)); err != nil || dumpable() != before {
		t.Fatalf("without a key: %v, dumpable %d, want %d", err, dumpable(), before)
	}
	if _, err := newBuilding(&s, true, slog.New(slog.DiscardHandler)); err != nil || dumpable() != 0 {
		t.Errorf("with a key: %v, dumpable %d, want 0", err, dumpable())
	}
}
