package direct

import (
	"errors"
	"testing"

	"croft"
)

func TestADistanceIsNotStatedToANameOfTwoHosts(t *testing.T) {
	t.Parallel()
	one, two := croft.NewHostID(), croft.NewHostID()
	hosts := map[croft.HostID]croft.Host{
		one: {ID: one, Name: "h2", Location: "s/r/k"}, two: {ID: two, Name: "h2", Location: "s/r/k"},
	}
	if p, err := locate("h2", hosts); !errors.Is(err, croft.Conflict) {
		t.Errorf("got %s, %v", p.name, err)
	}
	if p, err := locate(string(two), hosts); err != nil || p.name != string(two) {
		t.Errorf("by UUID: got %s, %v", p.name, err)
	}
	if p, err := locate("s/r/k", hosts); err != nil || p.name != "s/r/k" {
		t.Errorf("a location: got %s, %v", p.name, err)
	}
}
