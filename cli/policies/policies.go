// Package policies has the commands for the policies by which CRUSH chooses hosts: croft policy, and croft crush
// export.
package policies

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
)

// Command returns the command croft policy.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Manage the policies by which CRUSH chooses hosts",
		Long: `policy manages policies by which CRUSH chooses hosts (schedule --policy crush:NAME): the
same UUID, policy and hosts give the same host, so anyone can compute why an instance is
on its host. A policy has four instructions, one in each line or separated by semicolons:
  use LOCATION     begin at a site, row or rack, such as site1/row2; without it, anywhere
  select N TYPE    N sites, rows or racks below that
  take N           hosts below each
  emit             hand them out, and begin again
The first host that takes orders, has room and is not excluded gets the instance. The
weight of a host is the number of VCPUs that it offers. Operators write policies; all
users can read them.`,
		Example: `  echo 'use site1; take 1; emit; take 1' | croft policy set site1-first -
  schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 debian-12 --policy crush:site1-first
  croft policy explain web`,
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	cmd.AddCommand(
		policies.List("List the policies"),
		showCommand(),
		setCommand(),
		checkCommand(),
		removeCommand(),
		explainCommand(),
	)
	return cmd
}

func completeNames(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // a file name
	}
	return policies.Complete(1)(cmd, given, prefix)
}

var policies = verb.Noun[croft.CrushPolicy]{
	Name: "policy",
	All: func(ctx context.Context, c *args.Client) ([]croft.CrushPolicy, error) {
		list, err := c.ListPolicies(ctx)
		return list.Policies, err
	},
	Word: func(p croft.CrushPolicy) (string, string) { return p.Name, inOneLine(p.Text) },
	Head: []string{"NAME", "GENERATION", "INSTRUCTIONS"},
	Row: func(p croft.CrushPolicy) []out.Cell {
		return verb.Texts(p.Name, strconv.FormatInt(p.Generation, 10), inOneLine(p.Text))
	},
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
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			p, err := c.GetPolicy(ctx, api.PolicyNamed{Name: c.Args[0]})
			if err != nil {
				return err
			}
			if c.WantsData() {
				return c.PrintData(p)
			}
			fmt.Fprintln(c.Cmd.OutOrStdout(), strings.TrimRight(p.Text, "\n"))
			return nil
		}),
		ValidArgsFunction: completeNames,
	}
}

// read reads a policy from a file, or - for stdin.
func read(cmd *cobra.Command, name, file string) (croft.CrushPolicy, error) {
	p := croft.CrushPolicy{Name: name}
	if err := croft.CheckPolicyName(name); err != nil {
		return p, err
	}
	text, err := args.ReadFile(cmd.InOrStdin(), "policy "+name, file, croft.MaxPolicyText)
	if err != nil {
		return p, err
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
		Long: `set stores a policy from a file; - reads stdin. It is refused if it can choose no host.
Instances stay where they are; a move uses the new policy.`,
		ValidArgsFunction: completeNames,
	}
	generation := cmd.Flags().Int64("generation", 0, "refuse unless the stored policy has this `number`; 0 for none "+
		"stored (any)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		p, err := read(cmd, given[0], given[1])
		if err != nil {
			return err
		}
		var base api.Match
		if cmd.Flags().Changed("generation") {
			base = api.MatchOf(*generation)
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			found, err := c.CheckPolicy(ctx, api.PolicyCheck{Name: p.Name, Text: p.Text})
			if err != nil {
				return err
			}
			hint(cmd, p.Name, found.Hints)
			set, err := c.SetPolicy(ctx, api.PolicyText{Name: p.Name, Base: base, Text: p.Text})
			if err != nil {
				return err
			}
			return c.Report(set, "policy %s has generation %d", set.Name, set.Generation)
		})
	}
	return cmd
}

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check NAME [FILE]",
		Short: "Check whether a stored policy, or one in a file, can choose hosts",
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
					if p, err = c.GetPolicy(ctx, api.PolicyNamed{Name: given[0]}); err != nil {
						return err
					}
				}
				found, err := c.CheckPolicy(ctx, api.PolicyCheck{Name: p.Name, Text: p.Text})
				if err != nil {
					return err
				}
				if c.WantsData() {
					return c.PrintData(found.Hints)
				}
				hint(cmd, p.Name, found.Hints)
				fmt.Fprintf(cmd.ErrOrStderr(), "policy %s can choose hosts\n", p.Name)
				return nil
			})
		},
		ValidArgsFunction: completeNames,
	}
}

func removeCommand() *cobra.Command {
	return policies.Remove("Remove policies; instances stay where they are",
		func(ctx context.Context, c *args.Client, name string) error {
			return c.RemovePolicy(ctx, api.PolicyRemoval{Name: name})
		})
}
