package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/internal/plain"
	"croft/schedule"
)

// wait waits for all instances, many at once, within the time limit of the settings, and shows their progress on
// stderr. It returns one error for each; nil: it reached the goal.
func (c *session) wait(ctx context.Context, cmd *cobra.Command, instances []croft.Instance,
	goal schedule.Goal) []error {
	ctx, cancel := context.WithTimeout(ctx, c.Settings.Timeout)
	defer cancel()
	show := newProgress(cmd.ErrOrStderr(), instances)
	errs := forEach(len(instances), waitsAtOnce, func(i int) error {
		err := c.Instances.Wait(ctx, instances[i], goal, func(st croft.Status) { show.update(i, st) })
		show.end(i, err)
		if errors.Is(err, context.Canceled) {
			err = &args.Interrupted{Text: fmt.Sprintf(
				"instance %s: nobody waits for it any longer; what was ordered goes on",
				instances[i].Name)}
		}
		return err
	})
	show.close()
	return errs
}

// mostBars is the most instances with their own lines on a terminal.
const mostBars = 40

// progress shows the progress of instances. Calls for different instances may overlap.
type progress interface {
	update(i int, st croft.Status)
	end(i int, err error)
	close()
}

func newProgress(stderr io.Writer, instances []croft.Instance) progress {
	if out.IsTerminal(stderr) && len(instances) <= mostBars {
		return newStatusBars(stderr, namesOf(instances))
	}
	return &lines{w: stderr, last: make([]string, len(instances)), name: namesOf(instances)}
}

// statusBars shows instances on a terminal, one per line.
type statusBars struct {
	*out.Bars
	last []croft.State // of the records
}

func newStatusBars(w io.Writer, names []string) *statusBars {
	return &statusBars{out.NewBars(w, names, "ordered"), make([]croft.State, len(names))}
}

func (b *statusBars) update(i int, st croft.Status) {
	l := b.Line(i)
	l.Say(stage(st))
	b.last[i] = st.Instance.State
	if o := st.Observation; o != nil && o.State == croft.StateFetching {
		l.Count(o.Progress)
	} else {
		l.Count(nil)
	}
}

func (b *statusBars) end(i int, err error) {
	l := b.Line(i)
	if err != nil {
		giveUp(l, err)
	} else if b.last[i] == croft.StateDestroying {
		l.Say("gone")
	}
	l.End()
}

func (b *statusBars) close() { b.Wait() }

// giveUp ends a line with an error. A wait that timed out is not a failure.
func giveUp(l *out.Line, err error) {
	_, failed := errors.AsType[*schedule.Failure](err)
	if !failed && (errors.Is(err, context.Canceled) || errors.Is(err, croft.Unavailable)) {
		l.Leave()
		return
	}
	l.Say("failed")
}

func namesOf(instances []croft.Instance) []string {
	var all []string
	for _, inst := range instances {
		all = append(all, inst.Name)
	}
	return all
}

// lines is the progress for logs: one line for each change of state.
type lines struct {
	mu   sync.Mutex
	w    io.Writer
	name []string
	last []string
}

func (l *lines) update(i int, st croft.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	word := schedule.Describe(&st)
	if word == string(croft.StateRunning) && st.Observation.CloudInit != nil {
		word += " " + string(st.Observation.CloudInit.State)
	}
	if word != l.last[i] {
		l.last[i] = word
		fmt.Fprintf(l.w, "instance %s: %s\n", l.name[i], plain.Line(stage(st)))
	}
}

func (l *lines) end(i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone := l.last[i] == string(croft.StateDestroying) || l.last[i] == ""; err == nil && gone {
		fmt.Fprintf(l.w, "instance %s: gone\n", l.name[i])
	}
}

func (*lines) close() {}

// reported describes how the guest's set-up ended, if it has reported.
func reported(told *croft.CloudInit) string {
	if told == nil {
		return ""
	}
	return ", set-up " + string(told.State)
}

// stage is the state of an instance in words.
func stage(st croft.Status) string {
	word := schedule.Describe(&st)
	switch croft.State(word) {
	case croft.StateFetching:
		return "fetching the image"
	case croft.StatePending:
		return "waiting for other builds on its host"
	case croft.StateDefining:
		return "making disk and domain"
	case croft.StateBooting:
		return "booting"
	case croft.StateRunning:
		if addr := Address(st); addr != "" {
			return "running at " + addr + reported(st.Observation.CloudInit)
		}
	case croft.StateDestroying:
		return "being removed"
	}
	return word
}
