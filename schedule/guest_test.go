package schedule

import (
	"net/netip"
	"strings"
	"testing"

	"croft"
)

func TestCheckGuest(t *testing.T) {
	many := map[string]string{}
	for i := range 51 {
		many[strings.Repeat("k", i+1)] = "v"
	}
	most := map[string]string{strings.Repeat("k", 128): strings.Repeat("x", 256)}
	for i := range 49 {
		most[strings.Repeat("k", i+1)] = "v"
	}
	for _, c := range []struct {
		name     string
		settings croft.GuestSettings
		want     string // part of the error; empty: the settings are valid
	}{
		{"nothing is right", croft.GuestSettings{}, ""},
		{"all of it", croft.GuestSettings{Metadata: "config-drive", IMDS: "off",
			Tags: map[string]string{"role": "front", "empty": ""}, UserData: []byte("#!/bin/sh\n")}, ""},
		{"a source that does not exist", croft.GuestSettings{Metadata: "no-cloud"},
			`metadata is "no-cloud": use auto, server, nocloud or config-drive; did you mean "nocloud"?`},
		{"a demand that does not exist", croft.GuestSettings{IMDS: "on"},
			`imds is "on": use optional, required or off`},
		{"a restart policy that does not exist", croft.GuestSettings{Restart: "on-falure"},
			`restart is "on-falure": use always, on-failure, never, elsewhere, elsewhere:disk, elsewhere:image or elsewhere:backup; did you mean "on-failure"?`},
		{"a restart policy", croft.GuestSettings{Restart: croft.RestartNever}, ""},
		{"the server alone", croft.GuestSettings{Metadata: "server", IMDS: "required"}, ""},
		{"as many tags, keys and values as there may be", croft.GuestSettings{Tags: most}, ""},
		{"a tag with a long key", croft.GuestSettings{Tags: map[string]string{strings.Repeat("k", 129): "x"}},
			"a key has 1 to 128 bytes"},
		{"a key that cannot be printed", croft.GuestSettings{Tags: map[string]string{"a\n": "x"}},
			"a key has 1 to 128 bytes"},
		{"a tag that is not UTF-8", croft.GuestSettings{Tags: map[string]string{"a": "\xff"}},
			"a value has at most 256 bytes"},
		{"a server that says nothing", croft.GuestSettings{Metadata: "server", IMDS: "off"},
			"the server has no metadata"},
		{"a tag without key", croft.GuestSettings{Tags: map[string]string{"": "x"}}, "a key has 1 to 128 bytes"},
		{"a tag that cannot be printed", croft.GuestSettings{Tags: map[string]string{"a": "\x1b[31m"}},
			"a value has at most 256 bytes"},
		{"a long tag", croft.GuestSettings{Tags: map[string]string{"a": strings.Repeat("x", 257)}},
			"a value has at most 256 bytes"},
		{"many tags", croft.GuestSettings{Tags: many}, "51 tags are too many"},
		{"user-data that the guest would ignore", croft.GuestSettings{UserData: []byte("#cloudconfig\n")},
			"cloud-init ignores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckGuest(c.settings)
			if c.want == "" && err != nil || c.want != "" &&
				(croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// Observations of an older order are ignored.
func TestGoals(t *testing.T) {
	off := func(generation int64, ended croft.End) *croft.Status {
		return &croft.Status{Instance: croft.Instance{Name: "web", State: croft.StateScheduled, Generation: 2},
			Observation: &croft.Observation{State: croft.StateStopped, Generation: generation, Ended: ended}}
	}
	running := off(2, croft.EndGuest)
	running.Observation.State = croft.StateRunning
	for _, c := range []struct {
		name    string
		goal    Goal
		st      *croft.Status
		reached bool
		err     bool
	}{
		{"stopped", Stopped, off(2, ""), true, false},
		{"stopped by the guest itself", Stopped, off(2, croft.EndGuest), true, false},
		{"stopped of an older order", Stopped, off(1, ""), false, false},
		{"off on the way to running", Running, off(2, ""), false, false},
		{"left off", Running, off(2, croft.EndGuest), false, true},
		{"left off by an older order", Running, off(1, croft.EndGuest), false, false},
		{"running, whatever ended before", Running, running, true, false},
		{"not seen yet", Running, &croft.Status{Instance: croft.Instance{State: croft.StateScheduled}}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if reached, err := c.goal(c.st); reached != c.reached || (err != nil) != c.err {
				t.Errorf("got %v, %v", reached, err)
			}
		})
	}
}

func TestAddress(t *testing.T) {
	at := func(state croft.State, addresses ...string) *croft.Status {
		o := croft.Observation{State: state}
		for _, a := range addresses {
			o.Addresses = append(o.Addresses, netip.MustParseAddr(a))
		}
		return &croft.Status{Observation: &o}
	}
	for _, c := range []struct {
		name string
		st   *croft.Status
		want string
	}{
		{"not seen yet", &croft.Status{}, ""},
		{"reserved for a guest that boots", at(croft.StateBooting, "192.0.2.1"), ""},
		{"none", at(croft.StateRunning), ""},
		{"the only one", at(croft.StateRunning, "2001:db8::1"), "2001:db8::1"},
		{"IPv4 first", at(croft.StateRunning, "2001:db8::1", "192.0.2.1"), "192.0.2.1"},
		{"the first of several of IPv6", at(croft.StateRunning, "2001:db8::1", "2001:db8::2"), "2001:db8::1"},
		{"the first of several", at(croft.StateRunning, "192.0.2.2", "192.0.2.1", "2001:db8::1"), "192.0.2.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Address(c.st); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestReady(t *testing.T) {
	status := func(state croft.State, told *croft.CloudInit) *croft.Status {
		return &croft.Status{
			Instance:    croft.Instance{Name: "web", State: croft.StateScheduled, Generation: 1},
			Observation: &croft.Observation{State: state, Generation: 1, CloudInit: told},
		}
	}
	done := &croft.CloudInit{State: croft.CloudInitDone}
	simulated := status(croft.StateRunning, nil)
	simulated.Host = &croft.Host{NoSetUp: true}
	for _, c := range []struct {
		name    string
		st      *croft.Status
		reached bool
		err     string
	}{
		{"not while it boots", status(croft.StateBooting, nil), false, ""},
		{"not when it has an address alone", status(croft.StateRunning, nil), false, ""},
		{"when it has reported", status(croft.StateRunning, done), true, ""},
		{"not while it has no address, whatever it reported", status(croft.StateBooting, done), false, ""},
		{"never once the set-up failed", status(croft.StateRunning,
			&croft.CloudInit{State: croft.CloudInitFailed, Error: "no such package"}), false,
			"its set-up failed: no such package; `schedule console web`"},
		{"never where guests are simulated", simulated, false,
			"it runs, and a guest of the simulated hypervisor never reports the end of its set-up: wait with --wait=running"},
		{"never once it is gone", nil, false, "it was destroyed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			reached, err := Ready(c.st)
			if reached != c.reached || (err != nil) != (c.err != "") || err != nil &&
				!strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, %v; want %v, %q", reached, err, c.reached, c.err)
			}
		})
	}
}
