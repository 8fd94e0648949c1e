package args

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/pflag"

	"croft"
	"croft/cloud/direct"
	"croft/cloud/login"
	"croft/cloud/remote"
	"croft/internal/settings"
	hosts "croft/node/settings"
)

// settingsFlags maps flags to the paths of their settings.
var settingsFlags = map[string]string{
	"etcd": "etcd.endpoints", "placement": "placement.endpoint", "cloud": "placement.cloud", "project": "project",
	"output": "output", "wait": "wait", "timeout": "timeout", "policy": "policy",
	"server": "pool.endpoints", "partition": "partition",
}

// AddCloudFlags defines the flags of all commands that connect to the cloud.
func AddCloudFlags(flags *pflag.FlagSet) {
	flags.String("settings", "", "read settings from this `file` instead of searching schedule.yaml")
	flags.String("etcd", "", "`URLs` of etcd, with commas (etcd.endpoints)")
	flags.String("placement", "", "`URL` of Placement (placement.endpoint)")
	flags.String("cloud", "", "cloud of clouds.yaml whose Keystone knows us to Placement (`name`; placement.cloud)")
	flags.String("project", "", "`name` of the project that owns the instances (project)")
	flags.String("partition", "", "`name` of another cloud that is asked through this one (partition)")
	flags.StringP("output", "o", "", "print text, table, wide, json or yaml (`format`; output)")
}

// AddWaitFlags defines the flags of commands that can wait until their orders are done.
func AddWaitFlags(flags *pflag.FlagSet, what string) {
	flags.String("wait", "", "wait until "+what+" (wait)")
	flags.Lookup("wait").NoOptDefVal = string(direct.WaitYes)
	flags.Duration("timeout", 0, "wait no longer than this `duration` (timeout)")
}

// RemoteSettings reads the settings of schedule.yaml for a command that is about this machine unless they name a cloud
// by its URL.
func RemoteSettings() (direct.Settings, error) {
	s, _, err := settings.Load(direct.Defaults(), settings.Source{Name: direct.SettingsFile,
		Former: direct.FormerSettings})
	return s, err
}

// LoadSettings reads the settings of schedule.yaml. Variables override the file, and flags both.
func LoadSettings(flags *pflag.FlagSet) (direct.Settings, error) {
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		if path, ok := settingsFlags[f.Name]; ok {
			given[path] = f.Value.String()
		}
	})
	file, err := flags.GetString("settings")
	if err != nil {
		return direct.Settings{}, err
	}
	if err := direct.CheckEnvironment(os.Environ(), hosts.EnvNames()); err != nil {
		return direct.Settings{}, err
	}
	s, from, err := settings.Load(direct.Defaults(), settings.Source{Name: direct.SettingsFile, File: file,
		Flags:  given,
		Former: direct.FormerSettings})
	reached := false // directly
	for _, path := range []string{"etcd.endpoints", "placement.endpoint", "placement.cloud", "pool.endpoints"} {
		if given[path] != "" {
			s.Settings, reached = remote.Settings{}, true
		}
	}
	if err == nil && reached && given["partition"] != "" {
		err = croft.Errorf(croft.Invalid,
			"--partition asks another cloud through the API of this one: leave out --etcd, "+
				"--placement and --cloud")
	}
	s.Beside(from)
	if err == nil && !reached && !s.Settings.Set() && s.Unset() {
		err = addLogin(&s)
	}
	if err == nil && !s.Settings.Set() && s.Partition != "" {
		return s, throughSocket(&s)
	}
	if err == nil && !s.Settings.Set() {
		err = direct.AddLocal(direct.LocalStateDir(), &s.Etcd, &s.Placement)
		if _, none := os.Stat(direct.MachineSocket); errors.Is(err, croft.Denied) && none == nil {
			s.URL, s.Found, err = "unix://"+direct.MachineSocket, true, nil // which says who operates the cloud
		}
	}
	if err == nil && given["timeout"] != "" && !s.Wait.Any() && flags.Lookup("wait") != nil {
		err = croft.Errorf(croft.Invalid, "--timeout says how long --wait waits: add --wait")
	}
	return s, err
}

// throughSocket names the API of this machine's cloud, since other clouds are asked through the API alone. Invalid:
// there is none.
func throughSocket(s *direct.Settings) error {
	if _, err := os.Stat(direct.MachineSocket); err != nil {
		return croft.Errorf(croft.Invalid,
			"partition %s is asked through the API of your cloud: say where that is in url "+
				"(CROFT_URL), or log in (croft login)", s.Partition)
	}
	s.URL = "unix://" + direct.MachineSocket
	return nil
}

// addLogin names the cloud where the user has logged in, if there is one.
func addLogin(s *direct.Settings) error {
	file := login.File()
	c, err := login.Read(file)
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s.Settings = remote.Settings{URL: c.URL, CA: c.CA, Token: c.Token, Home: c.Project, Partition: s.Partition,
		Renewed: func(ctx context.Context) (string, error) { return login.Token(ctx, file) }}
	return s.Settings.Check()
}
