package hosts

import (
	"errors"
	"testing"

	"croft"
)

// A host named with another host's UUID blocked `croft host drain UUID`.
func TestAnExactIDCountsMoreThanAName(t *testing.T) {
	own, rogue := croft.NewHostID(), croft.NewHostID()
	all := []Host{{Host: croft.Host{ID: rogue, Name: string(own)}}, {Host: croft.Host{ID: own, Name: "one"}}}
	if h, err := among(all, string(own)); err != nil || h.ID != own {
		t.Errorf("got %s, %v", h.ID, err)
	}
	if h, err := among(all[:1], string(own)); err != nil || h.ID != rogue {
		t.Errorf("where there is no host of that UUID: %s, %v", h.ID, err)
	}
	if _, err := among([]Host{{Host: croft.Host{Name: "two"}}}, "one"); !errors.Is(err, croft.NotFound) {
		t.Errorf("a host without a UUID: %v", err)
	}
}
