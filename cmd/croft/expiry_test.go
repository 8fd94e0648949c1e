package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/internal/testing/patient"
)

// The hook runs once per expiry, in spite of restarts.
func TestAHookIsRunBeforeAnInstanceExpires(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "told")
	s := aloneSettings(t, filepath.Join(dir, "state"))
	s.Sweep = 100 * time.Millisecond
	s.Expiry.Hook = []string{"/bin/sh", "-c", `echo "$EXPIRING_PROJECT/$EXPIRING_NAME" >> ` + file}
	stop := startHost(t, s)
	announced := func(name string) {
		t.Helper()
		command(t, croft.ExitOK, "schedule", "VCPU:1,MEMORY_MB:256,DISK_GB:1", "--name", name, "--expires", "30m")
		patient.Until(t, "the end of "+name+" is announced", func() bool {
			shown, _ := command(t, croft.ExitOK, "schedule", "show", name, "-o", "json")
			return strings.Contains(shown, `"announced": "20`)
		})
	}
	announced("first")
	command(t, croft.ExitOK, "schedule", "VCPU:1,MEMORY_MB:256,DISK_GB:1", "--name", "lasting", "--expires", "3h")
	stop()
	startHost(t, s)
	announced("second") // a sweep, or more, after the restart
	said, err := os.ReadFile(file)
	if want := "default/first\ndefault/second\n"; err != nil || string(said) != want {
		t.Errorf("it was told %q, want %q, %v", said, want, err)
	}
}
