package compute

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAKernelThatPanickedIsFoundByTheEndOfItsConsole(t *testing.T) {
	t.Parallel()
	const panics = "[    1.2] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\r\n"
	const end = "[    1.3] ---[ end Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100 ]---\r\n"
	for what, c := range map[string]struct {
		text    string
		started time.Duration // before now
		want    bool
	}{
		"a panic":                             {"boot\r\n" + panics + end, time.Minute, true},
		"a panic of a kernel without the end": {panics, time.Minute, false},
		"a machine that restarted afterwards": {panics + end + "SeaBIOS\r\n", time.Minute, false},
		"an earlier start":                    {panics + end, -time.Minute, false},
		"nothing":                             {"", time.Minute, false},
	} {
		log := filepath.Join(t.TempDir(), "console.log")
		if err := os.WriteFile(log, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := panicked(log, time.Now().Add(-c.started)); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	if panicked(filepath.Join(t.TempDir(), "none"), time.Time{}) {
		t.Error("a guest without a console panicked")
	}
}
