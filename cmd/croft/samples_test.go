package main

import (
	"os"
	"testing"

	"croft"
	"croft/pool"
	"croft/schedule"
)

// Commands in the README exist and accept their arguments.
func TestSamplesAreTaken(t *testing.T) {
	text, err := os.ReadFile("../../docs/samples/pools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	check := func(i pool.Instance) error {
		_, err := schedule.ParseQuery(i.Resources)
		return err
	}
	if pools, err := pool.Parse("pools.yaml", text, check, nil); err != nil || len(pools) != 1 {
		t.Errorf("got %d pools, %v", len(pools), err)
	}
	script, err := os.ReadFile("../../docs/samples/setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := schedule.CheckGuest(croft.GuestSettings{UserData: script}); err != nil {
		t.Error(err)
	}
}
