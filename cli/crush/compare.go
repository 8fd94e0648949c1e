package crush

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/crush"
	"croft/internal/out"
)

// movement describes the difference between two maps.
type movement struct {
	Inputs   int     `json:"inputs"`
	Changed  int     `json:"inputs_changed"` // inputs with other devices, or in another order
	Replicas int     `json:"replicas"`       // replicas that the first map places
	Moved    int     `json:"replicas_moved"` // replicas on a device that the input does not use on the second map
	Lost     int     `json:"replicas_lost"`  // replicas that the second map cannot place
	Share    float64 `json:"share_moved"`
}

func compareCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "compare MAP OTHER",
		Short: "Compare the placement by two maps",
		Long: `compare places the same inputs by two maps and prints how many replicas are on other
devices. --weight applies to the second map, so that a map can be compared with itself.`,
		Args: oneMap(2),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			moved, err := o.compare(given[0], given[1])
			if err != nil {
				return err
			}
			if o.output != out.FormatText {
				return out.PrintData(cmd.OutOrStdout(), o.output, moved)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d of %d inputs changed; %d of %d replicas moved (%.3f %%), %d lost\n",
				moved.Changed, moved.Inputs, moved.Moved, moved.Replicas, moved.Share*100, moved.Lost)
			return nil
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *options) compare(first, second string) (r movement, err error) {
	before := *o
	before.weights = nil
	places := make([]func(uint32, []crush.ID) []crush.ID, 2)
	for i, at := range []struct {
		path string
		o    *options
	}{{first, &before}, {second, o}} {
		m, p, err := readMap(at.path)
		if err != nil {
			return r, err
		}
		if places[i], err = at.o.placer(m, p); err != nil {
			return r, croft.Errorf(croft.Invalid, "%s: %w", at.path, err)
		}
	}
	var had, has []crush.ID
	for x := o.from; x <= o.to; x++ {
		had, has = places[0](uint32(x), had[:0]), places[1](uint32(x), has[:0])
		r.Inputs++
		if !slices.Equal(had, has) {
			r.Changed++
		}
		there, here := 0, 0
		for _, id := range has {
			if id != crush.None {
				there++
			}
		}
		for _, id := range had {
			if id == crush.None {
				continue
			}
			here++
			if !slices.Contains(has, id) {
				r.Moved++
			}
		}
		r.Replicas += here
		r.Lost += max(0, here-there)
	}
	if r.Replicas > 0 {
		r.Share = float64(r.Moved) / float64(r.Replicas)
	}
	return r, nil
}
