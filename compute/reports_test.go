package compute_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"croft"
)

// awaitSeen follows the instance until its host's observation satisfies enough.
func (c *cloud) awaitSeen(inst croft.Instance, enough func(*croft.Observation) bool) *croft.Observation {
	c.t.Helper()
	var seen *croft.Observation
	err := c.store.Instances.WatchInstance(c.t.Context(), inst.ID, func(st *croft.Status) bool {
		if st == nil {
			return false
		}
		seen = st.Observation
		return seen == nil || !enough(seen)
	})
	if err != nil || seen == nil || !enough(seen) {
		c.t.Fatalf("instance %s was last seen as %+v: %v", inst.Name, seen, err)
	}
	return seen
}

func TestWhatAGuestTellsIsObserved(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	at := time.Now().UTC().Truncate(time.Second)
	report := croft.CloudInit{State: croft.CloudInitFailed, At: at, Error: "no such package"}
	if err := agent.Reports().CloudInit(t.Context(), inst.ID, report); err != nil {
		t.Fatal(err)
	}
	seen := c.awaitSeen(inst, func(o *croft.Observation) bool { return o.CloudInit != nil })
	if *seen.CloudInit != report || seen.State != croft.StateRunning {
		t.Errorf("observed %+v while %s, want %+v while running", *seen.CloudInit, seen.State, report)
	}
	if err := agent.Reports().SetPassword(t.Context(), inst.ID, "c2VjcmV0"); err != nil {
		t.Fatal(err)
	}
	c.awaitSeen(inst, func(o *croft.Observation) bool { return o.Password == "c2VjcmV0" && o.CloudInit != nil })
	if err := agent.Reports().SetPassword(t.Context(), inst.ID, "b3RoZXI="); !errors.Is(err, croft.Conflict) {
		t.Errorf("a second password gives %v", err)
	}

	c.stop() // another agent reads it too
	agent = c.start()
	inst = c.reorder(inst, croft.WantStopped)
	if seen := c.await(inst, croft.StateStopped); seen.CloudInit == nil || *seen.CloudInit != report {
		t.Errorf("after a restart it is observed as %+v", seen.CloudInit)
	}
	if got, err := agent.Reports().Password(t.Context(), inst.ID); got != "c2VjcmV0" || err != nil {
		t.Errorf("the password is %q, %v", got, err)
	}
	inst = c.reorder(inst, croft.WantGone)
	c.await(inst, "")
	c.bare(inst)
	if err := agent.Reports().CloudInit(t.Context(), inst.ID, report); !errors.Is(err, croft.NotFound) {
		t.Errorf("an instance that is gone can report: %v", err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, string(inst.ID))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("that left files: %v", err)
	}
}

// disks maps instance names to their metadata sources, and writes the source on the metadata disk.
type disks map[string]croft.Metadata

func (d disks) Source(o croft.Order) (croft.Metadata, error) {
	source, ok := d[o.Name]
	if !ok {
		return "", croft.Errorf(croft.Invalid, "instance %s wants what this host has not", o.Name)
	}
	return source, nil
}

func (d disks) WriteSeed(_ context.Context, w io.Writer, o croft.Order) error {
	_, err := io.WriteString(w, string(d[o.Name]))
	return err
}

func TestTheMetadataDiskIsMadeWhereAsked(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.seeds = disks{"served": croft.MetadataServer, "seeded": croft.MetadataNoCloud}
	c.start()
	for name, want := range map[string]string{"served": "", "seeded": "nocloud"} {
		inst := c.request(name)
		c.await(inst, croft.StateRunning)
		m, err := c.hv.Machine(inst.ID)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(filepath.Join(c.dir, string(inst.ID), "seed.iso"))
		if string(text) != want || m.Source != c.seeds.(disks)[name] || (m.Seed != "") != (want != "") {
			t.Errorf("%s: the disk is %q, and the machine has the disk %q for the source %q", name, text, m.Seed,
				m.Source)
		}
	}
	inst := c.request("refused")
	if seen := c.await(inst, croft.StateFailed); seen.ErrorKind != croft.Invalid {
		t.Errorf("it fails with %s %q", seen.ErrorKind, seen.Error)
	}
	c.bare(inst)
}
