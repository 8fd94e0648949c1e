package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
	"croft/node"
	"croft/node/settings"
)

// aloneSettings are the settings of a cloud of one machine, which only this machine reaches.
func aloneSettings(t *testing.T, dir string) settings.Settings {
	t.Helper()
	s := settings.Defaults()
	s.StateDir, s.Hypervisor, s.Host.Name = dir, "sim", "alone"
	s.Etcd.Listen, s.Placement.Listen, s.API.Listen = freeport.For(t, "127.0.0.1"), freeport.For(t, "127.0.0.1"),
		freeport.For(t, "127.0.0.1")
	t.Setenv("CROFT_STATE_DIR", dir)
	return s
}

// instanceStates are the names and states in schedule list.
func instanceStates(t *testing.T) []string {
	t.Helper()
	text, _ := command(t, croft.ExitOK, "schedule", "list", "-o", "json")
	var all []struct{ Name, State string }
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range all {
		names = append(names, one.Name+" "+one.State)
	}
	slices.Sort(names)
	return names
}

// A cloud with a lost etcd continues from a snapshot, by the documented commands: instances from before the snapshot
// exist, those destroyed or stopped since are recreated or started, and those created since are reported and not
// changed.
func TestALostEtcdIsRestoredFromASnapshot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := aloneSettings(t, dir)
	stop := startHost(t, s)
	for _, name := range []string{"stays", "goes", "halts"} {
		command(t, croft.ExitOK, "schedule", "VCPU:1,MEMORY_MB:64,DISK_GB:1", "--name", name, "--wait")
	}
	file := filepath.Join(t.TempDir(), "croft.db")
	_, said := command(t, croft.ExitOK, "etcd", "snapshot", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 ||
		!strings.Contains(said, "has the whole content of etcd") {
		t.Fatalf("%v, %v: %s", info, err, said)
	}
	command(t, croft.ExitConflict, "etcd", "snapshot", file)
	command(t, croft.ExitOK, "schedule", "destroy", "--wait", "goes")
	command(t, croft.ExitOK, "schedule", "stop", "--wait", "halts")
	command(t, croft.ExitOK, "schedule", "VCPU:1,MEMORY_MB:64,DISK_GB:1", "--name", "later", "--wait")
	later, _ := command(t, croft.ExitOK, "schedule", "show", "later", "-o", "json")
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(later), &made); err != nil {
		t.Fatal(err)
	}

	_, said = command(t, croft.ExitConflict, "etcd", "restore", file, "--state-dir", dir)
	if !strings.Contains(said, "is in use") {
		t.Errorf("while croft runs: %s", said)
	}
	if code, said := stop(); code != croft.ExitOK {
		t.Fatalf("exit code %d: %s", code, said)
	}
	_, said = command(t, croft.ExitConflict, "etcd", "restore", file, "--state-dir", dir)
	if !strings.Contains(said, "is there already") {
		t.Errorf("over what is there: %s", said)
	}
	if err := os.RemoveAll(node.EtcdDir(dir)); err != nil { // the damage
		t.Fatal(err)
	}
	command(t, croft.ExitOK, "etcd", "restore", file, "--state-dir", dir)

	startHost(t, s)
	// At first the records match the snapshot, too: the running guests decide.
	want := []string{"goes running", "halts running", "stays running"}
	deadline := patient.Deadline(t)
	for {
		guests, err := os.ReadFile(filepath.Join(dir, "sim.json"))
		got := instanceStates(t)
		if err == nil && strings.Count(string(guests), `"power":"on"`) == 4 && slices.Equal(got, want) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("instances: %q, want %q and four guests on: %v\n%s", got, want, err, guests)
		}
		<-time.After(100 * time.Millisecond)
	}
	found, _ := command(t, 1, "audit")
	if strings.Count(found, "\n") > 1 || !strings.Contains(found, made.ID) {
		t.Errorf("the audit finds:\n%s\nwant the guest that was made since, and nothing else", found)
	}
	command(t, croft.ExitOK, "schedule", "VCPU:1,MEMORY_MB:64,DISK_GB:1", "--name", "afterwards", "--wait")
}

func TestWhatIsNoSnapshotIsNotRestored(t *testing.T) {
	file, dir := filepath.Join(t.TempDir(), "croft.db"), filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, []byte(strings.Repeat("no snapshot ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{file, file + "-absent"} {
		_, said := command(t, croft.ExitUsage, "etcd", "restore", file, "--state-dir", dir)
		if strings.Count(said, "\n") != 1 || !strings.Contains(said, "snapshot") ||
			strings.Contains(said, "--skip") {
			t.Errorf("it says %q", said)
		}
		if _, err := os.Stat(node.EtcdDir(dir)); err == nil {
			t.Error("something is left")
		}
	}
}
