package page

import (
	"fmt"

	"croft"
	"croft/tenant"
)

// gauge is an amount in use of a total.
type gauge struct {
	Name        string
	Used, Total int64
	Unlimited   bool // there is no total
	Unknown     bool // neither is known
	Withdrawn   bool // nothing is offered at present, as by a silent host
	measure     tenant.Measure
}

// Percent returns the part in use, from 0 to 100.
func (g gauge) Percent() int {
	if g.Total <= 0 || g.Used <= 0 {
		return 0
	}
	return int(min(100, (g.Used*100+g.Total-1)/g.Total))
}

// Text shows both amounts.
func (g gauge) Text() string {
	used := amountOf(g.measure, g.Used)
	switch {
	case g.Unknown:
		return "not known"
	case g.Unlimited:
		return used + " used, no limit"
	case g.Total == 0 && g.Used == 0:
		return "none"
	case g.Withdrawn:
		return used + " claimed"
	}
	return used + " of " + amountOf(g.measure, g.Total)
}

// Class tells how full it is.
func (g gauge) Class() string {
	switch p := g.Percent(); {
	case !g.Unlimited && g.Used >= g.Total && g.Total > 0:
		return "full"
	case p >= 85:
		return "much"
	}
	return "some"
}

// gaugeOf returns the gauge of a measure.
func gaugeOf(m tenant.Measure, used, total int64) gauge {
	return gauge{Name: measureName(m), Used: used, Total: total, measure: m}
}

// mainMeasures are the measures that every host and every project has.
var mainMeasures = []tenant.Measure{tenant.Measure(croft.VCPU), tenant.Measure(croft.MemoryMB),
	tenant.Measure(croft.DiskGB)}

// measureName is what a measure is called.
func measureName(m tenant.Measure) string {
	switch m {
	case tenant.Measure(croft.VCPU):
		return "vCPU"
	case tenant.Measure(croft.MemoryMB):
		return "memory"
	case tenant.Measure(croft.DiskGB):
		return "disk"
	}
	return string(m)
}

// amountOf writes an amount of a measure.
func amountOf(m tenant.Measure, n int64) string {
	switch m {
	case tenant.Measure(croft.MemoryMB):
		return bytesOf(n << 20)
	case tenant.Measure(croft.DiskGB), tenant.ImageGB, tenant.BackupGB:
		return bytesOf(n << 30)
	case tenant.StoredBytes:
		return bytesOf(n)
	}
	return fmt.Sprint(n)
}

// measureOf returns the measure of a resource class.
func measureOf(class croft.ResourceClass) tenant.Measure { return tenant.Measure(class) }
