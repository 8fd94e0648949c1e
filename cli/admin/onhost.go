package admin

import (
	"log/slog"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/node/settings"
)

// onHost makes a command that works on a host's files.
func onHost(cmd *cobra.Command, do func(cmd *cobra.Command, s settings.Settings,
	log *slog.Logger) error) *cobra.Command {
	args.AddHostFlags(cmd, hostCommandFlags...)
	cmd.Args = args.Count(0, 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, hostCommandFlags...)
		if err != nil {
			return err
		}
		return do(cmd, s, log)
	}
	return cmd
}

// hostCommandFlags are the flags of commands that work on a host's files.
var hostCommandFlags = []args.HostFlag{args.StateDirFlag, args.LogLevelFlag}
