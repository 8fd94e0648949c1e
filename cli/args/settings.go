package args

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"croft"
	"croft/client"
	"croft/client/login"
	"croft/control/cloud/direct"
	"croft/internal/command"
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
	AddContextFlag(flags)
	flags.String("etcd", "", "`URLs` of etcd, separated by commas (etcd.endpoints)")
	flags.String("placement", "", "`URL` of Placement (placement.endpoint)")
	flags.String("cloud", "", "cloud in clouds.yaml whose Keystone issues the token for Placement (`name`; placement.cloud)")
	flags.String("project", "", "`name` of the project that owns the instances (project)")
	flags.String("partition", "", "`name` of another cloud that is asked through this one (partition)")
	flags.StringP("output", "o", "", "print text, table, wide, json or yaml (`format`; output)")
}

// AddContextFlag defines --context for commands that connect to a cloud only if one is named.
func AddContextFlag(flags *pflag.FlagSet) {
	flags.String(ContextFlag, "", "use the login with this `name` (croft context list)")
}

// AddWaitFlags defines the flags of commands that can wait until their orders are done.
func AddWaitFlags(flags *pflag.FlagSet, what string) {
	flags.String("wait", "", "wait until "+what+" (wait)")
	command.OptionalValue(flags.Lookup("wait"), string(direct.WaitYes), direct.Waits)
	command.Duration(flags, "timeout", 0, "wait no longer than this `duration` (timeout)")
}

// RemoteSettings reads the settings of schedule.yaml for a command that works on this machine, unless the settings or a
// login name a cloud that is reached over its API.
func RemoteSettings(flags *pflag.FlagSet) (direct.Settings, error) {
	s, _, err := settings.Load(direct.Defaults(), settings.Source{Name: direct.SettingsFile,
		Former: direct.FormerSettings})
	if err == nil {
		err = addLogin(&s, named(flags))
	}
	return s, err
}

// named returns the login that the flag or the variable names; empty: neither names one.
func named(flags *pflag.FlagSet) string {
	name, _ := flags.GetString(ContextFlag) // not every command has the flag
	if name == "" && os.Getenv("CROFT_URL") == "" {
		name = os.Getenv(login.Variable)
	}
	return name
}

// ContextFlag names the flag with the name of a login.
const ContextFlag = "context"

// LoadSettings reads the settings of schedule.yaml. Variables override the file, and flags override both. A login takes
// precedence over the cloud of this machine: a login that the flag names over everything else, a login that the
// variable names over everything except flags and CROFT_URL, and the current login only if nothing else names a cloud.
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
	s.Beside(from)
	if err == nil {
		err = choose(&s, flags, given)
	}
	if err == nil && given["timeout"] != "" && !s.Wait.Any() && flags.Lookup("wait") != nil {
		err = croft.Errorf(croft.Invalid, "--timeout says how long --wait waits: add --wait")
	}
	return s, err
}

// choose determines which cloud is used, and how it is reached.
func choose(s *direct.Settings, flags *pflag.FlagSet, given map[string]string) error {
	for _, path := range []string{"etcd.endpoints", "placement.endpoint", "placement.cloud", "pool.endpoints"} {
		switch {
		case given[path] == "":
			continue
		case flags.Changed(ContextFlag):
			return croft.Errorf(croft.Invalid, "--%s names a login, and the other flags a cloud without one: give one of "+
				"them", ContextFlag)
		case given["partition"] != "":
			return croft.Errorf(croft.Invalid, "--partition asks another cloud through the API of this one: leave out "+
				"--etcd, --placement and --cloud")
		}
		s.Settings = client.Settings{}
		return addLocal(s)
	}
	if err := addLogin(s, named(flags)); err != nil || s.Settings.Set() {
		return err
	}
	if s.Partition != "" {
		return throughSocket(s)
	}
	return addLocal(s)
}

// FindSettings reads the settings of schedule.yaml and the note of this machine, for a command that works on this
// machine and also uses a cloud if there is one. It reports whether they name a cloud.
func FindSettings(flags *pflag.FlagSet) (s direct.Settings, found bool, err error) {
	if s, err = RemoteSettings(flags); err != nil || s.Settings.Set() {
		return s, err == nil, err
	}
	err = orSocket(&s, direct.AddNote(direct.LocalStateDir(), &s.Etcd, &s.Placement))
	if errors.Is(err, croft.Denied) {
		return s, false, nil
	}
	found = !s.Unset()
	s.Etcd.SetDefault()
	return s, found && err == nil, err
}

// throughSocket sets the API of this machine's cloud, because other clouds can be reached only through an API. Invalid:
// this machine serves no API.
func throughSocket(s *direct.Settings) error {
	if !servedByMachine() {
		return croft.Errorf(croft.Invalid,
			"partition %s is asked through the API of your cloud: say where that is in url "+
				"(CROFT_URL), or log in (croft login)", s.Partition)
	}
	s.URL = "unix://" + direct.MachineSocket
	return nil
}

// servedByMachine reports whether the croft that root runs serves its API on this machine. A user who names another
// state directory means another cloud.
func servedByMachine() bool {
	_, err := os.Stat(direct.MachineSocket)
	named := os.Getenv("CROFT_STATE_DIR")
	return err == nil && (named == "" || filepath.Clean(named) == direct.MachineDir)
}

// addLocal finds the cloud of this machine, unless the settings name another one.
func addLocal(s *direct.Settings) error {
	return orSocket(s, direct.AddLocal(direct.LocalStateDir(), &s.Etcd, &s.Placement))
}

// orSocket sets the API of this machine's cloud if err says that the caller may not read the note of that.
func orSocket(s *direct.Settings, err error) error {
	if errors.Is(err, croft.Denied) && servedByMachine() {
		// the API there knows who operates the cloud
		s.URL, s.Found, err = "unix://"+direct.MachineSocket, true, nil
	}
	return err
}

// addLogin uses the login with this name. Without a name, it uses the current login if nothing else names a cloud.
func addLogin(s *direct.Settings, name string) error {
	if name == "" && !s.Unset() {
		return nil
	}
	file := login.Own()
	all, err := file.Read()
	if err != nil {
		return err
	}
	if name == "" {
		if name = all.Current; name == "" {
			return nil
		}
	}
	c, err := all.Find(name)
	if err != nil {
		return err
	}
	s.Settings = client.Settings{URL: c.URL, CA: c.CA, Token: c.Token, Home: c.Project, Context: name,
		Partition: s.Partition,
		Again:     c.Again(name),
		Renewed:   func(ctx context.Context) (string, error) { return file.Token(ctx, name) }}
	return s.Settings.Check()
}

// WarnKeyless warns that nobody can log in to what a command has created, if that has neither SSH keys nor user-data,
// although the settings say where to look for keys. Each command that creates instances calls it.
func WarnKeyless(w io.Writer, lookedFor, keys []string, userData []byte) {
	if len(lookedFor) > 0 && len(keys) == 0 && len(userData) == 0 {
		fmt.Fprintln(w, "no SSH key was found in an agent or in ~/.ssh, so you could not log in: make one with "+
			"ssh-keygen and request again, or name one with --key")
	}
}
