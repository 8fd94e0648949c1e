package client

import (
	"net/netip"
	"testing"
	"time"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// TestAClientReadsTheStateThatAnInstanceShows: goals give the same verdict on both sides of the API.
func TestAClientReadsTheStateThatAnInstanceShows(t *testing.T) {
	t.Parallel()
	inst := croft.Instance{ID: "11111111-1111-4111-8111-111111111111", Project: "default", Name: "web",
		Host: "22222222-2222-4222-8222-222222222222", State: croft.StateScheduled, Generation: 3,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Spec: croft.Spec{Resources: croft.Resources{croft.VCPU: 1},
			Image: "https://u:p@images.example/a.qcow2", ImageName: "debian",
			GuestSettings: croft.GuestSettings{Tags: map[string]string{"a": "b"}},
			Policy:        &croft.CrushPolicy{Name: "first", Generation: 7}}}
	in := func(state croft.State) croft.Instance { inst := inst; inst.State = state; return inst }
	seen := func(state croft.State, generation int64) *croft.Observation {
		return &croft.Observation{Host: inst.Host, Instance: inst.ID, State: state, Generation: generation,
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	}
	failed := seen(croft.StateFailed, 3)
	failed.Error, failed.ErrorKind = "no disk", croft.NoCapacity
	set := seen(croft.StateRunning, 3)
	set.CloudInit = &croft.CloudInit{State: croft.CloudInitDone}
	off := seen(croft.StateStopped, 3)
	off.Ended = croft.EndGuest
	alive, silent := &croft.Host{ID: inst.Host, Name: "h", Alive: true}, &croft.Host{ID: inst.Host, Name: "h"}
	lost := in(croft.StateLost)
	lost.Lost = &croft.Loss{Reason: "a fire"}
	ejected := lost
	ejected.Ejected = true
	for name, st := range map[string]croft.Status{
		"scheduling":         {Instance: in(croft.StateScheduling)},
		"held":               {Instance: in(croft.StateHeld), Host: alive},
		"ordered":            {Instance: inst, Host: alive},
		"running":            {Instance: inst, Host: alive, Observation: seen(croft.StateRunning, 3)},
		"running, not yet":   {Instance: inst, Host: alive, Observation: seen(croft.StateRunning, 2)},
		"ready":              {Instance: inst, Host: alive, Observation: set},
		"failed":             {Instance: inst, Host: alive, Observation: failed},
		"stopped":            {Instance: inst, Host: alive, Observation: off},
		"on a silent host":   {Instance: inst, Host: silent, Observation: seen(croft.StateRunning, 3)},
		"silent, never seen": {Instance: inst, Host: silent},
		"destroying": {Instance: in(croft.StateDestroying), Host: alive,
			Observation: seen(croft.StateRunning, 3)},
		"lost":              {Instance: lost},
		"lost, and ejected": {Instance: ejected},
	} {
		t.Run(name, func(t *testing.T) {
			shown := api.InstanceOf(st)
			got := recordsOf(shown)
			for _, goal := range []schedule.Goal{schedule.Running, schedule.Ready, schedule.Stopped, schedule.Ejected} {
				want, wantErr := goal(&st)
				have, err := goal(&got)
				if have != want || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
					t.Errorf("a goal is %t, %v, want %t, %v", have, err, want, wantErr)
				}
			}
			if shown.Image != "debian" || shown.ImageURL != "https://images.example/a.qcow2" ||
				shown.Query != "VCPU:1" {
				t.Errorf("it shows the image %q at %q, and the query %q", shown.Image, shown.ImageURL, shown.Query)
			}
		})
	}
}
