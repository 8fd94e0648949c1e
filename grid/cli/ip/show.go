package ip

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/ipam"
	"croft/grid/ipam/setexpr"
	"croft/internal/command"
	"croft/internal/out"
)

func showCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [ADDRESS|PREFIX|POOL]",
		Short: "Show what is known of an address, or the pools",
		Long: `show tells of an address its pool, its owner and node, and what is said of it: the facts
of all prefixes that have it, where those of longer ones go before those of shorter ones.
Of a prefix or a pool it lists the known addresses. Without an argument it lists pools.`,
		Args: command.Count(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return o.read(cmd, func(n *ipam.Net) error {
				if len(given) == 0 {
					return o.showPools(cmd, n)
				}
				return o.show(cmd, n, given[0])
			})
		},
	}
	o.formats(cmd)
	return cmd
}

func (o *options) show(cmd *cobra.Command, n *ipam.Net, what string) error {
	if strings.Contains(what, "/") {
		return o.find(cmd, n, what)
	}
	a, err := setexpr.ParseAddr(what)
	if err != nil {
		if _, err := n.Pool(what); err != nil {
			if setexpr.NameForm.MatchString(what) && !strings.ContainsAny(what[:1], "0123456789") {
				return err
			}
			return croft.Errorf(croft.Invalid, "%q is neither an address, a prefix nor a pool", what)
		}
		return o.find(cmd, n, "pool:"+what)
	}
	about, err := n.About(a)
	if err != nil {
		return err
	}
	return o.print(cmd, about, func() error {
		t := &out.Table{}
		rows := [][2]string{{"address", about.Address}, {"state", about.State}, {"pool", about.Pool},
			{"gateway", about.Gateway}, {"node", about.Node}, {"until", about.Until},
			{"tags", strings.Join(about.Tags, " ")},
			{"sets", strings.Join(about.Sets, " ")}, {"prefixes", strings.Join(about.Prefixes, " ")}}
		if about.Owner != nil {
			rows = append(rows[:2], append([][2]string{{"owner", about.Owner.String()}}, rows[2:]...)...)
		}
		for _, row := range rows {
			if row[1] != "" {
				t.Texts(row[0], row[1])
			}
		}
		if err := t.Print(cmd.OutOrStdout()); err != nil || len(about.Facts) == 0 {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), "facts")
		return out.PrintData(indented{cmd.OutOrStdout()}, out.FormatYAML, about.Facts)
	})
}

func (o *options) showPools(cmd *cobra.Command, n *ipam.Net) error {
	all := []ipam.Usage{}
	for _, p := range n.Pools {
		u, err := n.Usage(p)
		if err != nil {
			return err
		}
		all = append(all, u)
	}
	return o.print(cmd, all, func() error {
		t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
		t.Head("POOL", "PREFIX", "SIZE", "LEASED", "HELD", "FREE")
		for _, u := range all {
			t.Texts(u.Pool, u.Prefix, u.Size.String(), u.Leased.String(), u.Held.String(), u.Free.String())
		}
		return t.Print(cmd.OutOrStdout())
	})
}

func findCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "find EXPRESSION",
		Short: "List the known addresses in a set",
		Long: `find lists the addresses in a set that are leased, held, or have something said of them
alone. croft ip set test prints the set itself.`,
		Example: `  croft ip find '#web & 10.0.0.0/8'
  croft ip find 'job:shop/** - @blocked' -o json`,
		Args: command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return o.read(cmd, func(n *ipam.Net) error { return o.find(cmd, n, given[0]) })
		},
	}
	o.formats(cmd)
	return cmd
}

func (o *options) find(cmd *cobra.Command, n *ipam.Net, text string) error {
	x, err := setexpr.Parse(text, "", 1)
	if err != nil {
		return err
	}
	e := n.Evaluator()
	s, err := e.Eval(x)
	if err != nil {
		return err
	}
	n.Notes = append(n.Notes, e.Notes()...)
	all, err := n.Find(s)
	if err != nil {
		return err
	}
	return o.print(cmd, all, func() error {
		t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
		t.Head("ADDRESS", "STATE", "POOL", "OWNER", "NODE", "TAGS")
		for _, a := range all {
			owner := ""
			if a.Owner != nil {
				owner = a.Owner.String()
			}
			t.Texts(a.Address, a.State, out.OrDash(a.Pool), out.OrDash(owner), out.OrDash(a.Node),
				out.OrDash(strings.Join(a.Tags, " ")))
		}
		return t.Print(cmd.OutOrStdout())
	})
}

func checkCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check everything below net/",
		Long: `check reads all files below net/ and computes all sets and rules. It also finds what a
merge of branches may leave: an owner with two addresses of a pool, a lease that its pool
would never give. It ends with 1 if anything is wrong.`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.read(cmd, func(n *ipam.Net) error {
				found, err := n.Check()
				if err != nil {
					return err
				}
				for _, sentence := range found {
					fmt.Fprintln(cmd.OutOrStdout(), sentence)
				}
				if len(found) > 0 {
					return croft.Errorf(croft.Invalid, "%d things below net/ are not right", len(found))
				}
				return nil
			})
		},
	}
}
