package schedule_test

import (
	"testing"
	"time"

	"croft"
	"croft/schedule"
)

func TestAGuestThatHasBeenOnForLongWithoutAnAddressIsExplained(t *testing.T) {
	on := func(ago time.Duration) *croft.Observation {
		return &croft.Observation{Events: []croft.Event{{Name: croft.EventClaimed, At: time.Now().Add(-24 * time.Hour)},
			{Name: croft.EventRunning, At: time.Now().Add(-ago)}}}
	}
	uefi := croft.Machine{Firmware: croft.FirmwareUEFI, Display: "vnc"}
	for _, c := range []struct {
		name    string
		state   croft.State
		machine croft.Machine
		seen    *croft.Observation
		want    string
	}{
		{"it boots", croft.StateBooting, uefi, on(4 * time.Minute), ""},
		{"it runs", croft.StateRunning, uefi, on(time.Hour), ""},
		{"it was not seen on", croft.StateBooting, uefi, &croft.Observation{}, ""},
		{"it has a BIOS", croft.StateBooting, croft.Machine{}, on(12 * time.Minute), "the guest has been on for 12m " +
			"without an address: it may be without a DHCP client, or be installed by hand; see `schedule logs web`"},
		{"it has UEFI and a screen", croft.StateBooting, uefi, on(12 * time.Minute), "the guest has been on for 12m " +
			"without an address: its disk may have no EFI system partition, without which UEFI firmware boots nothing, or " +
			"it may be without a DHCP client, or be installed by hand; see `schedule logs web` and `schedule screen web`"},
	} {
		if got := schedule.NoAddress("web", string(c.state), c.machine, c.seen); got != c.want {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
}
