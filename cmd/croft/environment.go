package main

import (
	"slices"
	"strings"

	"croft"
	"croft/internal/nearest"
	"croft/internal/settings"
)

// notSettings are variables, or how they begin, that are no settings: those of this
// program's own, of scripts and containers around it, and of its tests.
var notSettings = []string{
	readyFD, "CROFT_TEST_", "CROFT_IMAGE_TEST_", "CROFT_SOAK", "CROFT_KILL", "CROFT_MUTANT", "CROFT_NET_", "CROFT_PREVIOUS", "CROFT_BIND",
	"CROFT_VERSION", "CROFT_BINARY", "CROFT_HOOK", "CROFT_OPENSTACK", "CROFT_NAMES", "CROFT_BENCH",
}

// checkEnvironment finds variables that look like settings and are none, as in files.
// Those of hosts and of people are both known, since a shell may have both. Invalid.
func checkEnvironment(environment []string) error {
	known := append(settings.EnvNames(defaultHostSettings()), settings.EnvNames(scheduleDefaults())...)
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "CROFT_") || value == "" || slices.Contains(known, name) ||
			slices.ContainsFunc(notSettings, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			continue
		}
		return croft.Errorf(croft.Invalid, "the environment has %s, which is no setting%s", name, nearest.Hint(name, known))
	}
	return nil
}

// formerSettings are those that compute.yaml of the program before this one had.
var formerSettings = map[string]string{
	"etcd.host": "the setting is etcd.endpoints now: write endpoints: [http://HOST:2379]",
	"etcd.port": "the setting is etcd.endpoints now: write endpoints: [http://HOST:2379]",
	"uuid":      "a host mints its UUID and keeps it in the file host-id of its state directory; write one of your own there before its first start",
	"resize":    "there is no such setting now: a disk has the size that was claimed for it, DISK_GB in the query",
	"bridge":    "the setting is network.bridge now: write network: {bridge: NAME}",
}
