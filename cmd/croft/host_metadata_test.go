package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/mdserver"
	"croft/node/settings"
	"croft/schedule"
)

// asked is a request for one instance.
func asked(t *testing.T, name string) schedule.Request {
	t.Helper()
	q, err := schedule.ParseQuery("VCPU:1,MEMORY_MB:256,DISK_GB:1")
	if err != nil {
		t.Fatal(err)
	}
	return schedule.Request{Name: name, Query: q, Image: "file:///" + name, Tags: map[string]string{"name": name}}
}

func (c *testCloud) scheduler(t *testing.T) *schedule.Scheduler {
	t.Helper()
	s, err := schedule.New(schedule.Config{Partition: c.Store.Partition(), Records: c.Store, View: c.Store, Claims: c.Claims})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// running asks for an instance and returns it with its address.
func (c *testCloud) running(t *testing.T, name string) (croft.Instance, netip.Addr) {
	t.Helper()
	s := c.scheduler(t)
	d, err := s.Request(t.Context(), asked(t, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context(), d.Instance, schedule.Running, nil); err != nil {
		t.Fatal(err)
	}
	st, err := c.Store.Find(t.Context(), croft.DefaultProject, name)
	if err != nil {
		t.Fatal(err)
	}
	return st.Instance, st.Observation.Addresses[0]
}

// untilNobody asks whose an address is until it is nobody's.
func untilNobody(t *testing.T, g *guests, addr netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		got, err := g.Guest(ctx, addr)
		if errors.Is(err, croft.NotFound) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s is still %s's (%v)", addr, got.ID, err)
		}
	}
}

func TestWhoseAnAddressIs(t *testing.T) {
	c := cloudFor(t, 3)
	host1 := c.Hosts["host1"]
	g := &guests{host: &host{id: host1.ID, store: c.Store, hv: host1.Hypervisor, vendor: []byte("#!/bin/sh\n"), log: slog.New(slog.DiscardHandler)}}
	for _, name := range []string{"killed", "destroyed", "stopped"} {
		inst, addr := c.running(t, name)
		got, err := g.Guest(t.Context(), addr)
		if err != nil || got.ID != inst.ID || got.Address != addr || got.Tags["name"] != name || string(got.Vendor) != "#!/bin/sh\n" ||
			len(got.MACs) == 0 || got.MACs[0].String() != inst.ID.MAC(0).String() {
			t.Fatalf("%s is %+v's, %v; want %s", addr, got, err, inst.ID)
		}
		host1.Stop() // else it would start anew what ended
		switch name {
		case "killed":
			err = host1.Hypervisor.Crash(inst.ID)
		case "stopped":
			err = host1.Hypervisor.Stop(t.Context(), inst.ID)
		case "destroyed": // the tombstone is out, and the guest runs on for a moment
			_, err = c.scheduler(t).Destroy(t.Context(), inst.Project, name, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		untilNobody(t, g, addr)
		if err := c.StartHost(context.WithoutCancel(t.Context()), "host1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Guest(t.Context(), netip.MustParseAddr("192.0.2.1")); !errors.Is(err, croft.NotFound) {
		t.Errorf("an address that nobody has ever had: %v", err)
	}
}

func TestVendorDataThatGuestsWouldStumbleOver(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"good.yaml": {"#cloud-config\ntimezone: UTC\n", ""},
		"bad.yaml":  {"#cloud-config\ntimezone: [\n", "is not YAML"},
		"gone.yaml": {"", "no such file"},
		"packed.gz": {"\x1f\x8b", "does not unpack"},
	} {
		file := filepath.Join(dir, name)
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h := &host{settings: settings.Defaults()}
		h.settings.Metadata.VendorData = file
		seeds, err := h.seeds()
		if c.want == "" {
			if err != nil || string(seeds.(mdserver.Seeds).Vendor) != c.text {
				t.Errorf("%s gives %+v, %v", name, seeds, err)
			}
		} else if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "metadata.vendor_data: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s gives %v, want %q", name, err, c.want)
		}
	}
}
