package manager

import (
	"context"
	"log/slog"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/survey"
)

// Config is what a manager needs.
type Config struct {
	Partition croft.PartitionID
	Records   cluster.Records
	Catalogue cluster.Catalogue
	Drivers   map[cluster.SiteType]cluster.Driver
	Vault     cluster.Vault                            // nil: no secret can be opened or kept
	Images    func(name string) (cluster.Image, error) // of the cloud's own catalogue, NotFound; may be nil
	AllowedIP string                                   // CIDR of this server, for templates; may be empty
	// shared with requests, so that both know silent sites; nil: its own
	Survey *survey.Survey
	Log    *slog.Logger
	// Clocks compares the clock of this machine with those of hosts. Unavailable: they differ, or are not known, and no
	// cluster ends because of the time. nil: they are not compared.
	Clocks func(ctx context.Context) error

	CallTimeout time.Duration // of each call to a site; 1 min
	PerSite     int           // calls that change something at a site, at once; 8
	Sweep       time.Duration // between two sweeps; 10 min
	Standby     time.Duration // between two looks whether another manager has let go of a cluster; 15 s
}

// complete checks what is required, and fills in what is not.
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
		c.Survey, err = survey.New(survey.Config{Partition: c.Partition, Records: c.Records, Catalogue: c.Catalogue,
			Drivers: c.Drivers, Vault: c.Vault, Images: c.Images, AllowedIP: c.AllowedIP, Log: c.Log})
		if err != nil {
			return err
		}
	}
	return nil
}
