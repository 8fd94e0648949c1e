package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"croft"
	"croft/control/cloud/direct"
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
	access := direct.Defaults()
	if err := direct.AddLocal(s.StateDir, &access.Etcd, &access.Placement); err != nil {
		t.Fatal(err)
	}
	announced := func(name string) {
		t.Helper()
		store, err := access.Etcd.Open(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		command(t, croft.ExitOK, "schedule", "VCPU:1,MEMORY_MB:256,DISK_GB:1", "--name", name, "--expires", "30m")
		patient.Until(t, "the end of "+name+" is announced", func() bool {
			st, err := store.Instances.Find(t.Context(), croft.DefaultProject, name)
			return err == nil && !st.Instance.Announced.IsZero()
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
