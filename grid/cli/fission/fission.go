// Package fission is the command line of the program fission: the grid without the cloud.
package fission

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft/grid/cli"
	"croft/grid/cli/ip"
	"croft/grid/cli/sshca"
	"croft/internal/command"
)

// namesFor returns a replacer of the names that croft gives to the commands, for the program called own: itabot and
// lockpick have these names in help and errors when they are called by them.
func namesFor(own string) *strings.Replacer {
	pairs := []string{"croft: ", own + ": ", "croft grid", "fission"}
	for former, name := range map[string]string{"croft ip": "itabot", "croft sshca": "lockpick"} {
		if name != own {
			name = "fission " + name
		}
		pairs = append(pairs, former, name)
	}
	for _, sub := range cli.New(nil).Commands() {
		pairs = append(pairs, "grid "+sub.Name()+" ", "fission "+sub.Name()+" ")
	}
	return strings.NewReplacer(pairs...)
}

// Run runs args, which include the program's name, and returns the exit code once everything that it started has ended.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := Root(args[0])
	command.Names = namesFor(root.Name())
	return command.Run(ctx, root, args[1:], stdin, stdout, stderr, func(err error) string {
		return command.Listing(err, func(noun string) string { return cli.Listings[noun] })
	})
}

// Root returns the command that the program runs under a name: itabot and lockpick are subcommands too.
func Root(name string) *cobra.Command {
	root := cli.New(nil)
	root.Use = "fission"
	group := &cobra.Group{ID: "Addresses and certificates", Title: "Addresses and certificates"}
	root.AddGroup(group)
	for _, part := range []struct {
		name string
		cmd  *cobra.Command
	}{{"itabot", ip.Command()}, {"lockpick", sshca.Command()}} {
		part.cmd.Aliases = []string{part.cmd.Name()} // the hard point ip runs this program by croft's names
		part.cmd.Use, part.cmd.GroupID = part.name, group.ID
		if part.name == filepath.Base(name) {
			root, part.cmd.GroupID = part.cmd, ""
			break
		}
		root.AddCommand(part.cmd)
	}
	own := []*cobra.Command{command.Completion(root.Name(), "")}
	if root.Name() == "fission" {
		own = append(own, command.Man(nil))
	}
	root.AddGroup(&cobra.Group{ID: "This program", Title: "This program"})
	root.SetHelpCommandGroupID("This program")
	for _, sub := range own {
		command.OneForErrors(sub)
		sub.GroupID = "This program"
		root.AddCommand(sub)
	}
	command.Conventions(root)
	command.DocumentExits(root)
	rename(root, namesFor(root.Name()))
	command.Finished(root).SetVersionTemplate("fission {{.Version}}\n")
	return root
}

// rename replaces croft's names in the help of a command and its subcommands.
func rename(cmd *cobra.Command, names *strings.Replacer) {
	cmd.Short, cmd.Long = renamed(cmd.Short, names), renamed(cmd.Long, names)
	cmd.Example = renamed(cmd.Example, names)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = renamed(f.Usage, names) })
	for _, sub := range cmd.Commands() {
		rename(sub, names)
	}
}

// renamed replaces croft's names in a text, and keeps the columns of comments in examples.
func renamed(text string, names *strings.Replacer) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = names.Replace(line)
		if before, comment, found := strings.Cut(lines[i], "  # "); found {
			lines[i] = before + strings.Repeat(" ", max(0, len(line)-len(lines[i]))) + "  # " + comment
		}
	}
	return strings.Join(lines, "\n")
}
