// Package cli is the command line: it combines all commands to programs, runs one of them, prints each error on a line,
// and maps errors to an exit code. Results go to stdout, and messages to stderr.
package cli

import (
	"context"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft/cli/actions"
	"croft/cli/admin"
	"croft/cli/apply"
	"croft/cli/backups"
	"croft/cli/catalogue"
	"croft/cli/clusters"
	"croft/cli/crush"
	"croft/cli/hosts"
	"croft/cli/images"
	"croft/cli/instances"
	"croft/cli/keys"
	"croft/cli/login"
	"croft/cli/objects"
	"croft/cli/partitions"
	"croft/cli/policies"
	"croft/cli/pools"
	"croft/cli/projects"
	"croft/cli/serve"
	"croft/cli/sizes"
	"croft/cli/snapshots"
	"croft/cli/tokens"
	"croft/cli/top"
	"croft/cli/volumes"
	"croft/internal/command"
	"croft/pool/server"
)

// Program is the command line of a binary. The zero Program has all commands of croft.
type Program struct {
	RPC    server.RPC       // second protocol of `croft serve pool`; nil: none
	Others map[string]Other // programs under names other than croft and its subcommands
	More   []Subcommand     // subcommands beside the cloud's
}

// Subcommand is a subcommand of croft that the binary also runs under another name.
type Subcommand struct {
	Command  func() *cobra.Command
	Name     string            // the other name
	Listings map[string]string // the command that lists what exists, for each noun of its NotFound errors
}

// Other is a separate program that the binary runs under another name.
type Other struct {
	Command func() *cobra.Command
	Version string // template of cobra
}

// Run runs args, which include the program's name, and returns the exit code once everything that it started has ended.
func (p Program) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root, given := p.Root(args[0]), args[1:]
	if root.Name() == "croft" {
		given = renamed(given)
	}
	end := p.listing
	if _, is := p.Others[filepath.Base(args[0])]; is {
		end = func(error) string { return "" } // these programs print what those of others do
	}
	return command.Run(ctx, root, given, stdin, stdout, stderr, end)
}

// former maps former names of commands to the words that replace them.
var former = map[string]string{
	"access": "token --for=api", "pool token": "token --for=pool", "ticket": "pool ticket",
	"appliance implement":       "cluster appliance implementation add",
	"appliance implementations": "cluster appliance implementation list",
	"appliance template":        "cluster appliance implementation show",
	"appliance enable":          "cluster appliance implementation enable",
	"appliance disable":         "cluster appliance implementation disable",
	"appliance unimplement":     "cluster appliance implementation remove",
	"site":                      "cluster site", "credential": "cluster credential", "appliance": "cluster appliance",
	"tag": "property tag", "definition": "property definition",
	"compute": "serve compute", "mdserver": "serve mdserver", "control": "serve control",
	"placement": "serve placement", "pool serve": "serve pool",
}

// renamed replaces a former name of a command, also in a request for help or for completion.
func renamed(given []string) []string {
	at := 0
	if len(given) > 0 && (given[0] == "help" || strings.HasPrefix(given[0], "__complete")) {
		at = 1
	}
	for n := 2; n > 0; n-- {
		if len(given) < at+n {
			continue
		}
		if now, is := former[strings.Join(given[at:at+n], " ")]; is {
			return slices.Concat(given[:at], strings.Fields(now), given[at+n:])
		}
	}
	return given
}

// subject is a part of the list of subcommands in the help.
type subject struct {
	title    string
	commands []*cobra.Command
}

