package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/place"
	"croft/grid/state"
	"croft/internal/command"
	"croft/internal/out"
)

// placedResult is the result of place as data.
type placedResult struct {
	Changes  []place.Change `json:"changes"`
	Slots    int            `json:"slots"`
	Moves    int            `json:"moves"`
	Warnings []string       `json:"warnings"`
	Written  bool           `json:"written"`
}

func placeCommand(o *options) *cobra.Command {
	var how place.Options
	var dry bool
	cmd := &cobra.Command{
		Use:   "place",
		Short: "Decide which nodes jobs have, and write that as links below alloc/",
		Long: `place keeps every slot that may stay where it is: on a node that is up, or under
maintenance, and has the job's facts and enough of what the job uses, where no other job
has its ports, and where the job's rule has a place for it beside the other slots. Missing slots get nodes by the rule, jobs
of greater priority first. It writes links, touches no machine, and run again it changes
nothing. Slots of jobs with address: POOL get an address, which they keep. If a job would have fewer nodes than it needs, it ends with 5, and nothing is
changed.

--rebalance drops what is kept, and says how many slots move before it moves them.
--without NODE tells what would be if that node were out, and changes nothing.`,
		Example: `  croft grid place --dry-run
  croft grid place --without web1 --without web2 -o json`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := o.data(); err != nil {
				return err
			}
			if len(how.Without) > 0 || dry {
				s, err := o.load(cmd)
				if err != nil {
					return err
				}
				return o.place(cmd, s, how, false)
			}
			return o.change(cmd, func(s *state.State) error { return o.place(cmd, s, how, true) })
		},
	}
	cmd.Flags().BoolVar(&how.Rebalance, "rebalance", false, "place all slots as if none had a node")
	cmd.Flags().StringArrayVar(&how.Without, "without", nil,
		"as if this `node` were out, without changing anything (repeatable)")
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "print what would change, and change nothing")
	o.formats(cmd)
	return cmd
}

func (o *options) place(cmd *cobra.Command, s *state.State, how place.Options, write bool) error {
	r, err := place.Decide(s, how)
	if errors.Is(err, croft.NoCapacity) {
		return exit(ExitUnsatisfiable, err)
	}
	if err != nil {
		return err
	}
	for _, w := range r.Warnings {
		say(cmd, "croft: warning: %s", w)
	}
	if how.Rebalance {
		say(cmd, "%d of %d slots move", r.Moves, r.Slots)
	}
	if write {
		if err := r.Write(o.dir); err != nil {
			return err
		}
		if err := o.allocate(cmd, r.Changes); err != nil {
			return err
		}
	}
	if data, _ := o.data(); data {
		all := placedResult{Changes: r.Changes, Slots: r.Slots, Moves: r.Moves, Warnings: r.Warnings, Written: write}
		if all.Changes == nil {
			all.Changes = []place.Change{}
		}
		if all.Warnings == nil {
			all.Warnings = []string{}
		}
		return out.PrintData(cmd.OutOrStdout(), o.output, all)
	}
	for _, c := range r.Changes {
		sign := "~"
		switch {
		case c.From == "":
			sign = "+"
		case c.To == "":
			sign = "-"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s/%d %s -> %s (%s)\n", sign, c.Job, c.Slot, out.OrDash(c.From),
			out.OrDash(c.To), c.Reason)
	}
	if len(r.Changes) == 0 {
		say(cmd, "all %d slots stay where they are", r.Slots)
	}
	return nil
}
