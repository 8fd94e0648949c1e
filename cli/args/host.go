package args

import (
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/control/cloud/direct"
	"croft/node/settings"
)

// HostFlag is a flag that overrides a setting.
type HostFlag struct{ Flag, Setting, Usage string }

var (
	StateDirFlag  = HostFlag{"state-dir", "state_dir", "where the host keeps its identity, images and disks"}
	LogLevelFlag  = HostFlag{"log-level", "log_level", "debug, info, warn or error"}
	EtcdFlag      = HostFlag{"etcd", "etcd.endpoints", "etcd's endpoints, separated by commas"}
	PlacementFlag = HostFlag{"placement", "placement.endpoint", "the Placement server"}
	CloudFlag     = HostFlag{"cloud", "placement.cloud",
		"cloud of clouds.yaml to log in to Placement with; env takes it from OS_*"}
	TokenFlag  = HostFlag{"token", "placement.token", "`@FILE` with the token of the Placement server's administrator"}
	AgentFlags = []HostFlag{
		{"hypervisor", "hypervisor",
			"libvirt, sim for guests that exist only in memory, or none on a machine without guests"},
		{"virt-type", "libvirt.virt_type", "auto, kvm, or qemu for software emulation"},
		{"network", "network.name", "libvirt network that guests are on"},
		{"bridge", "network.bridge", "bridge of the host that guests are on too"},
		{"location", "host.location", "location of the host, such as site1/row2/rack7"},
		{"api-listen", "api.listen", "address of the agent's HTTP API"},
	}
	InsecureFlag = HostFlag{"insecure", "etcd.insecure",
		"let the embedded etcd listen beyond this machine without TLS and certificates"}
	EmbeddedFlags = []HostFlag{
		{"etcd-listen", "etcd.listen", "address of the embedded etcd"},
		{"placement-listen", "placement.listen", "address of the embedded Placement"},
		{"cloud-api-listen", "cloud_api.listen", "address at which tenants reach the API of the cloud"},
		{"join-listen", "join.listen", "address at which hosts join and renew their certificates"},
	}
)

// formerFlags maps flags to their earlier names, which are still accepted.
var formerFlags = map[string]string{"join-listen": "control-listen"}

// AddHostFlags adds these flags and --settings to a command.
func AddHostFlags(cmd *cobra.Command, flags ...HostFlag) {
	cmd.Flags().String("settings", "",
		"file of settings (default: the first compute.yaml in ./, ~/.config/croft, /etc/croft)")
	for _, f := range flags {
		cmd.Flags().String(f.Flag, "", f.Usage+" (setting "+f.Setting+")")
		if former := formerFlags[f.Flag]; former != "" {
			cmd.Flags().String(former, "", "")
			_ = cmd.Flags().MarkDeprecated(former, "it is --"+f.Flag+" now") // the flag is defined above
		}
	}
}

// LoadHostSettings reads a command's settings and creates its logger.
func LoadHostSettings(cmd *cobra.Command, flags ...HostFlag) (settings.Settings, *slog.Logger, error) {
	return LoadHostSettingsOver(settings.Defaults(), cmd, flags...)
}

// LoadHostSettingsOver does the same as LoadHostSettings, with other defaults.
func LoadHostSettingsOver(defaults settings.Settings, cmd *cobra.Command,
	flags ...HostFlag) (settings.Settings, *slog.Logger, error) {
	given := map[string]string{}
	for _, f := range flags {
		name := f.Flag
		if former := formerFlags[name]; former != "" && cmd.Flags().Changed(former) {
			if cmd.Flags().Changed(name) {
				return defaults, nil, croft.Errorf(croft.Invalid, "--%s is the former name of --%s: give one of them",
					former, name)
			}
			name = former
		}
		if cmd.Flags().Changed(name) {
			given[f.Setting] = cmd.Flags().Lookup(name).Value.String()
		}
	}
	if token, ok := given[TokenFlag.Setting]; ok {
		var err error
		if given[TokenFlag.Setting], err = TokenInFile("--token", token, "in CROFT_PLACEMENT_TOKEN"); err != nil {
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

// TokenInFile reads a token from the file that the flag's value names after an @. Invalid: the value is the token
// itself; the error proposes the alternative in otherwise too.
func TokenInFile(flag, given, otherwise string) (string, error) {
	file, ok := strings.CutPrefix(given, "@")
	if !ok { // the error does not repeat it: it is a secret, though now exposed
		return "",
			croft.Errorf(croft.Invalid, "%s: other users of this machine see its command lines, so a token has no "+
				"place there: give it %s, or in a file with %[1]s @FILE", flag, otherwise)
	}
	return direct.ReadSecret(flag, file)
}

// Reach returns how a command on this host reaches the cloud: at the endpoints of --etcd, or else in the host's own
// way.
func Reach(cmd *cobra.Command, s *settings.Settings) (settings.Reach, error) {
	if cmd.Flags().Changed(EtcdFlag.Flag) {
		return s.Reach(nil), nil
	}
	return s.FindReach()
}
