package schedule

import (
	"strings"
	"testing"

	"croft"
)

func TestCheckGuest(t *testing.T) {
	many := map[string]string{}
	for i := range 51 {
		many[strings.Repeat("k", i+1)] = "v"
	}
	for _, c := range []struct {
		name string
		spec croft.Spec
		want string // in the error; empty where it is right
	}{
		{"nothing is right", croft.Spec{}, ""},
		{"all of it", croft.Spec{Metadata: "config-drive", IMDS: "off",
			Tags: map[string]string{"role": "front", "empty": ""}, UserData: []byte("#!/bin/sh\n")}, ""},
		{"a source that does not exist", croft.Spec{Metadata: "no-cloud"},
			`metadata is "no-cloud": use auto, server, nocloud or config-drive; did you mean "nocloud"?`},
		{"a demand that does not exist", croft.Spec{IMDS: "on"}, `imds is "on": use optional, required or off`},
		{"a restart policy that does not exist", croft.Spec{Restart: "on-falure"},
			`restart is "on-falure": use always, on-failure or never; did you mean "on-failure"?`},
		{"a restart policy", croft.Spec{Restart: croft.RestartNever}, ""},
		{"a server that says nothing", croft.Spec{Metadata: "server", IMDS: "off"}, "nothing would"},
		{"a tag without key", croft.Spec{Tags: map[string]string{"": "x"}}, "a key has 1 to 128 bytes"},
		{"a tag that cannot be printed", croft.Spec{Tags: map[string]string{"a": "\x1b[31m"}},
			"a value has at most 256 bytes"},
		{"a long tag", croft.Spec{Tags: map[string]string{"a": strings.Repeat("x", 257)}},
			"a value has at most 256 bytes"},
		{"many tags", croft.Spec{Tags: many}, "51 tags are too many"},
		{"user-data that the guest would ignore", croft.Spec{UserData: []byte("#cloudconfig\n")}, "cloud-init ignores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckGuest(c.spec)
			if c.want == "" && err != nil || c.want != "" &&
				(croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
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
