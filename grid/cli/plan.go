package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"encoding/json"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/apply"
	"croft/grid/plan"
	"croft/internal/command"
	"croft/internal/durable"
	"croft/internal/out"
	"croft/internal/plain"
	"croft/internal/wording"
)

// ExitBack is the exit code for a change that a node took back because it was not confirmed.
const ExitBack = 6

// within reports whether a file is in the directory of the grid.
func (o *options) within(file string) bool {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return false
	}
	if file, err = filepath.Abs(file); err != nil {
		return false
	}
	below, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(below)
}

func planCommand(o *options) *cobra.Command {
	var how connecting
	var bound plan.Options
	var file string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what apply would change, and change nothing",
		Long: `plan asks the nodes what runs there, and prints what has to change so that they run
what the directory says: + starts, - stops, ~ changes, ! needs something else. Lines of
files that change are shown; secrets are named, never shown.

--out FILE stores the plan: apply FILE does exactly that, and refuses if the revision or
a node has changed since. Keep FILE outside of the directory, since apply refuses what is
not committed there. Exit code 0: nothing to do; 2: there are changes.`,
		Example: `  croft grid plan
  croft grid plan --out ../plan.json; croft grid apply ../plan.json`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.ContainsAny(o.output, "./") && file == "" { // -o plan.json, as with other planners
				o.output, file = out.FormatText, o.output
			}
			data, err := o.data()
			if err != nil {
				return err
			}
			c, err := o.reach(cmd, &how)
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err := c.revision(cmd, file != ""); err != nil {
				return err
			}
			p, _, err := c.Plan(cmd.Context(), c.want, bound)
			if err != nil {
				return refusal(err)
			}
			if file != "" {
				if err := store(file, p); err != nil {
					return err
				}
				if o.within(file) {
					say(cmd, "%s is in the directory: unless the repository ignores it, apply refuses to begin until it is moved "+
						"out", file)
				}
			}
			if data {
				err = out.PrintData(cmd.OutOrStdout(), o.output, p)
			} else {
				err = printPlan(cmd, cmd.OutOrStdout(), p)
			}
			switch {
			case err != nil:
			case !p.Empty():
				err = exit(ExitPending, nil)
			default:
				err = unseen(p, "what has to change there is not known")
			}
			return err
		},
	}
	how.flags(cmd)
	boundFlags(cmd, &bound)
	cmd.Flags().StringVar(&file, "out", "", "store the plan in a `file`, for apply")
	o.formats(cmd)
	return cmd
}

func boundFlags(cmd *cobra.Command, b *plan.Options) {
	cmd.Flags().StringSliceVar(&b.Limit, "limit", nil, "change these nodes alone (`names`)")
	cmd.Flags().StringSliceVar(&b.Fenced, "fenced", nil, "these nodes are off for certain, so that nothing runs there (`names`)")
}

// store writes a plan.
func store(file string, p plan.Plan) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.Write(file, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("store the plan: %w", err)
	}
	return nil
}

func printPlan(cmd *cobra.Command, w io.Writer, p plan.Plan) error {
	for _, warning := range p.Warnings {
		say(cmd, "croft: warning: %s", warning)
	}
	for _, s := range p.Steps {
		if _, err := fmt.Fprintln(w, plain.Line(s.String())); err != nil {
			return err
		}
		for _, line := range s.Diff {
			fmt.Fprintln(w, "    "+plain.Line(line))
		}
	}
	switch {
	case p.Empty() && len(p.Unseen) > 0:
		say(cmd, "nothing has to change on the other nodes")
	case p.Empty():
		say(cmd, "nothing has to change")
	default:
		counted := ""
		if n := len(p.Reads); n > 0 {
			counted = fmt.Sprintf("; %s must stay as they are meanwhile", wording.Count(n, "more node"))
		}
		say(cmd, "%s on %s%s", wording.Count(len(p.Steps), "step"), wording.Count(len(p.Writes()), "node"), counted)
	}
	return nil
}

// unseen returns an error if some nodes were not examined.
func unseen(p plan.Plan, so string) error {
	if len(p.Unseen) == 0 {
		return nil
	}
	return croft.Errorf(croft.Unavailable, "%s: not looked at; %s (a node that is lost: croft grid node out NODE)",
		strings.Join(p.Unseen, ", "), so)
}

// refusal gives the errors of apply their exit codes.
func refusal(err error) error {
	if _, ok := errors.AsType[*apply.Refused](err); ok {
		return exit(ExitRefused, err)
	}
	if _, ok := errors.AsType[*apply.TakenBack](err); ok {
		return exit(ExitBack, err)
	}
	if _, ok := errors.AsType[*apply.Partly](err); ok {
		return exit(ExitPartly, err)
	}
	return err
}

