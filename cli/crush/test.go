package crush

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/out"
	"croft/crush"
)

// placement is one mapping for programs.
type placement struct {
	Input   uint32     `json:"input"`
	Devices []crush.ID `json:"devices"` // crush.None: the position could not be filled
}

func testCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "test MAP",
		Short: "Print where inputs go",
		Long: `test prints for each input the IDs of its devices, as crushtool --test --show-mappings
does: 2147483647 is a position that could not be filled. --trace X tells for one input
each candidate and why it was not taken.`,
		Args: oneMap(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if traced := cmd.Flags().Changed("trace"); traced && (o.trace < 0 || o.trace > 1<<32-1) {
				return croft.Errorf(croft.Invalid, "--trace %d: give an input from 0 to %d", o.trace, int64(1<<32-1))
			} else if traced {
				o.from, o.to = o.trace, o.trace
			}
			return o.test(cmd, given[0])
		},
	}
	o.flags(cmd)
	cmd.Flags().IntVar(&o.trace, "trace", 0, "tell each candidate for one `input`")
	return cmd
}

func (o *options) test(cmd *cobra.Command, path string) error {
	m, p, err := readMap(path)
	if err != nil {
		return err
	}
	mapper, place, err := o.placer(m, p)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("trace") {
		mapper.Watch(tracer(m, cmd.ErrOrStderr()))
	}
	w := bufio.NewWriter(cmd.OutOrStdout())
	var all []placement
	var ids []crush.ID
	for x := o.from; x <= o.to; x++ {
		if cmd.Context().Err() != nil {
			return cmd.Context().Err()
		}
		ids = place(uint32(x), ids[:0])
		if o.output == out.FormatText {
			fmt.Fprintln(w, lineOf(uint32(x), ids))
			continue
		}
		all = append(all, placement{uint32(x), append([]crush.ID{}, ids...)})
	}
	if o.output != out.FormatText {
		return out.PrintData(cmd.OutOrStdout(), o.output, all)
	}
	return w.Flush()
}

// tracer returns what prints the candidates of a mapping.
func tracer(m *crush.Map, to io.Writer) func(crush.Event) {
	names := map[crush.ID]string{crush.None: "-"}
	for _, d := range m.Devices {
		names[d.ID] = d.Name
	}
	for _, b := range m.Buckets {
		names[b.ID] = b.Name
		for _, s := range b.Shadows {
			names[s.ID] = b.Name + "~" + s.Class
		}
	}
	return func(e crush.Event) {
		what := "replica"
		if e.Leaf {
			what = "device for replica"
		}
		name := names[e.Item]
		if name == "" {
			name = strconv.Itoa(int(e.Item))
		}
		fmt.Fprintf(to, "step %d: %s %d, try %d: %s: %s\n", e.Step, what, e.Position, e.Try, name, e.Why)
	}
}
