// Package policies has the commands for the policies by which CRUSH chooses hosts: croft policy, and croft crush
// export.
package policies

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/command"
	"croft/internal/out"
)

// Command returns the command croft policy.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Keep the policies by which CRUSH chooses hosts",
		Long: `policy keeps policies by which CRUSH chooses hosts (schedule --policy crush:NAME): the
same UUID, policy and hosts give the same host, so that anybody can compute why an
instance stands where it stands. A policy has four instructions, one in each line or
separated by semicolons:
  use LOCATION     begin at a site, row or rack, such as site1/row2; without it, anywhere
  select N TYPE    N sites, rows or racks below that
  take N           hosts below each
  emit             hand them out, and begin again
The first host that takes orders, has room and is not barred gets the instance. Hosts
weigh as many VCPUs as they offer. Operators write policies, and everybody reads them.`,
		Example: `  echo 'use site1; take 1; emit; take 1' | croft policy set site1-first -
  schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 debian-12 --policy crush:site1-first
  croft policy explain web`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 0 {
				return command.OnlySubcommands(cmd, given)
			}
			return croft.Errorf(croft.Invalid, "usage: %s list, show, set, check, remove or explain", cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	cmd.AddCommand(listCommand(), showCommand(), setCommand(), checkCommand(), removeCommand(), explainCommand())
	command.CompleteFlag(cmd, "output", out.Formats)
	return cmd
}

func isData(format string) bool { return format == out.FormatJSON || format == out.FormatYAML }

func completeNames(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // a file name
	}
	found := args.StoredNames(cmd, given, prefix, func(ctx context.Context, c *args.Client, offer args.Offer) error {
		all, err := c.Policies.List(ctx)
		for _, p := range all {
			offer(p.Name, inOneLine(p.Text))
		}
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the policies",
		Args:    command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				all, err := c.Policies.List(ctx)
				if err != nil {
					return err
				}
				stdout := cmd.OutOrStdout()
				if isData(c.Settings.Output) {
					return out.PrintData(stdout, c.Settings.Output, append([]croft.CrushPolicy{}, all...)) // never null
				}
				t := out.Table{Color: out.IsColored(stdout)}
				t.Head("NAME", "GENERATION", "INSTRUCTIONS")
				for _, p := range all {
					t.Texts(p.Name, strconv.FormatInt(p.Generation, 10), inOneLine(p.Text))
				}
				return t.Print(stdout)
			})
		},
	}
}

// inOneLine returns a policy in one line, without comments.
func inOneLine(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for one := range strings.SplitSeq(line, ";") {
			if one = strings.Join(strings.Fields(one), " "); one != "" {
				all = append(all, one)
			}
		}
	}
	return strings.Join(all, "; ")
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Print a policy as it was written",
		Args:  command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				p, err := c.Policies.Find(ctx, given[0])
				if err != nil {
					return err
				}
				if isData(c.Settings.Output) {
					return out.PrintData(cmd.OutOrStdout(), c.Settings.Output, p)
				}
				fmt.Fprintln(cmd.OutOrStdout(), strings.TrimRight(p.Text, "\n"))
				return nil
			})
		},
		ValidArgsFunction: completeNames,
	}
}

// read reads a policy from a file, or - for stdin.
func read(cmd *cobra.Command, name, file string) (croft.CrushPolicy, error) {
	p := croft.CrushPolicy{Name: name}
	if err := croft.CheckPolicyName(name); err != nil {
		return p, err
	}
	from := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return p, croft.Errorf(croft.Invalid, "read policy %s: %w", name, err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, croft.MaxPolicyText+1))
	if err != nil {
		return p, croft.Errorf(croft.Invalid, "read policy %s: %w", name, err)
	}
	p.Text = string(text)
	return p, p.Check()
}

// hint prints hints about parts of a policy that its author may not have intended.
func hint(cmd *cobra.Command, name string, hints []string) {
	for _, h := range hints {
		fmt.Fprintf(cmd.ErrOrStderr(), "policy %s: %s\n", name, h)
	}
}

func setCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME FILE",
		Short: "Store a policy, in place of the one of its name",
		Long: `set stores a policy from a file; - reads stdin. It is refused where it can choose no
host. Instances stay where they are; one that moves goes where the policy puts it then.`,
		Args:              command.Count(2, 2),
		ValidArgsFunction: completeNames,
	}
	generation := cmd.Flags().Int64("generation", 0, "refuse unless the stored policy has this `number`; 0 for none "+
		"stored (any)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		p, err := read(cmd, given[0], given[1])
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("generation") {
			generation = nil
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			hints, err := c.Policies.Check(ctx, p)
			if err != nil {
				return err
			}
			hint(cmd, p.Name, hints)
			set, err := c.Policies.Set(ctx, p, generation)
			if err != nil {
				return err
			}
			if isData(c.Settings.Output) {
				return out.PrintData(cmd.OutOrStdout(), c.Settings.Output, set)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "policy %s has generation %d\n", set.Name, set.Generation)
			return nil
		})
	}
	return cmd
}

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check NAME [FILE]",
		Short: "Check whether a stored policy, or one in a file, can choose hosts",
		Args:  command.Count(1, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			var p croft.CrushPolicy
			if len(given) == 2 {
				var err error
				if p, err = read(cmd, given[0], given[1]); err != nil {
					return err
				}
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) (err error) {
				if len(given) == 1 {
					if p, err = c.Policies.Find(ctx, given[0]); err != nil {
						return err
					}
				}
				hints, err := c.Policies.Check(ctx, p)
				if err != nil {
					return err
				}
				if isData(c.Settings.Output) {
					return out.PrintData(cmd.OutOrStdout(), c.Settings.Output, append([]string{}, hints...))
				}
				hint(cmd, p.Name, hints)
				fmt.Fprintf(cmd.ErrOrStderr(), "policy %s can choose hosts\n", p.Name)
				return nil
			})
		},
		ValidArgsFunction: completeNames,
	}
}

func removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Remove a policy; instances stay where they are",
		Args:    command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				if err := c.Policies.Remove(ctx, given[0], nil); err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "policy %s is removed\n", given[0])
				return nil
			})
		},
		ValidArgsFunction: completeNames,
	}
}
