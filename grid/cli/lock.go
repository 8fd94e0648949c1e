package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/plain"
)

func lockCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lock",
		Short: "List the locks of nodes, and break one",
		Args:  command.OnlySubcommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(lockListCommand(o), lockBreakCommand(o))
	return cmd
}

// lockRow is a lock as data.
type lockRow struct {
	Node   string `json:"node"`
	Holder string `json:"holder"`
}

func lockListCommand(o *options) *cobra.Command {
	var how connecting
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List who has locks of nodes",
		Args:  command.Count(0, 0),
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
			rows := []lockRow{}
			for _, found := range c.Observe(cmd.Context(), plan.Desired{Cluster: c.want.Cluster}, c.want.Nodes) {
				if found.Error != "" {
					say(cmd, "croft: warning: %s does not answer: %s", found.Node, found.Error)
				}
				for _, h := range found.Holders {
					rows = append(rows, lockRow{found.Node, h})
				}
			}
			if data {
				return out.PrintData(cmd.OutOrStdout(), o.output, rows)
			}
			t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
			t.Head("NODE", "LOCKED BY")
			for _, r := range rows {
				t.Texts(r.Node, plain.Line(r.Holder))
			}
			return t.Print(cmd.OutOrStdout())
		},
	}
	how.flags(cmd)
	o.formats(cmd)
	return cmd
}

func lockBreakCommand(o *options) *cobra.Command {
	var how connecting
	var reason string
	cmd := &cobra.Command{
		Use:   "break NODE --reason TEXT",
		Short: "Break the lock of a node",
		Long: `break raises the epoch of a node, so that whoever has its lock gives no further order
there, and ends the holder. What the holder began may be half done: apply finishes it. A
lock goes away by itself some 20 seconds after its client did, so there is seldom a need.`,
		Example: `  croft grid lock break web1 --reason 'the laptop was stolen'`,
		Args:    command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if strings.TrimSpace(reason) == "" {
				return croft.Errorf(croft.Invalid, "say why with --reason: the node's journal keeps it")
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
			conn, err := dialer{c.ssh}.Dial(cmd.Context(), nodes[0])
			if err != nil {
				return err
			}
			held, err := revlock.Break(cmd.Context(), conn, c.shell.Place(nodes[0]), c.shell.Who, reason)
			_ = conn.Close()
			if err != nil {
				return fmt.Errorf("%s: %w", nodes[0].Name, err)
			}
			if !held {
				say(cmd, "%s is not locked", nodes[0].Name)
				return nil
			}
			say(cmd, "the lock of %s is broken; apply finishes what its holder may have begun", nodes[0].Name)
			return nil
		},
	}
	how.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the node's journal (`text`)")
	return cmd
}
