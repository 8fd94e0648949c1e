// Package instances has the commands for instances: schedule and its subcommands. Results go to stdout, and messages to
// stderr; without a terminal, nothing is drawn.
package instances

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/internal/command"
	"croft/schedule"
)

// Command returns the command schedule.
func Command() *cobra.Command {
	var ask asking
	cmd := &cobra.Command{
		Use:   "schedule QUERY [IMAGE] | UUID|NAME",
		Short: "Ask for a virtual machine, or show one",
		Long: `schedule asks for a virtual machine with the resources of QUERY, a query of
Placement, that boots IMAGE: ` + aboutRequests + `

With a UUID or a name it shows that instance: its address, or with -o everything.

` + requestExits,
		Example: `  schedule resources=VCPU:1,MEMORY_MB:256,DISK_GB:1
  schedule VCPU:2,MEMORY_MB:2048,DISK_GB:10 debian-12 --name web --wait
  schedule 'resources=VCPU:1,MEMORY_MB:512,DISK_GB:5&required=HW_CPU_X86_AVX2' --count 3
  schedule VCPU:1,MEMORY_MB:512,DISK_GB:5 --count 3 --name db --anti-affinity db
  schedule VCPU:1,MEMORY_MB:512,DISK_GB:5 --count 3 --name db --group db --apart-by rack
  schedule VCPU:4,MEMORY_MB:8192,DISK_GB:20 --name nightly --hold 2h
  schedule --explain VCPU:4,MEMORY_MB:8192,DISK_GB:20
  schedule ssh web`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 1 && !schedule.LooksLikeQuery(given[0]) && command.CommandHint(cmd, given[0]) != "" {
				return command.UnknownCommand(cmd, given[0])
			}
			return command.Count(1, 2)(cmd, given)
		},
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if schedule.LooksLikeQuery(args[0]) {
				return ask.run(cmd, args)
			}
			if len(args) > 1 {
				return croft.Errorf(croft.Invalid, "%q is not a query, and only a query may be followed by an image", args[0])
			}
			return mistyped(cmd, args[0], show(cmd, args))
		},
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	ask.addRequestFlags(cmd)
	cmd.AddCommand(verbs()...)
	return cmd
}

// aboutRequests and requestExits are parts of the help of the commands that make requests.
const (
	aboutRequests = `a name from the catalog, a URL, or an absolute path on the hosts. It claims the
resources on the host with the most room (--policy), orders the host to run the
instance, and prints

  NOTIFIED TARGET, <host>, OF INSTANCE <instance>

or, where nothing fits, NO ALLOCATIONS LEFT, and on stderr how many hosts each
requirement excludes and what each host lacks; with -o json or yaml that is the result.
--explain prints which hosts have room and why others are excluded, and creates nothing.

--hold takes the claim and boots nothing; croft claim use boots the instance later.

With --count it requests instances until no room is left or it is interrupted, and
prints how many it got; with --all-or-none it removes them again unless it got all. With
--wait, an instance that fails is removed, and its console output is kept in a file; if
the wait ends early, the instance continues.`
	requestExits = `Exit codes: 0 done, 1 failure, 2 wrong usage, 3 not found, 4 no capacity or over quota,
5 conflict (a name is taken, a group has another rule), 6 something does not answer, or
not in time, 7 not permitted.`
)

// addRequestFlags adds the flags of a command that makes requests.
func (a *asking) addRequestFlags(cmd *cobra.Command) {
	args.AddWaitFlags(cmd.Flags(),
		"the instance runs and has an address; =ready: until it reports that its set-up is done")
	a.addFlags(cmd.Flags())
	command.CompleteFlag(cmd, "restart", schedule.Restarts)
	command.CompleteFlag(cmd, "policy", schedule.Policies)
}

// verbs returns what can be done with instances: the subcommands of schedule and of croft instance.
func verbs() []*cobra.Command {
	return []*cobra.Command{showCommand(), listCommand(), removeCommand(), stopCommand(), startCommand(),
		consoleCommand(), logsCommand(), screenCommand(), sshCommand(), copyCommand(), forwardCommand(),
		portForwardCommand(), waitCommand(), rebootCommand(),
		rebuildCommand(), recreateCommand(), moveCommand(), keepCommand(), resizeCommand()}
}

// NounCommand returns the command croft instance.
func NounCommand() *cobra.Command {
	var ask asking
	create := &cobra.Command{
		Use:   "create QUERY [IMAGE]",
		Short: "Ask for a virtual machine",
		Long: `create asks for a virtual machine as schedule does: with the resources of QUERY, a query
of Placement, that boots IMAGE: ` + aboutRequests + `

` + requestExits,
		ValidArgsFunction: args.CompleteInstances(0),
		RunE:              ask.run,
	}
	ask.addRequestFlags(create)
	return verb.CloudGroup("instance", "List, show, change and remove virtual machines",
		`instance offers the commands of schedule under croft instance.`,
		`  croft instance create VCPU:2,MEMORY_MB:2048,DISK_GB:10 debian-12 --name web --wait
  croft instance list
  croft instance remove web --wait`, append([]*cobra.Command{create}, verbs()...)...)
}

// mistyped suggests a subcommand similar to word, unless an instance has a similar name.
func mistyped(cmd *cobra.Command, word string, err error) error {
	if hint := command.CommandHint(cmd, word); hint != "" && errors.Is(err, croft.NotFound) &&
		!strings.Contains(err.Error(), "did you mean") {
		return croft.Errorf(croft.NotFound, "%w%s", err, hint)
	}
	return err
}
