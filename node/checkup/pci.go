package checkup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"croft"
	"croft/compute"
	"croft/compute/pci"
	"croft/control/cloud/direct"
	"croft/internal/checks"
)

// lookPCI checks the PCI devices that the settings select. foreign returns the addresses of devices in machines outside
// of croft, with the names of these machines.
func lookPCI(s pci.Source,
	foreign func(context.Context) (map[string]string, error)) func(context.Context) checks.Result {
	return func(ctx context.Context) checks.Result {
		units, refused, err := s.Units()
		if err != nil {
			return checks.Failure(err.Error(), "run it as root")
		}
		elsewhere, err := foreign(ctx)
		if err != nil {
			return checks.Result{Level: checks.Warn, Found: "not looked at: " + err.Error()}
		}
		var problems, offered []string
		for _, r := range refused {
			problems = append(problems, r.Reason)
		}
		for _, u := range units {
			if why := u.Taken(elsewhere); why != "" {
				problems = append(problems, why)
			} else {
				offered = append(offered, fmt.Sprintf("%s as %s", strings.Join(u.Addresses(), " with "), u.Class))
			}
		}
		found := "it offers no PCI device"
		if len(offered) > 0 {
			found = "it offers " + strings.Join(offered, ", ")
		}
		if len(problems) > 0 {
			return checks.Warning(strings.Join(append(problems, found), "; "),
				"correct the cause, or take the device out of the setting pci")
		}
		return checks.Good(found)
	}
}

// lookReported repeats the problems that the agent of this host reports.
func lookReported(s direct.EtcdSettings, stateDir string) func(context.Context) checks.Result {
	return func(ctx context.Context) checks.Result {
		id, err := compute.ReadHostID(stateDir, false)
		if errors.Is(err, croft.NotFound) {
			return checks.Good("this host has no agent yet")
		}
		var hosts []croft.Host
		if err == nil {
			hosts, err = hostsOf(ctx, s)
		}
		if err != nil {
			return checks.Result{Level: checks.Warn, Found: "not looked at: " + err.Error()}
		}
		for _, h := range hosts {
			if h.ID == id && len(h.Problems) > 0 {
				return checks.Warning(strings.Join(h.Problems, "; "), "`croft host list` shows when they are gone")
			}
		}
		return checks.Good("the agent of this host reports no problem")
	}
}