func applyCommand(o *options) *cobra.Command {
	var how connecting
	var choice apply.Choice
	var reason string
	cmd := &cobra.Command{
		Use:   "apply [PLAN]",
		Short: "Make the nodes run what the directory says",
		Long: `apply locks the nodes that change, and those that the change counts on; makes sure that
no node has a revision which this one does not contain, and that nothing has changed
since it planned; and then, on all nodes: prepares, starts what is new and waits until it
is ready, stops what is old, removes it, and replaces the firewall. Jobs are changed in
batches: the canaries first, then so many units as max_unavailable says, with the job's
gate asked after each. The first batch that fails is the last.

Changes of jobs with confirm, and of firewalls, are taken back by the node itself unless
this machine confirms them in time over a new connection.

What is applied must be committed, and pushed if there is an upstream. PLAN is a file
that plan --out wrote. An apply that was interrupted is finished by the next.

Exit codes: 0 done, or nothing to do; 3 refused, and nothing was changed; 4 some of it is
done, the lists say what; 6 a node took a change back.`,
		Example: `  croft grid apply
  croft grid apply ../plan.json
  croft grid apply --limit web1,web2`,
		Args: command.Count(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if how.firewall < time.Second || how.firewall > time.Hour {
				return croft.Errorf(croft.Invalid, "--firewall-confirm %v: give 1s to 1h",
					wording.Duration(how.firewall))
			}
			if choice.Force != (reason != "") {
				return croft.Errorf(croft.Invalid, "--force and --reason go together: say why an older revision is right")
			}
			if choice.Force {
				how.note = ", forced: " + reason
			}
			return o.apply(cmd, &how, choice, given)
		},
	}
	how.flags(cmd)
	boundFlags(cmd, &choice.Options)
	f := cmd.Flags()
	command.DurationVar(f, &how.firewall, "firewall-confirm", time.Minute,
		"after this `time` a node takes its old firewall back, "+
			"unless the new one is confirmed")
	f.BoolVar(&choice.Adopt, "adopt", false, "take nodes that store no revision, or an older state than was seen")
	f.BoolVar(&choice.Force, "force", false, "go from a revision that this one does not contain; needs --reason")
	f.StringVar(&reason, "reason", "", "a `text` for the journals of the nodes")
	o.formats(cmd)
	return cmd
}

func (o *options) apply(cmd *cobra.Command, how *connecting, choice apply.Choice, given []string) error {
	data, err := o.data()
	if err != nil {
		return err
	}
	var shown plan.Plan
	if len(given) > 0 {
		text, err := os.ReadFile(given[0])
		if err != nil {
			return croft.Errorf(croft.Invalid, "read the plan: %w", err)
		}
		if shown, err = plan.Parse(text); err != nil {
			return fmt.Errorf("%s: %w", given[0], err)
		}
		if len(choice.Limit) > 0 && !slices.Equal(choice.Limit, shown.Limit) {
			return croft.Errorf(croft.Invalid, "%s has a limit of its own: give --limit to plan", given[0])
		}
		choice.Limit = shown.Limit
	}
	c, err := o.reach(cmd, how)
	if err != nil {
		return err
	}
	defer c.Close()
	if choice.Head, err = c.revision(cmd, true); err != nil {
		return err
	}
	p, found, err := c.Plan(cmd.Context(), c.want, choice.Options)
	if err != nil {
		return refusal(err)
	}
	if len(given) > 0 && p.ID() != shown.ID() {
		return exit(ExitRefused, croft.Errorf(croft.Conflict, "%s is not what would be done now, as %s: plan again",
			given[0],
			apply.Changed(shown, p)))
	}
	if !choice.Adopt {
		if err := c.remembered(p, found); err != nil {
			return err
		}
	}
	if err := printPlan(cmd, cmd.ErrOrStderr(), p); err != nil {
		return err
	}
	result, err := c.Apply(cmd.Context(), c.want, p, found, choice)
	if err = errors.Join(o.report(cmd, data, result, err), o.storeEpochs(cmd, c, p)); err != nil {
		return err
	}
	if missed := unseen(p, "nothing was applied there"); missed != nil {
		return exit(ExitPartly, missed)
	}
	return nil
}

// storeEpochs stores the current epochs of the nodes. If it cannot, it prints a warning and does not fail.
func (o *options) storeEpochs(cmd *cobra.Command, c *cluster, p plan.Plan) error {
	if p.Empty() {
		return nil
	}
	if err := c.remember(cmd.Context(), p); err != nil {
		say(cmd, "croft: warning: the epochs of the nodes are not remembered here: %v", err)
	}
	return nil
}

// report prints the operations that were done, and the ones that were not.
func (o *options) report(cmd *cobra.Command, data bool, r apply.Result, err error) error {
	if data {
		if printed := out.PrintData(cmd.OutOrStdout(), o.output, r); printed != nil {
			return printed
		}
		return refusal(err)
	}
	for _, list := range []struct {
		word  string
		steps []plan.Step
	}{{"done", r.Done}, {"taken back", r.Back}, {"not done", r.Pending}} {
		for _, s := range list.steps {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", list.word,
				plain.Line(strings.TrimSpace(string(s.Op)+" "+s.Name)+" on "+
					s.Node))
		}
	}
	return refusal(err)
}
