package images

import (
	"testing"

	"croft"
)

func TestAnImageIsPulledToTheHostOfTheID(t *testing.T) {
	own, rogue := croft.NewHostID(), croft.NewHostID()
	picked, err := pickHosts([]croft.Host{{ID: own, Name: "one"}, {ID: rogue, Name: string(own)}},
		[]string{string(own)})
	if err != nil || len(picked) != 1 || picked[0].ID != own {
		t.Errorf("got %v, %v", picked, err)
	}
}
