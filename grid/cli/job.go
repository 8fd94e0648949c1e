package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft/grid/place"
	"croft/grid/state"
	"croft/internal/command"
	"croft/internal/out"
)

func jobCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "List the jobs",
		Long: `A job is a file below jobs/, or a link to a template there. To add one, write the file; to
remove one, remove it. croft grid show jobs/NAME prints one with all that it inherits.`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(jobListCommand(o))
	return cmd
}

// jobRow is a job as data.
type jobRow struct {
	Name     string    `json:"name"`
	Path     string    `json:"path"`
	Want     int       `json:"want"`
	Min      int       `json:"min"`
	Policy   string    `json:"policy"`
	Priority int       `json:"priority"`
	Slots    []slotRow `json:"slots"`
}

type slotRow struct {
	Slot int    `json:"slot"`
	Node string `json:"node"` // empty: it no longer exists
}

func jobListCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the jobs and the nodes that they have",
		Args:  command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := o.data()
			if err != nil {
				return err
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			rows := jobRows(s)
			if data {
				return out.PrintData(cmd.OutOrStdout(), o.output, rows)
			}
			t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
			t.Head("NAME", "SLOTS", "POLICY", "NODES")
			for _, r := range rows {
				var nodes []string
				for _, slot := range r.Slots {
					nodes = append(nodes, out.OrDash(slot.Node))
				}
				want := strconv.Itoa(r.Want)
				if r.Policy == "every" {
					want = "every"
				}
				t.Texts(r.Name, fmt.Sprintf("%d/%s", len(r.Slots), want), r.Policy,
					out.OrDash(strings.Join(nodes, " ")))
			}
			return t.Print(cmd.OutOrStdout())
		},
	}
	o.formats(cmd)
	return cmd
}

func jobRows(s *state.State) []jobRow {
	rows := []jobRow{}
	for _, j := range s.Jobs {
		r := jobRow{Name: j.Name, Path: j.Path, Want: j.Want, Min: j.Min, Policy: strings.TrimSpace(j.Policy),
			Priority: j.Priority, Slots: []slotRow{}}
		if r.Policy == "" {
			r.Policy = place.DefaultPolicy
		}
		for _, slot := range j.Slots {
			name := ""
			if slot.Node != nil {
				name = slot.Node.Name
			}
			r.Slots = append(r.Slots, slotRow{slot.Number, name})
		}
		rows = append(rows, r)
	}
	return rows
}
