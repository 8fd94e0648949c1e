package audit

import (
	"context"
	"errors"
	"slices"
	"testing"

	"croft"
)

func TestOneThingIsMendedOnce(t *testing.T) {
	a, b := croft.NewInstanceID(), croft.NewInstanceID()
	first, second := croft.NewHostID(), croft.NewHostID()
	all := []Difference{
		{Kind: LeakedClaim, Instance: a, Host: first, Mendable: true},
		{Kind: LeakedClaim, Instance: a, Host: second, Mendable: true},
		{Kind: LeakedClaim, Instance: b, Host: second, Mendable: true},
		{Kind: StrayGuest, Instance: b, Host: second},
		{Kind: StrayFiles, Instance: a, Host: first, Mendable: true},
		{Kind: StrayFiles, Instance: a, Host: second, Mendable: true},
		{Kind: MissingName, Instance: b, Mendable: true},
	}
	calls := 0
	mendAll(t.Context(), func(_ context.Context, d Difference) error {
		calls++
		if d.Kind == MissingName {
			return errors.New("it is taken")
		}
		return nil
	}, all)
	var outcomes []string
	settled := 0
	for _, d := range all {
		outcomes = append(outcomes, d.Outcome)
		if d.Settled() {
			settled++
		}
	}
	want := []string{Mended, MendedAbove, Mended, "", Mended, Mended, "not mended: it is taken"}
	if !slices.Equal(outcomes, want) || calls != 5 || settled != 5 {
		t.Errorf("got %q with %d calls, %d settled, want %q with 5 and 5", outcomes, calls, settled, want)
	}
}
