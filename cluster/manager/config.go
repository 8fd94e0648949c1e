package manager

import (
	"context"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/survey"
)

// Config configures a manager.
type Config struct {
	cluster.Backends // except Accounts

	// shared with the handling of requests, so that both know silent sites; nil: an own one
	Survey *survey.Survey
	// Clocks compares the clock of this machine with the clocks of hosts. Unavailable: they differ, or could not be
	// compared, and no cluster ends because of the time. nil: they are not compared.
	Clocks func(ctx context.Context) error

	CallTimeout time.Duration // bounds each call to a site; 1 min by default
	PerSite     int           // maximum number of concurrent changing calls per site; 8 by default
	Sweep       time.Duration // interval between sweeps; 10 min by default
	Standby     time.Duration // interval between checks whether another manager released a cluster; 15 s by default
}

// complete checks required fields, and sets defaults.
func (c *Config) complete() error {
	if c.Partition == "" || c.Records == nil || c.Catalogue == nil || c.Log == nil {
		return croft.Errorf(croft.Invalid, "manager: Partition, Records, Catalogue and Log are required")
	}
	for value, otherwise := range map[*time.Duration]time.Duration{
		&c.CallTimeout: time.Minute, &c.Sweep: 10 * time.Minute, &c.Standby: 15 * time.Second,
	} {
		if *value == 0 {
			*value = otherwise
		}
	}
	if c.PerSite == 0 {
		c.PerSite = 8
	}
	if c.Survey == nil {
		var err error
		c.Survey, err = survey.New(survey.Config{Backends: c.Backends})
		if err != nil {
			return err
		}
	}
	return nil
}
