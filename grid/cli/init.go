package cli

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/edit"
	"croft/grid/vcs"
	"croft/internal/command"
)

func initCommand(o *options) *cobra.Command {
	var system, runtime string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the directory of a new cluster",
		Long: `init makes cluster.yaml with a new id, by which nodes know the cluster, and empty nodes/,
jobs/, alloc/ and policies/. What is there already stays as it is.`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			name := cmp.Or(system, vcs.Detect(o.dir), "git")
			for _, one := range []struct{ flag, value string }{{"vcs", name}, {"runtime", runtime}} {
				if !plainWord(one.value) {
					return croft.Errorf(croft.Invalid, "--%s: %q is no name", one.flag, one.value)
				}
			}
			if err := edit.Init(o.dir, name, runtime); err != nil {
				return err
			}
			say(cmd, "add nodes with croft grid node add, and jobs as files in %s", filepath.Join(o.dir, "jobs"))
			_, err := fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(o.dir, "cluster.yaml"))
			return err
		},
	}
	cmd.Flags().StringVar(&system, "vcs", "", "version control: git, hg, fossil or another hard point's `name` "+
		"(default: what the directory is under, else git)")
	cmd.Flags().StringVar(&runtime, "runtime", "podman", "what runs jobs that say nothing else (`name`)")
	return cmd
}

func plainWord(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return s != ""
}
