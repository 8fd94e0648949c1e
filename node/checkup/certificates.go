package checkup

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"croft/doctor"
	"croft/trust"
)

// Certificates checks the certificates in a state directory.
func Certificates(stateDir string) doctor.Result {
	all, err := trust.AllHeld(stateDir)
	if errors.Is(err, fs.ErrPermission) {
		return doctor.Result{Level: doctor.OK, Found: "not looked at: they are root's"}
	}
	if err != nil {
		return doctor.Result{Level: doctor.Fail, Found: err.Error(),
			Do: "do what that says; croft up makes certificates that are gone, and a token lets a host that joined do so again"}
	}
	if len(all) == 0 {
		return doctor.Result{Level: doctor.OK, Found: "none, and none are needed on this machine alone"}
	}
	var first time.Time
	for _, c := range all {
		switch c.State {
		case trust.Expired, trust.NotYetValid:
			return doctor.Result{Level: doctor.Fail, Found: fmt.Sprintf("%s: that of %s %s, %s", c.File, c.Of,
				c.State, trust.Expiry(c.Until)),
				Do: "look at the clock, and start croft up; where it says that a host has to join again: croft token create --host NAME"}
		case trust.Overdue:
			return doctor.Result{Level: doctor.Warn, Found: fmt.Sprintf("%s: that of %s is not renewed, and %s",
				c.File, c.Of, trust.Expiry(c.Until)),
				Do: "look whether croft up runs on the host that has the authority, and whether this one reaches it (join.listen)"}
		}
		if first.IsZero() || c.Until.Before(first) {
			first = c.Until
		}
	}
	return doctor.Result{Level: doctor.OK, Found: fmt.Sprintf("%d, the first %s", len(all), trust.Expiry(first))}
}
