package args

import (
	"github.com/spf13/cobra"

	"croft/cloud/direct"
	"croft/node/settings"
	"croft/trust"
)

// JoinedSettings returns the settings of a command on a host that may have joined a cloud,
// and what it joined: nil if it did not, or if --etcd names another. On the host where a
// cloud began it finds that cloud, wherever it listens.
func JoinedSettings(cmd *cobra.Command, s settings.Settings) (settings.Settings, *trust.Membership, error) {
	if cmd.Flags().Changed(EtcdFlag.Flag) {
		return s, nil, nil
	}
	of, err := trust.ReadMembership(s.StateDir)
	if err == nil && of == nil {
		err = direct.AddLocal(s.StateDir, &s.Etcd.EtcdSettings, &s.Placement.PlacementSettings)
	}
	if err != nil || of == nil {
		return s, nil, err
	}
	return settings.Over(of, s), of, nil
}
