package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"croft"
	"croft/cloud/direct"
	"croft/node/settings"
)

// hostFlag is a flag that overrides a setting.
type hostFlag struct{ flag, setting, usage string }

var (
	stateDirFlag  = hostFlag{"state-dir", "state_dir", "where the host keeps its identity, images and disks"}
	logLevelFlag  = hostFlag{"log-level", "log_level", "debug, info, warn or error"}
	etcdFlag      = hostFlag{"etcd", "etcd.endpoints", "etcd's endpoints, separated by commas"}
	placementFlag = hostFlag{"placement", "placement.endpoint", "the Placement server"}
	cloudFlag     = hostFlag{"cloud", "placement.cloud", "cloud of clouds.yaml whose Keystone knows us to Placement; env is what OS_* say"}
	tokenFlag     = hostFlag{"token", "placement.token", "`@FILE` with the token of the Placement server's administrator"}
	agentFlags    = []hostFlag{
		{"hypervisor", "hypervisor", "libvirt, sim for guests that exist only in memory, or none on a machine that is no host"},
		{"virt-type", "libvirt.virt_type", "auto, kvm, or qemu for software emulation"},
		{"network", "network.name", "libvirt network that guests are on"},
		{"bridge", "network.bridge", "bridge of the host that guests are on too"},
		{"location", "host.location", "where the host stands, such as site1/row2/rack7"},
		{"api-listen", "api.listen", "address of the agent's HTTP API"},
	}
	insecureFlag  = hostFlag{"insecure", "etcd.insecure", "let the embedded etcd listen beyond this machine without TLS and certificates"}
	embeddedFlags = []hostFlag{
		{"etcd-listen", "etcd.listen", "address of the embedded etcd"},
		{"placement-listen", "placement.listen", "address of the embedded Placement"},
		{"join-listen", "join.listen", "address at which hosts join and renew their certificates"},
	}
)

// formerFlags have the former names of flags, which are still read in this version.
var formerFlags = map[string]string{"join-listen": "control-listen"}

// addHostFlags gives a command its flags and --settings.
func addHostFlags(cmd *cobra.Command, flags ...hostFlag) {
	cmd.Flags().String("settings", "", "file of settings (default: the first compute.yaml in ./, ~/.config/croft, /etc/croft)")
	for _, f := range flags {
		cmd.Flags().String(f.flag, "", f.usage+" (setting "+f.setting+")")
		if former := formerFlags[f.flag]; former != "" {
			cmd.Flags().String(former, "", "")
			_ = cmd.Flags().MarkDeprecated(former, "it is --"+f.flag+" now") // the flag is defined above
		}
	}
}

// loadHostSettings reads the settings that a command runs with and makes its log.
func loadHostSettings(cmd *cobra.Command, flags ...hostFlag) (settings.Settings, *slog.Logger, error) {
	return loadHostSettingsOver(settings.Defaults(), cmd, flags...)
}

// loadHostSettingsOver is loadHostSettings over other defaults.
func loadHostSettingsOver(defaults settings.Settings, cmd *cobra.Command, flags ...hostFlag) (settings.Settings, *slog.Logger, error) {
	given := map[string]string{}
	for _, f := range flags {
		name := f.flag
		if former := formerFlags[name]; former != "" && cmd.Flags().Changed(former) {
			if cmd.Flags().Changed(name) {
				return defaults, nil, croft.Errorf(croft.Invalid, "--%s is the former name of --%s: give one of them", former, name)
			}
			name = former
		}
		if cmd.Flags().Changed(name) {
			given[f.setting] = cmd.Flags().Lookup(name).Value.String()
		}
	}
	if token, ok := given[tokenFlag.setting]; ok {
		var err error
		if given[tokenFlag.setting], err = tokenInFile("--token", token, "in CROFT_PLACEMENT_TOKEN"); err != nil {
			return defaults, nil, err
		}
	}
	if err := direct.CheckEnvironment(os.Environ(), settings.EnvNames()); err != nil {
		return defaults, nil, err
	}
	file, _ := cmd.Flags().GetString("settings")
	s, from, renamed, err := settings.Load(defaults, file, given)
	if err != nil {
		return s, nil, err
	}
	level, err := s.Level()
	if err != nil {
		return s, nil, croft.Errorf(croft.Invalid, "log_level: %w", err)
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	if from != "" {
		log.Debug("settings read", "file", from)
	}
	for _, words := range renamed {
		log.Warn("a setting has its former name, which the next version does not read", "setting", words)
	}
	return s, log, nil
}
