package ip

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/ipam"
	"croft/grid/ipam/nft"
	"croft/grid/ipam/setexpr"
	"croft/internal/command"
	"croft/internal/out"
)

func accessCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Say who may reach whom",
		Long: `A rule is a file net/access/NAME.yaml: from and to are sets, proto is tcp, udp, icmp or any,
ports are those of the receiver. What no rule allows is dropped, as soon as there is one
rule: at the leased addresses, and nowhere else.`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	remove := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a rule",
		Args:  command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return o.change(cmd, func(n *ipam.Net) error { return n.RemoveAccess(given[0]) })
		},
	}
	cmd.AddCommand(accessAddCommand(o), remove, accessListCommand(o), accessTestCommand(o))
	return cmd
}

func accessAddCommand(o *options) *cobra.Command {
	var from, to, proto string
	var ports []string
	var log bool
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a rule",
		Example: `  croft ip access add shop --from 'all4 | all6' --to 'job:shop/**' --proto tcp --ports 80,443
  croft ip access add ping --from '#office' --to pool:web --proto icmp --log`,
		Args: command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if from == "" || to == "" {
				return croft.Errorf(croft.Invalid, "an access rule has --from and --to: give an expression for each, "+
					"or 'all4 | all6'")
			}
			return o.change(cmd, func(n *ipam.Net) error { return n.PutAccess(given[0], from, to, proto, ports, log) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "the senders (`expression`)")
	f.StringVar(&to, "to", "", "the receivers (`expression`)")
	f.StringVar(&proto, "proto", nft.Any, "tcp, udp, icmp or any (`protocol`)")
	f.StringSliceVar(&ports, "ports", nil, "the receivers' `ports`, such as 80,8000-8100 (default: all)")
	f.BoolVar(&log, "log", false, "log each new connection in the kernel's log")
	return cmd
}

// access is a rule as data.
type access struct {
	Name  string   `json:"name"`
	From  string   `json:"from"`
	To    string   `json:"to"`
	Proto string   `json:"proto"`
	Ports []string `json:"ports"`
	Log   bool     `json:"log"`
}

func accessListCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all rules",
		Args:  command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.read(cmd, func(n *ipam.Net) error {
				rules, err := n.Access()
				if err != nil {
					return err
				}
				all := []access{}
				for _, r := range rules {
					a := access{r.Name, r.From.String(), r.To.String(), r.Protocol, []string{}, r.Log}
					for _, p := range r.Ports {
						a.Ports = append(a.Ports, p.String())
					}
					all = append(all, a)
				}
				return o.print(cmd, all, func() error {
					t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
					t.Head("RULE", "FROM", "TO", "PROTO", "PORTS", "LOG")
					for _, a := range all {
						t.Texts(a.Name, a.From, a.To, a.Proto, out.OrDash(strings.Join(a.Ports, ",")), yesNo(a.Log))
					}
					return t.Print(cmd.OutOrStdout())
				})
			})
		},
	}
	o.formats(cmd)
	return cmd
}

func accessTestCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test FROM TO PROTOCOL [PORT]",
		Short: "Tell which rules allow packets",
		Long: `test prints the rules that let a new connection pass from one address to another. It ends
with 1 if none does, though the receiver or sender is leased and there are rules.`,
		Example: `  croft ip access test 192.0.2.7 10.0.0.2 tcp 80`,
		Args:    command.Count(3, 4),
		RunE: func(cmd *cobra.Command, given []string) error {
			from, err := setexpr.ParseAddr(given[0])
			if err != nil {
				return err
			}
			to, err := setexpr.ParseAddr(given[1])
			if err != nil {
				return err
			}
			if from.Is4() != to.Is4() {
				return croft.Errorf(croft.Invalid, "%s and %s are of two families", from, to)
			}
			var port nft.Ports
			proto := given[2]
			switch {
			case proto != nft.TCP && proto != nft.UDP && proto != nft.ICMP:
				return croft.Errorf(croft.Invalid, "protocol %q is not one of tcp, udp and icmp", proto)
			case (proto == nft.ICMP) != (len(given) == 3):
				return croft.Errorf(croft.Invalid, "give a port for tcp and udp, and none for icmp")
			case len(given) == 4:
				if port, err = ipam.ParsePorts(given[3]); err != nil {
					return err
				}
				if port.First != port.Last {
					return croft.Errorf(croft.Invalid, "%s is a range: give one port", given[3])
				}
			}
			return o.read(cmd, func(n *ipam.Net) error {
				rules, err := n.Rules()
				if err != nil {
					return err
				}
				return o.tellAccess(cmd, n, rules, nft.Packet{From: from, To: to, Protocol: proto, Port: port.First})
			})
		},
	}
	o.formats(cmd)
	return cmd
}

// verdict is the result for a packet.
type verdict struct {
	Passes   bool     `json:"passes"`
	Filtered bool     `json:"filtered"` // a leased address sends or receives it, and there are rules
	Rules    []string `json:"rules"`    // rules that allow it
}

func (o *options) tellAccess(cmd *cobra.Command, n *ipam.Net, rules []nft.Rule, p nft.Packet) error {
	v := verdict{Rules: []string{}}
	for _, r := range rules {
		if r.Allows(p) {
			v.Rules = append(v.Rules, r.Name)
		}
	}
	leased := func(l ipam.Lease, ok bool) bool { return ok && !l.Freed() }
	from, hasFrom := n.Leases[p.From]
	to, hasTo := n.Leases[p.To]
	v.Filtered = len(rules) > 0 && (leased(from, hasFrom) || leased(to, hasTo))
	v.Passes = !v.Filtered || len(v.Rules) > 0 || p.From == p.To
	err := o.print(cmd, v, func() error {
		switch {
		case !v.Filtered:
			fmt.Fprintln(cmd.OutOrStdout(), "passes: neither address is filtered")
		case len(v.Rules) > 0:
			fmt.Fprintln(cmd.OutOrStdout(), "passes:", strings.Join(v.Rules, " "))
		case v.Passes:
			fmt.Fprintln(cmd.OutOrStdout(), "passes: to itself")
		default:
			fmt.Fprintln(cmd.OutOrStdout(), "dropped: no rule allows it")
		}
		return nil
	})
	if err == nil && !v.Passes {
		return &command.Exited{Code: croft.ExitFailure}
	}
	return err
}
