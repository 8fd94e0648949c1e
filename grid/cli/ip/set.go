package ip

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go4.org/netipx"

	"croft"
	"croft/grid/ipam"
	"croft/grid/ipam/setexpr"
	"croft/internal/command"
	"croft/internal/out"
)

func setCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Name sets of addresses, compute and explain them",
		Long:  `A set is a file net/sets/NAME with an expression, which others mention as @NAME.`,
		Args:  command.OnlySubcommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	put := &cobra.Command{
		Use:     "put NAME EXPRESSION",
		Short:   "Write a set, new or not",
		Example: `  croft ip set put servers 'pool:web | job:db/** - @blocked'`,
		Args:    command.Count(2, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			return o.change(cmd, func(n *ipam.Net) error { return n.PutSet(given[0], given[1]) })
		},
	}
	remove := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a set that nothing mentions",
		Args:  command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := ipam.CheckName(given[0]); err != nil {
				return err
			}
			return o.change(cmd, func(n *ipam.Net) error { return n.RemoveSet(given[0]) })
		},
	}
	cmd.AddCommand(put, remove, setListCommand(o), setTestCommand(o), setExplainCommand(o))
	return cmd
}

// named is a set and its computed addresses.
type named struct {
	Name string   `json:"name"`
	Expr string   `json:"expr"`
	IPv4 []string `json:"ipv4"`
	IPv6 []string `json:"ipv6"`
}

// compute computes a named expression.
func compute(n *ipam.Net, e *setexpr.Evaluator, x *setexpr.Expr, name string) (named, *netipx.IPSet, error) {
	s, err := e.Eval(x)
	if err != nil {
		return named{}, nil, err
	}
	r := named{Name: name, Expr: x.String(), IPv4: []string{}, IPv6: []string{}}
	four, six := setexpr.Prefixes(s)
	for _, p := range four {
		r.IPv4 = append(r.IPv4, p.String())
	}
	for _, p := range six {
		r.IPv6 = append(r.IPv6, p.String())
	}
	return r, s, nil
}

func setListCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all sets",
		Args:  command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.read(cmd, func(n *ipam.Net) error {
				names, err := n.Sets()
				if err != nil {
					return err
				}
				e := n.Evaluator()
				all := []named{}
				for _, name := range names {
					x, err := n.Set(name)
					if err != nil {
						return err
					}
					r, _, err := compute(n, e, x, name)
					if err != nil {
						return err
					}
					all = append(all, r)
				}
				n.Notes = append(n.Notes, e.Notes()...)
				return o.print(cmd, all, func() error {
					t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
					t.Head("SET", "IPV4", "IPV6", "EXPRESSION")
					for _, r := range all {
						t.Texts(r.Name, fmt.Sprint(len(r.IPv4)), fmt.Sprint(len(r.IPv6)), r.Expr)
					}
					return t.Print(cmd.OutOrStdout())
				})
			})
		},
	}
	o.formats(cmd)
	return cmd
}

func setTestCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test EXPRESSION [ADDRESS...]",
		Short: "Compute an expression, or test addresses against it",
		Long: `test prints the fewest prefixes that have exactly the addresses of the set, IPv4 first.
With addresses it prints for each whether it is in, and ends with 1 if one is not.`,
		Example: `  croft ip set test '@servers - 10.0.0.0/28'
  croft ip set test @servers 10.0.0.5`,
		Args: command.Count(1, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return o.read(cmd, func(n *ipam.Net) error {
				x, err := setexpr.Parse(given[0], "", 1)
				if err != nil {
					return err
				}
				e := n.Evaluator()
				r, s, err := compute(n, e, x, "")
				if err != nil {
					return err
				}
				n.Notes = append(n.Notes, e.Notes()...)
				if len(given) > 1 {
					return o.test(cmd, s, given[1:])
				}
				return o.print(cmd, r, func() error {
					for _, p := range append(r.IPv4, r.IPv6...) {
						fmt.Fprintln(cmd.OutOrStdout(), p)
					}
					return nil
				})
			})
		},
	}
	o.formats(cmd)
	return cmd
}

func (o *options) test(cmd *cobra.Command, s *netipx.IPSet, addresses []string) error {
	type is struct {
		Address string `json:"address"`
		In      bool   `json:"in"`
	}
	var all []is
	missing := 0
	for _, text := range addresses {
		a, err := setexpr.ParseAddr(text)
		if err != nil {
			return err
		}
		all = append(all, is{a.String(), s.Contains(a)})
		if !s.Contains(a) {
			missing++
		}
	}
	err := o.print(cmd, all, func() error {
		for _, one := range all {
			fmt.Fprintln(cmd.OutOrStdout(), one.Address, yesNo(one.In))
		}
		return nil
	})
	if err == nil && missing > 0 {
		return &command.Exited{Code: croft.ExitFailure}
	}
	return err
}

func setExplainCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain ADDRESS [EXPRESSION]",
		Short: "Tell why an address is in a set, or not",
		Long: `explain says yes or no for an expression and for each part of it, with the prefix that
has the address. Without an expression it does so for each set.`,
		Args: command.Count(1, 2),
		RunE: func(cmd *cobra.Command, given []string) error {
			a, err := setexpr.ParseAddr(given[0])
			if err != nil {
				return err
			}
			return o.read(cmd, func(n *ipam.Net) error {
				texts := given[1:]
				if len(texts) == 0 {
					names, err := n.Sets()
					if err != nil {
						return err
					}
					for _, name := range names {
						texts = append(texts, "@"+name)
					}
				}
				all := []setexpr.Explanation{}
				e := n.Evaluator()
				for _, text := range texts {
					x, err := setexpr.Parse(text, "", 1)
					if err != nil {
						return err
					}
					one, err := e.Explain(x, a)
					if err != nil {
						return err
					}
					all = append(all, one)
				}
				return o.print(cmd, all, func() error {
					for _, one := range all {
						explain(cmd.OutOrStdout(), one, "")
					}
					return nil
				})
			})
		},
	}
	o.formats(cmd)
	return cmd
}

func explain(w io.Writer, x setexpr.Explanation, indent string) {
	line := fmt.Sprintf("%s%-3s  %s", indent, yesNo(x.In), x.Expr)
	if x.By != "" && x.By != x.Expr {
		line += "  by " + x.By
	}
	if x.At != "" {
		line += "  in " + x.At
	}
	fmt.Fprintln(w, line)
	for _, part := range x.Parts {
		explain(w, part, indent+"  ")
	}
}
