package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/place"
	"croft/grid/state"
	"croft/internal/command"
)

const maxInputs = 10_000_000

func crushCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "crush",
		Short: "Print the CRUSH map of the nodes, and what it computes",
		Long: `The directories below nodes/ are buckets of the kind straw2, and nodes are devices. What
these commands print can be checked with Ceph's crushtool; see also croft crush.`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(exportCommand(o), testCommand(o))
	return cmd
}

func exportCommand(o *options) *cobra.Command {
	var job string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the map in crushtool's text form",
		Long: `export prints the map of the nodes, with the policies of jobs as rules; --job prints the
nodes that a job's facts leave, and its policy alone. States of nodes are in no map: give
crushtool --weight ID 0 for those that are out.`,
		Example: `  croft grid crush export > map.txt && crushtool -c map.txt -o map.bin
  crushtool -i map.bin --test --show-mappings --rule 0 --num-rep 3`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			var j *state.Job
			if job != "" {
				if j, err = findJob(s, job); err != nil {
					return err
				}
			}
			m, err := place.Export(s, j)
			if err != nil {
				return err
			}
			return m.WriteText(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "the map and policy of this job (`name`)")
	return cmd
}

func testCommand(o *options) *cobra.Command {
	t := &trial{}
	var from, to int64
	var all bool
	cmd := &cobra.Command{
		Use:   "test [POLICY]",
		Short: "Print where inputs go",
		Long: `test prints for each input the ids of its nodes, as crushtool --test --show-mappings does.
With --ceph and --all it is exactly what crushtool computes from the map of crush export.`,
		Example: `  croft grid crush test 'spread(rack)' -n 3 --to 9
  croft grid crush test --job web --ceph --all`,
		Args: command.Count(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if from < 0 || to < from || to > 1<<32-1 || to-from >= maxInputs {
				return croft.Errorf(croft.Invalid, "--from %d --to %d: give inputs from 0 to %d, the last not before the first, "+
					"and at most %d at once", from, to, int64(1<<32-1), maxInputs)
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			tried, err := t.open(s, strings.Join(given, ""))
			if err != nil {
				return err
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			for x := from; x <= to; x++ {
				if x%1000 == 0 && cmd.Context().Err() != nil {
					return cmd.Context().Err()
				}
				ids := tried.Place(uint32(x), t.replicas, t.ceph, all, nil)
				fmt.Fprintf(w, "%d [%s]\n", x, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ","), "[]"))
			}
			return w.Flush()
		},
	}
	t.flags(cmd)
	cmd.Flags().Int64Var(&from, "from", 0, "the first `input`")
	cmd.Flags().Int64Var(&to, "to", 1023, "the last `input`")
	cmd.Flags().BoolVar(&all, "all", false, "use all nodes of the map, whatever their state and what they have left")
	return cmd
}
