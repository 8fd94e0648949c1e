// Package instances has the commands for instances: schedule and its subcommands. Results go to stdout, and messages to
// stderr; without a terminal, nothing is drawn.
package instances

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/sizes"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/nearest"
	"croft/schedule"
)

// Command returns the command schedule.
func Command() *cobra.Command {
	var ask asking
	cmd := &cobra.Command{
		Use:   "schedule [QUERY] [IMAGE] | UUID|NAME",
		Short: "Ask for a virtual machine, or show one",
		Long: `schedule asks for a virtual machine with the resources of QUERY, a query of
Placement, or of a size (--size), that boots IMAGE: ` + aboutRequests + `

With the UUID or the name of an instance it shows that instance: its address, or with -o
everything. A word that is no instance and that is an image, such as debian-12, asks for an
instance with the default size; schedule show never does.

` + requestExits,
		Example: `  schedule debian-12
  schedule debian-12 --size small --name web --wait
  schedule resources=VCPU:1,MEMORY_MB:256,DISK_GB:1
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
			least := 1
			if cmd.Flags().Changed("size") { // of the image in the settings
				least = 0
			}
			return command.Count(least, 2)(cmd, given)
		},
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || isQuery(args[0]) || isAddress(args[0]) || ask.asks(cmd.Flags()) {
				return ask.run(cmd, args)
			}
			return ask.runWord(cmd, args)
		},
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	ask.addRequestFlags(cmd)
	cmd.AddCommand(verbs()...)
	return cmd
}

// runWord shows the instance with a name or UUID. If there is none, and the word is the name of an image, it requests
// an instance with that image and the default size.
func (a *asking) runWord(cmd *cobra.Command, given []string) error {
	shown := show(cmd, given)
	if !errors.Is(shown, croft.NotFound) {
		return shown
	}
	var names []string
	err := within(cmd, func(ctx context.Context, c *session) (err error) {
		names, err = c.imageNames(ctx)
		return err
	})
	switch {
	case err != nil:
		return err
	case slices.Contains(names, given[0]):
		return a.run(cmd, given)
	}
	err = mistyped(cmd, given[0], shown)
	if hint := nearest.Hint(given[0], names); hint != "" && !strings.Contains(err.Error(), "did you mean") {
		err = croft.Errorf(croft.NotFound, "%w%s", err, hint)
	}
	return err
}

// imageNames returns the names of the images that the project may use.
func (c *session) imageNames(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	stored, err := c.ListCatalogImages(ctx, api.InProject{Project: c.Project})
	if err != nil {
		return nil, err
	}
	for _, i := range stored.Images {
		names = append(names, i.Name)
	}
	known, err := c.ListImages(ctx)
	for _, i := range known.Images {
		names = append(names, i.Name)
	}
	return names, err
}

// aboutRequests and requestExits are parts of the help of the commands that make requests.
const (
	aboutRequests = `a name from the catalog, a URL, or an absolute path on the hosts. It claims the
resources on the host with the most room (--policy), orders the host to run the
instance, and prints

  NOTIFIED TARGET, <host>, OF INSTANCE <instance>

or, where nothing fits, NO ALLOCATIONS LEFT, and on stderr how many hosts each
requirement excludes and what each host lacks; with -o json or yaml that is the result.
--explain prints which hosts have room, why others are excluded and the smallest change
that fits, and creates nothing.

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
	_ = cmd.RegisterFlagCompletionFunc("size", sizes.Complete(-1)) // fails only without the flag
}

// verbs returns what can be done with instances: the subcommands of schedule and of croft instance.
func verbs() []*cobra.Command {
	return []*cobra.Command{showCommand(), listCommand(), removeCommand(), stopCommand(), startCommand(),
		consoleCommand(), logsCommand(), usageCommand(), screenCommand(), sshCommand(), execCommand(), copyCommand(),
		forwardCommand(), portForwardCommand(), waitCommand(), rebootCommand(), ejectCommand(), rebuildCommand(),
		recreateCommand(), moveCommand(), keepCommand(), protectCommand(), resizeCommand()}
}

// NounCommand returns the command croft instance.
func NounCommand() *cobra.Command {
	var ask asking
	create := &cobra.Command{
		Use:   "create [QUERY] [IMAGE]",
		Short: "Ask for a virtual machine",
		Long: `create asks for a virtual machine as schedule does: with the resources of QUERY, a query
of Placement, or of a size (--size), that boots IMAGE: ` + aboutRequests + `

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
