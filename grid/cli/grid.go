// Package cli has the commands for a cluster of machines that a directory describes: croft grid, which is also called
// fission. Each command has a file here, and a line in New.
package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/internal/command"
)

// Cloud is how croft grid adopt --from-cloud reads the instances of a croft cloud. The program that has both the grid
// and the cloud supplies it.
type Cloud struct {
	AddFlags  func(*pflag.FlagSet) // defines the flags that choose the cloud
	Flags     []string             // their names
	Instances func(*cobra.Command) ([]croft.Status, error)
}

// Listings maps each noun of a NotFound error to the command that lists what exists.
var Listings = map[string]string{"node": "croft grid status"}

// New returns the command croft grid. cloud is nil in a program without the cloud.
func New(cloud *Cloud) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "grid",
		Short: "Run jobs on machines, as a directory under version control describes",
		Long: `A cluster is a directory: nodes/ has a file for each machine, jobs/ one for each thing
to run, alloc/ a link for each slot of a job to its node. place decides the links; no
command but those that say so touches a machine.

To begin, with this machine as the first node:

  mkdir cluster && cd cluster && git init
  croft grid init --runtime process              # cluster.yaml; podman is the default
  croft grid node add here --local               # nodes/here.yaml
  cat > jobs/web.yaml <<END
  command: [/bin/sh, -c, "while :; do echo up; sleep 5; done"]
  END
  croft grid lint                                # what is wrong, with file and line
  croft grid place                               # alloc/web/0 -> ../../nodes/here.yaml
  git add -A && git commit -m "web, here"        # only what is committed is applied
  croft grid plan                                # what would change
  croft grid apply                               # changes it
  croft grid status                              # what runs
  croft grid logs web                            # what it says

Another machine needs an sshd that you can log in to, a POSIX shell and flock:

  croft grid node add syd/r1/web1 --address admin@web1.example.org
  croft grid doctor                              # what is missing there, and what to do

To end a job, remove its file, place, commit and apply.

What a directory's _.yaml says, everything below inherits: maps merge, other values
replace, key+ adds to a list, ~ deletes. ${name}, ${slot}, ${node.address}, ${var.x} and
others are put into texts; $$ is a dollar sign. jobs/front@.yaml is a template, and each
link to it an instance: ln -s front@.yaml jobs/front@7.yaml.

Exit codes: 0 done, or nothing to do; 1 an error; 2 a plan has changes; 3 refused by a
lock or a revision; 4 applied to some; 5 a job has not so many nodes as it needs; 6 a node
took a change back that was not confirmed. Other commands end with 7 where something is
not permitted; that is an error, 1, here.`,
		Example: `  croft grid node add syd/r1/web1 --address web1.example.org --capacity cpu=8
  croft grid show jobs/web --origin
  croft grid place --without web1 --dry-run
  croft grid rule run 'select 2 rack; take 1' --replicas 2 --trace`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&o.dir, "directory", "C", ".", "the cluster's `directory`")
	for _, subject := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"The directory", []*cobra.Command{initCommand(o), nodeCommand(o), jobCommand(o), showCommand(o),
			lintCommand(o), secretCommand(o)}},
		{"Decide where jobs run", []*cobra.Command{placeCommand(o), ruleCommand(o), crushCommand(o)}},
		{"Run them", []*cobra.Command{planCommand(o), applyCommand(o), statusCommand(o), auditCommand(o),
			logsCommand(o), execCommand(o)}},
		{"Look after machines", []*cobra.Command{doctorCommand(o), drainCommand(o), lockCommand(o), beatCommand(o),
			watchCommand(o)}},
		{"Other systems", []*cobra.Command{adoptCommand(o, cloud), othersCommand(o)}},
	} {
		cmd.AddGroup(&cobra.Group{ID: subject.title, Title: subject.title})
		for _, sub := range subject.commands {
			sub.GroupID = subject.title
			cmd.AddCommand(sub)
		}
	}
	command.OneForErrors(cmd)
	return cmd
}
