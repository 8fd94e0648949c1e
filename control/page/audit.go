package page

import (
	"context"
	"net/http"
	"slices"
	"time"

	"croft/hosts/audit"
)

// auditPage is what the comparison of all records shows.
type auditPage struct {
	audit.Report
	Host     string // only differences of this host
	Repaired bool
	Mendable int
}

// auditTime bounds a comparison.
const auditTime = 5 * time.Minute

func auditPageOf(r audit.Report, host string, repaired bool) *auditPage {
	d := &auditPage{Report: r, Host: host, Repaired: repaired}
	if host != "" {
		d.Differences = slices.DeleteFunc(d.Differences, func(one audit.Difference) bool {
			return string(one.Host) != host
		})
		d.Unchecked = slices.DeleteFunc(d.Unchecked, func(one audit.Unchecked) bool { return string(one.Host) != host })
	}
	for _, one := range d.Differences {
		if one.Mendable && one.Outcome == "" {
			d.Mendable++
		}
	}
	return d
}

func (v *visit) showAudit() error {
	return v.showLate("audit", "Audit", func() (any, error) {
		ctx, cancel := context.WithTimeout(from(v.r), auditTime)
		defer cancel()
		report, err := v.client.AuditCloud(ctx)
		return auditPageOf(report, v.r.URL.Query().Get("host"), false), err
	})
}

// repair mends the findings that can be mended without risk for a guest or its disk.
func (v *visit) repair() error {
	ctx, cancel := context.WithTimeout(from(v.r), auditTime)
	defer cancel()
	report, err := v.client.RepairCloud(ctx)
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "audit", "Audit", late{v: v, ready: true,
		load: func() (any, error) { return auditPageOf(report, "", true), nil }})
}
