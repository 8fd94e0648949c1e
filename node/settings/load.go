package settings

import (
	"path/filepath"
	"strings"

	"croft"
	"croft/cloud/direct"
	"croft/internal/settings"
)

// FileName is the name of the settings file of hosts.
const FileName = "compute.yaml"

// renamed maps setting names of the previous version to their new names; this version still reads both.
var renamed = map[string]string{"control": "join"}

// Load reads the settings: the environment overrides the file, flags (given, by the paths of settings) override
// both, and defaults are for what remains. If file is empty, it is searched for. Load returns the name of the
// file and warnings about former names. Invalid.
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

// EnvNames lists the environment variables of the settings, including former names.
func EnvNames() []string { return settings.EnvNames(Defaults(), renamed) }