// subjects returns the subcommands of croft, in the order of the help, and maps the other names under which the binary
// runs some of them.
func (p Program) subjects() (all []subject, others map[string]*cobra.Command) {
	var more []*cobra.Command
	others = map[string]*cobra.Command{}
	for _, sub := range p.More {
		cmd := sub.Command()
		more = append(more, cmd)
		others[sub.Name] = cmd
	}
	return []subject{
		{"Instances", []*cobra.Command{instances.Command(), instances.NounCommand(),
			instances.ClaimCommand(), sizes.Command(), images.Command(), volumes.Command(), snapshots.Command(),
			backups.Command(), keys.Command(), instances.InventoryCommand(), apply.Command(),
			apply.ExportCommand(), top.Command()}},
		{"Hosts", []*cobra.Command{hosts.Command(), hosts.AggregateCommand(), hosts.DistanceCommand(),
			hosts.StorageCommand(),
			tokens.Command(), admin.AuditCommand(), admin.DoctorCommand()}},
		{"Tenants", []*cobra.Command{projects.Command(), projects.QuotaCommand(), projects.UsageCommand(),
			catalogue.UserCommand(), actions.Command()}},
		{"Your login", []*cobra.Command{login.Command(), login.EndCommand(), login.WhoAmICommand(), login.PageCommand(),
			login.ContextCommand()}},
		{"Pools", []*cobra.Command{pools.Command()}},
		{"Clusters", []*cobra.Command{clusters.Command()}},
		{"Placement", []*cobra.Command{policies.Command(), crush.Command(policies.ExportCommand()),
			catalogue.ClassCommand(), catalogue.TraitCommand(), objects.Command()}},
		{"Other clouds", []*cobra.Command{partitions.Command()}},
		{"The grid: machines without a cloud", more},
		{"Run a cloud", []*cobra.Command{serve.Up(), serve.Down(), serve.Command(p.RPC, admin.ExportCommand(),
			admin.ImportCommand()), admin.EtcdCommand(), admin.CACommand(),
			completion(), command.Man(p.others)}},
	}, others
}

// Root returns the command that the binary runs under a name.
func (p Program) Root(name string) *cobra.Command {
	if other, is := p.Others[filepath.Base(name)]; is {
		same := command.Finished(other.Command())
		script := completion()
		script.Hidden = true // users of this program see their usual help
		same.AddCommand(script)
		same.SetVersionTemplate(other.Version)
		return same
	}
	root := &cobra.Command{
		Use:   "croft",
		Short: "A small cloud for virtual machines",
		Long: `croft is a small cloud for virtual machines: hosts offer inventory, a claim takes some
of it atomically, an order tells the host's agent what to run, and the agent carries it
out.`,
		Example: `  croft up                                                # a cloud on this machine
  croft schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 --wait    # a virtual machine in it
  croft schedule list
  croft schedule remove web --wait`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 {
				return nil
			}
			return command.UnknownCommand(cmd, given[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	called := strings.TrimSuffix(filepath.Base(name), ".exe")
	all, others := p.subjects()
	for _, g := range all {
		for _, sub := range g.commands {
			if own := program(called, sub, others); own != nil {
				return own
			}
			sub.GroupID = g.title
			root.AddCommand(sub)
		}
		if len(g.commands) > 0 {
			root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
			root.SetHelpCommandGroupID(g.title)
		}
	}
	for _, sub := range root.Commands() {
		command.Conventions(sub)
	}
	command.DocumentExits(root)
	return command.Finished(root)
}

// program returns the subcommand that the binary runs under the name called: sub, one of its subcommands, or one that
// has this name in others; nil: none of them.
func program(called string, sub *cobra.Command, others map[string]*cobra.Command) *cobra.Command {
	own := sub
	if sub.Name() == "serve" {
		if at := slices.IndexFunc(sub.Commands(), func(c *cobra.Command) bool { return c.Name() == called }); at >= 0 {
			own = sub.Commands()[at]
			sub.RemoveCommand(own)
		}
	}
	if own.Name() != called && others[called] != own {
		return nil
	}
	own.Use = strings.Replace(own.Use, own.Name(), called, 1)
	command.Conventions(own)
	own.AddCommand(completion())
	command.DocumentExits(own)
	return command.Finished(own)
}

// others returns the root commands of the programs under names other than croft and its subcommands.
func (p Program) others() []*cobra.Command {
	var roots []*cobra.Command
	for _, name := range slices.Sorted(maps.Keys(p.Others)) {
		roots = append(roots, p.Root(name))
	}
	return roots
}

// completion returns the command that prints its root's completion script.
func completion() *cobra.Command {
	return command.Completion("schedule", ` Each program prints its own script:
run croft completion bash > /etc/bash_completion.d/croft for croft, and likewise compute,
mdserver and resalloc's programs.`)
}
