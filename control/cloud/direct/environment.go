package direct

import (
	"slices"
	"strings"

	"croft"
	"croft/client/login"
	"croft/internal/nearest"
	"croft/internal/settings"
)

// notSettings are variables, or prefixes of variables, that are not settings: internal variables of the program, and
// variables of scripts, containers and tests.
var notSettings = []string{
	"CROFT_READY_FD", "CROFT_TEST_", "CROFT_IMAGE_TEST_", "CROFT_SOAK", "CROFT_KILL", "CROFT_MUTANT", "CROFT_NET_",
	"CROFT_RACE", "CROFT_SAMPLE",
	"CROFT_PREVIOUS", "CROFT_BIND", login.Variable,
	"CROFT_VERSION", "CROFT_BINARY", "CROFT_HOOK", "CROFT_OPENSTACK", "CROFT_NAMES", "CROFT_BENCH",
}

// CheckEnvironment returns Invalid for unknown variables that begin like settings, just as unknown keys of files are
// refused. The variables of schedule.yaml and the ones in others are known: a shell may have variables for hosts and
// for commands at once.
func CheckEnvironment(environment, others []string) error {
	known := append(slices.Clone(others), settings.EnvNames(Defaults(), nil)...)
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "CROFT_") || value == "" || slices.Contains(known, name) ||
			slices.ContainsFunc(notSettings, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			continue
		}
		return croft.Errorf(croft.Invalid, "the environment has %s, which is not a setting%s", name,
			nearest.Hint(name, known))
	}
	return nil
}

// FormerSettings maps settings of earlier versions to the advice given for a file that still has them.
var FormerSettings = map[string]string{
	"etcd.host": "the setting is etcd.endpoints now: write endpoints: [http://HOST:2379]",
	"etcd.port": "the setting is etcd.endpoints now: write endpoints: [http://HOST:2379]",
	"uuid": "a host mints its UUID and keeps it in the file host-id of its state directory; write one of your own " +
		"there before its first start",
	"resize": "there is no such setting now: a disk has the size that was claimed for it, DISK_GB in the query",
	"bridge": "the setting is network.bridge now: write network: {bridge: NAME}",
}
