package audit

import (
	"context"

	"croft"
)

// The outcomes of a difference that was mended. The outcome of a failure is a sentence.
const (
	Mended      = "mended"
	MendedAbove = "mended together with the one above" // of the same kind and instance
)

// Settled reports whether the difference was mended.
func (d Difference) Settled() bool { return d.Outcome == Mended || d.Outcome == MendedAbove }

// Repair is Audit, and mends every mendable difference; the result is in its Outcome. A failure does not stop the
// others.
func (a *Auditor) Repair(ctx context.Context) (Report, error) {
	report, err := a.Audit(ctx)
	if err == nil {
		mendAll(ctx, a.Mend, report.Differences)
	}
	return report, err
}

// mendAll mends the mendable differences and sets the outcome of each. Differences with one cause are mended and
// reported once: a claim that leaked on two hosts is two differences.
func mendAll(ctx context.Context, mend func(context.Context, Difference) error, all []Difference) {
	type thing struct {
		kind     Kind
		instance croft.InstanceID
		name     string
	}
	done := map[thing]bool{}
	for i, d := range all {
		if !d.Mendable {
			continue
		}
		one := thing{d.Kind, d.Instance, ""}
		if d.Instance == "" || d.Kind == LostName || d.Kind == StrayFiles {
			one.name = d.Name + string(d.Host) // separate per name and host
		}
		if done[one] {
			all[i].Outcome = MendedAbove
			continue
		}
		if err := mend(ctx, d); err != nil {
			all[i].Outcome = "not mended: " + err.Error()
			continue
		}
		all[i].Outcome, done[one] = Mended, true
	}
}
