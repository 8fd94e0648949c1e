// Package clusters has the command croft cluster, for clusters and for what they need: sites, credentials and
// appliances. Results go to stdout, and messages to stderr.
package clusters

import (
	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/cli/verb"
)

// Command returns the command croft cluster.
func Command() *cobra.Command {
	cmd := verb.Group("cluster", "Ask for clusters of machines, here or at other sites",
		`cluster asks for clusters: a master and any number of slaves that an appliance describes,
such as slurm. A site builds it: the hosts of this cloud (local), or an OpenStack with
Heat, for which you need a credential. Which site, croft chooses among those that have
room; croft cluster explain says which it would be, and why not another.

Whoever asks again for the same appliance gets the cluster that is there, if it is large
enough (--no-reuse: a new one). Nobody gets that of another user.`,
		`  croft cluster create web slurm --slaves 3
  croft cluster explain web slurm --slaves 3
  croft cluster resize web 5
  croft cluster ssh web
  croft cluster remove web`,
		createCommand(), explainCommand(), listCommand(), showCommand(), eventsCommand(), setCommand(),
		resizeCommand(), growCommand(), shrinkCommand(), removeCommand(), useCommand(), accountCommand(),
		outputCommand(), sshCommand())
	for _, sub := range cmd.Commands() {
		args.AddCloudFlags(sub.PersistentFlags())
	}
	cmd.AddCommand(siteCommand(), credentialCommand(), applianceCommand())
	return cmd
}
