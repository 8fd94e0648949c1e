package settings

import (
	"path/filepath"
	"strings"

	"croft"
	"croft/cloud/direct"
	"croft/internal/settings"
)

// FileName is the name of the file with the settings of hosts.
const FileName = "compute.yaml"

// renamed has the new names of settings that the version before knew under others; these
// are still read in this version.
var renamed = map[string]string{"control": "join"}

// Load reads the settings: a file over the defaults, the environment over it, and over all
// what flags gave, by the paths of settings. file may be empty: then it is searched. It
// returns the file that was read and warnings about former names. Invalid.
func Load(defaults Settings, file string, given map[string]string) (s Settings, from string, warnings []string,
	err error) {
	s, from, err = settings.Load(defaults, settings.Source{
		Name: FileName, File: file, Flags: given, Former: direct.FormerSettings,
		Renamed: renamed, Warn: func(words string) { warnings = append(warnings, words) },
	})
	if err != nil {
		return s, from, nil, err
	}
	if s.StateDir, err = filepath.Abs(strings.TrimSpace(s.StateDir)); err != nil {
		return s, from, nil, croft.Errorf(croft.Invalid, "state_dir: %w", err)
	}
	return s, from, warnings, nil
}

// EnvNames lists the environment variables of the settings, with those of former names.
func EnvNames() []string { return settings.EnvNames(Defaults(), renamed) }
