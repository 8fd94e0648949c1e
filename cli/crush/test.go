package crush

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"croft"
	"croft/crush"
	"croft/internal/out"
)

// placement is one mapping as data.
type placement struct {
	Input   uint32     `json:"input"`
	Devices []crush.ID `json:"devices"` // crush.None: the position could not be filled
}

const maxThreads = 256

func testCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "test MAP",
		Short: "Print where inputs go",
		Long: `test prints for each input the IDs of its devices, as crushtool --test --show-mappings
does: 2147483647 is a position that could not be filled. --trace X prints each candidate
for one input and why it was rejected.`,
		Args: oneMap(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if traced := cmd.Flags().Changed("trace"); traced && (o.trace < 0 || o.trace > 1<<32-1) {
				return croft.Errorf(croft.Invalid, "--trace %d: give an input from 0 to %d", o.trace, int64(1<<32-1))
			} else if traced {
				o.from, o.to, o.threads = o.trace, o.trace, 1
			}
			if o.threads < 1 || o.threads > maxThreads {
				return croft.Errorf(croft.Invalid, "--threads %d: give 1 to %d", o.threads, maxThreads)
			}
			return o.test(cmd, given[0])
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.bad, "bad", false, "print only mappings of fewer devices than replicas")
	cmd.Flags().IntVar(&o.threads, "threads", runtime.NumCPU(), "`processors` to use")
	cmd.Flags().IntVar(&o.trace, "trace", 0, "print each candidate for one `input`")
	return cmd
}

func (o *options) test(cmd *cobra.Command, path string) error {
	m, p, err := readMap(path)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("trace") {
		o.watch = tracer(m, cmd.ErrOrStderr())
	}
	place, err := o.placer(m, p)
	if err != nil {
		return err
	}
	if o.output == out.FormatText {
		return o.printAll(cmd, m, p)
	}
	all := []placement{}
	for x := o.from; x <= o.to; x++ {
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		if ids := place(uint32(x), nil); !o.bad || o.isBad(ids) {
			all = append(all, placement{uint32(x), append([]crush.ID{}, ids...)})
		}
	}
	return out.PrintData(cmd.OutOrStdout(), o.output, all)
}

// isBad reports whether a mapping has fewer devices than wanted.
func (o *options) isBad(ids []crush.ID) bool {
	return len(ids) < o.replicas || slices.Contains(ids, crush.None)
}

// piece is the number of inputs that a thread computes at once.
const piece = 4096

// printAll prints the mappings of all inputs in order. Several threads compute them.
func (o *options) printAll(cmd *cobra.Command, m *crush.Map, p *crush.Program) error {
	var pieces []chan []byte // in the order of the inputs
	for x := o.from; x <= o.to; x += piece {
		pieces = append(pieces, make(chan []byte, 1))
	}
	ahead := make(chan struct{}, 4*o.threads) // largest number of pieces that are computed but not printed yet
	ctx, cancel := context.WithCancel(cmd.Context())
	var threads sync.WaitGroup
	defer threads.Wait()
	defer cancel()
	var next atomic.Int64
	for range o.threads {
		place, err := o.placer(m, p)
		if err != nil {
			return err
		}
		threads.Go(func() {
			var ids []crush.ID
			for {
				select {
				case ahead <- struct{}{}:
				case <-ctx.Done():
					return
				}
				n := int(next.Add(1)) - 1
				if n >= len(pieces) {
					return
				}
				var text []byte
				from := o.from + n*piece
				for x := from; x <= min(o.to, from+piece-1); x++ {
					if ids = place(uint32(x), ids[:0]); !o.bad || o.isBad(ids) {
						text = appendLine(text, uint32(x), ids)
					}
				}
				pieces[n] <- text
			}
		})
	}
	for _, one := range pieces {
		select {
		case text := <-one:
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return err
			}
			<-ahead
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// appendLine appends a mapping in the format of crushtool.
func appendLine(text []byte, x uint32, ids []crush.ID) []byte {
	text = append(strconv.AppendUint(text, uint64(x), 10), " ["...)
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(id), 10)
	}
	return append(text, "]\n"...)
}

// tracer returns a function that prints the candidates of a mapping.
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
