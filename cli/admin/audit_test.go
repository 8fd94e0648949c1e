package admin

import (
	"context"
	"slices"
	"testing"

	"croft"
	"croft/audit"
)

func TestOneThingIsMendedOnce(t *testing.T) {
	a, b := croft.NewInstanceID(), croft.NewInstanceID()
	first, second := croft.NewHostID(), croft.NewHostID()
	report := audit.Report{Differences: []audit.Difference{
		{Kind: audit.LeakedClaim, Instance: a, Host: first, Mendable: true},
		{Kind: audit.LeakedClaim, Instance: a, Host: second, Mendable: true},
		{Kind: audit.LeakedClaim, Instance: b, Host: second, Mendable: true},
		{Kind: audit.StrayGuest, Instance: b, Host: second},
		{Kind: audit.StrayFiles, Instance: a, Host: first, Mendable: true},
		{Kind: audit.StrayFiles, Instance: a, Host: second, Mendable: true},
	}}
	outcomes, calls := make([]string, len(report.Differences)), 0
	mendAll(t.Context(), func(context.Context, audit.Difference) error { calls++; return nil }, report, outcomes)
	want := []string{mended, mendedAbove, mended, "", mended, mended}
	if !slices.Equal(outcomes, want) || calls != 4 {
		t.Errorf("got %q with %d calls, want %q with 4", outcomes, calls, want)
	}
}
