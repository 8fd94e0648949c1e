package cli

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/crush"
	"croft/crush/policy"
	"croft/grid/place"
	"croft/grid/state"
	"croft/internal/command"
	"croft/internal/out"
)

func ruleCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rule",
		Short: "Try rules: assemble, disassemble and run them",
		Long: `A rule says which nodes a job gets, in four instructions, a line each or with semicolons:
  use B         begin at the directory B
  select N T    below each directory here, N distinct ones of type T
  take N        below each directory here, N distinct nodes
  emit          hand out what was taken, and begin at nodes/ again
N = 0 selects as many as there are replicas, and N = -K selects K fewer. A job's policy is such a text, the name
of a file in policies/ without .rule, or one of these:
  single                 one node
  spread(T)              each in another T; spread(host) is what jobs have that say nothing
  across(T, n, m)        m nodes in each of n T
  local-first(L, n, R)   n in L, the others in R
  pair(T)                two hosts in one T; pair() alone: in one site
  pin(NODE)              that node
  every                  each node that fits
A file may begin with a line of parameters, such as params T n=2, which are put where it
has ${T} and ${n}.`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(asmCommand(o), disasmCommand(o), runCommand(o))
	return cmd
}

func asmCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "asm POLICY",
		Short:   "Print the code of a policy, in which directories and types are numbers",
		Example: `  croft grid rule asm 'select 2 rack; take 1'`,
		Args:    command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			t, err := place.NewTrial(s, nil, given[0])
			if err != nil {
				return err
			}
			code, err := t.Code()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), hex.EncodeToString(code))
			return err
		},
	}
}

func disasmCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "disasm CODE",
		Short:   "Print the instructions of a code",
		Example: `  croft grid rule disasm 0204040302`,
		Args:    command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			code, err := hex.DecodeString(strings.TrimSpace(given[0]))
			if err != nil {
				return croft.Errorf(croft.Invalid, "the code is not written in hexadecimal digits: %w", err)
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			p, err := policy.Decode(code, place.Map(s, nil, &s.IDs))
			if err != nil {
				return croft.Errorf(croft.Invalid, "disassemble: %w", err)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), p)
			return err
		},
	}
}

// ran is the result of a policy for an input, as data.
type ran struct {
	Input uint32   `json:"input"`
	Nodes []string `json:"nodes"`
}

func runCommand(o *options) *cobra.Command {
	t := &trial{}
	var x int64
	var trace bool
	cmd := &cobra.Command{
		Use:   "run [POLICY]",
		Short: "Print the nodes that a policy gives",
		Long: `run places one input afresh, as if the job had no slots, and prints the nodes in their
order. --trace tells each candidate, and why it was not taken: taken already, out, full.`,
		Example: `  croft grid rule run --job web --trace
  croft grid rule run 'spread(rack)' -n 3 --x 42`,
		Args: command.Count(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			data, err := o.data()
			if err != nil {
				return err
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			tried, err := t.open(s, strings.Join(given, ""))
			if err != nil {
				return err
			}
			result := ran{Input: tried.Input(), Nodes: []string{}}
			if cmd.Flags().Changed("x") {
				if x < 0 || x > 1<<32-1 {
					return croft.Errorf(croft.Invalid, "--x %d: give an input from 0 to %d", x, int64(1<<32-1))
				}
				result.Input = uint32(x)
			}
			var watch func(crush.Event)
			if trace {
				watch = tracer(cmd, s, tried)
			}
			names := namesOf(tried.Map)
			for _, id := range tried.Place(result.Input, t.replicas, t.ceph, false, watch) {
				result.Nodes = append(result.Nodes, names[id])
			}
			if data {
				err = out.PrintData(cmd.OutOrStdout(), o.output, result)
			} else {
				for _, name := range result.Nodes {
					fmt.Fprintln(cmd.OutOrStdout(), name)
				}
			}
			if err == nil && len(result.Nodes) < t.replicas {
				short := ""
				if where := tried.Short(result.Input, t.replicas); where != "" {
					short = "; " + where
				}
				err = exit(ExitUnsatisfiable, croft.Errorf(croft.NoCapacity, "the policy gives %d of %d nodes%s",
					len(result.Nodes), t.replicas, short))
			}
			return err
		},
	}
	t.flags(cmd)
	cmd.Flags().Int64Var(&x, "x", 0, "the `input`; without it, the job's")
	cmd.Flags().BoolVar(&trace, "trace", false, "tell each candidate, and why it was not taken")
	o.formats(cmd)
	return cmd
}

// namesOf returns the names of the items in a map.
func namesOf(m *crush.Map) map[crush.ID]string {
	names := map[crush.ID]string{crush.None: "-"}
	for _, d := range m.Devices {
		names[d.ID] = d.Name
	}
	for _, b := range m.Buckets {
		names[b.ID] = b.Name
	}
	return names
}

// tracer returns a function that prints the candidates.
func tracer(cmd *cobra.Command, s *state.State, t *place.Trial) func(crush.Event) {
	for _, line := range t.LeftOut() {
		say(cmd, "left out: %s", line)
	}
	names := namesOf(t.Map)
	return func(e crush.Event) {
		why, name := e.Why.String(), names[e.Item]
		if name == "" {
			name = strconv.Itoa(int(e.Item))
		}
		if e.Why == crush.Refused {
			if reason := t.Why(e.Item); reason != "" {
				why = reason
			} else {
				why = "taken already"
			}
		}
		what := "replica"
		if e.Leaf {
			what = "node for replica"
		}
		say(cmd, "step %d: %s %d, try %d: %s: %s", e.Step, what, e.Position, e.Try, name, why)
	}
}
