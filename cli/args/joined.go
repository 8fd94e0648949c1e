package args

import (
	"github.com/spf13/cobra"

	"croft/node/settings"
)

// Reach returns how a command on this host reaches the cloud: the one of --etcd, or else the host's.
func Reach(cmd *cobra.Command, s *settings.Settings) (settings.Reach, error) {
	if cmd.Flags().Changed(EtcdFlag.Flag) {
		return s.Reach(nil), nil
	}
	return s.FindReach()
}
