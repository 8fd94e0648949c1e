package args

import (
	"github.com/spf13/cobra"

	"croft/node/settings"
)

// Reach returns how a command on this host reaches the cloud: the one that --etcd names, or
// else the one that the host is of.
func Reach(cmd *cobra.Command, s *settings.Settings) (settings.Reach, error) {
	if cmd.Flags().Changed(EtcdFlag.Flag) {
		return s.Reach(nil), nil
	}
	return s.FindReach()
}
