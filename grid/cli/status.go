package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/unit"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/plain"
)

// nodeStatus is a node as data.
type nodeStatus struct {
	plan.Observed
	State  string `json:"state"`
	Wanted int    `json:"wanted"`
}

func statusCommand(o *options) *cobra.Command {
	var how connecting
	cmd := &cobra.Command{
		Use:   "status [NODE...]",
		Short: "Say what runs on the nodes, and which revision they have",
		Long: `status asks the nodes, without any lock, which revision was applied there and how that
ended, what runs, and who has the lock. A phase other than done says that a change was
interrupted (applying) or taken back (returned): the next apply finishes it. unconfirmed
is a change that nobody confirmed before the node restarted: the next apply has it taken
back.`,
		Example: `  croft grid status
  croft grid status web1 -o json`,
		RunE: func(cmd *cobra.Command, given []string) error {
			data, err := o.data()
			if err != nil {
				return err
			}
			c, err := o.reach(cmd, &how)
			if err != nil {
				return err
			}
			defer c.Close()
			nodes, err := c.named(given)
			if err != nil {
				return err
			}
			rows := []nodeStatus{}
			for _, found := range c.Observe(cmd.Context(), c.want, nodes) {
				at := slices.IndexFunc(nodes, func(n unit.Node) bool { return n.Name == found.Node })
				rows = append(rows, nodeStatus{found, nodes[at].State, len(nodes[at].Units)})
			}
			if data {
				return out.PrintData(cmd.OutOrStdout(), o.output, rows)
			}
			t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
			t.Head("NODE", "STATE", "REVISION", "PHASE", "RUNNING", "LOCKED BY")
			for _, r := range rows {
				running := 0
				for _, u := range r.Units {
					if u.Running {
						running++
					}
				}
				phase := cmp.Or(r.Phase, "-")
				if len(r.Unwatched) > 0 {
					phase = "unconfirmed: " + plain.Line(strings.Join(r.Unwatched, ", "))
				}
				if r.Error != "" {
					phase = "does not answer: " + plain.Line(r.Error)
				}
				t.Texts(r.Node, r.State, out.OrDash(revlock.Short(r.Revision)), phase,
					strconv.Itoa(running)+" of "+strconv.Itoa(r.Wanted), out.OrDash(plain.Line(strings.Join(r.Holders,
						"; "))))
			}
			return t.Print(cmd.OutOrStdout())
		},
	}
	how.flags(cmd)
	o.formats(cmd)
	return cmd
}

// named returns the nodes with these names; without names, all nodes. NotFound.
func (c *cluster) named(names []string) ([]unit.Node, error) {
	if len(names) == 0 {
		return c.want.Nodes, nil
	}
	var nodes []unit.Node
	for _, name := range names {
		at := slices.IndexFunc(c.want.Nodes, func(one unit.Node) bool { return one.Name == name })
		if at < 0 {
			_, err := findNode(c.state, name)
			return nil, err
		}
		nodes = append(nodes, c.want.Nodes[at])
	}
	return nodes, nil
}

func auditCommand(o *options) *cobra.Command {
	var how connecting
	var metrics bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare the nodes with the files, and say what was changed by hand",
		Long: `audit asks the nodes, without any lock, and prints what they have otherwise than the
files say: drift was made on the node, since the files have not changed; pending is a
change of the files that was not applied; unseen nodes do not answer; unconfirmed is a
change that nobody confirmed before the node restarted. Exit code 0: there is no
difference; 2: there are some.

--metrics prints numbers in the text format of Prometheus instead, and ends with 0.`,
		Example: `  croft grid audit
  croft grid audit --metrics > /var/lib/node_exporter/croft_grid.prom`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := o.data()
			if err != nil {
				return err
			}
			c, err := o.reach(cmd, &how)
			if err != nil {
				return err
			}
			defer c.Close()
			found := c.Observe(cmd.Context(), c.want, c.want.Nodes)
			list, err := plan.Audit(c.want, found, plan.Options{})
			if err != nil {
				return err
			}
			if metrics {
				_, err := fmt.Fprint(cmd.OutOrStdout(), plan.Metrics(c.want, found, list))
				return err
			}
			if err := o.printAudit(cmd, data, list); err != nil || len(list) == 0 {
				return err
			}
			return exit(ExitPending, nil)
		},
	}
	how.flags(cmd)
	cmd.Flags().BoolVar(&metrics, "metrics", false, "print numbers for Prometheus")
	o.formats(cmd)
	return cmd
}

func (o *options) printAudit(cmd *cobra.Command, data bool, list []plan.Difference) error {
	if data {
		return out.PrintData(cmd.OutOrStdout(), o.output, list)
	}
	if len(list) == 0 {
		say(cmd, "all nodes are as the files say")
		return nil
	}
	t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("NODE", "CAUSE", "UNIT", "APPLY WOULD", "WHY")
	for _, d := range list {
		t.Texts(d.Node, string(d.Cause), out.OrDash(d.Name), out.OrDash(string(d.Op)), plain.Line(d.Text))
	}
	return t.Print(cmd.OutOrStdout())
}
