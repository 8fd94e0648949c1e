package main

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"croft"
	"croft/internal/testing/patient"
	"croft/mdserver"
	"croft/node"
	"croft/schedule"
)

// asked is a request for one instance.
func asked(t *testing.T, name string) schedule.Request {
	t.Helper()
	q, err := schedule.ParseQuery("VCPU:1,MEMORY_MB:256,DISK_GB:1")
	if err != nil {
		t.Fatal(err)
	}
	return schedule.Request{Name: name, Query: q, Image: "file:///" + name,
		GuestSettings: croft.GuestSettings{Tags: map[string]string{"name": name}}}
}

func (c *testCloud) scheduler(t *testing.T) *schedule.Scheduler {
	t.Helper()
	s, err := schedule.New(schedule.Config{Partition: c.Store.Partition(), Records: c.Store.Instances,
		Holds: c.Store.Instances, View: c.Store.Instances, Registry: c.Store.Registry, Groups: c.Store.Groups,
		Claims: c.Claims})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// running requests an instance and returns it with its address.
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
	st, err := c.Store.Instances.Find(t.Context(), croft.DefaultProject, name)
	if err != nil {
		t.Fatal(err)
	}
	return st.Instance, st.Observation.Addresses[0]
}

// untilNobody waits until an address belongs to no guest.
func untilNobody(t *testing.T, g mdserver.Guests, addr netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
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
	g := node.NewGuests(host1.ID, c.Store, host1.Hypervisor, []byte("#!/bin/sh\n"))
	for _, name := range []string{"killed", "destroyed", "stopped"} {
		inst, addr := c.running(t, name)
		got, err := g.Guest(t.Context(), addr)
		if err != nil || got.ID != inst.ID || got.Address != addr || got.Tags["name"] != name ||
			string(got.Vendor) != "#!/bin/sh\n" ||
			len(got.MACs) == 0 || got.MACs[0].String() != inst.ID.MAC(0).String() {
			t.Fatalf("%s is %+v's, %v; want %s", addr, got, err, inst.ID)
		}
		host1.Stop() // it would restart a guest that ended
		switch name {
		case "killed":
			err = host1.Hypervisor.Crash(inst.ID)
		case "stopped":
			err = host1.Hypervisor.Stop(t.Context(), inst.ID)
		case "destroyed": // the tombstone is written, but the guest still runs for a moment
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
