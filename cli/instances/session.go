package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/plain"
	"croft/schedule"
)

// session is one command's connection to the cloud, with the operations on instances.
type session struct{ *args.Client }

// within does the same as args.With, for a session.
func within(cmd *cobra.Command, do func(context.Context, *session) error) error {
	return args.With(cmd, func(ctx context.Context, c *args.Client) error { return do(ctx, &session{c}) })
}

func noAddress(i api.Instance) error {
	if i.State == schedule.Unknown {
		return croft.Errorf(croft.Unavailable,
			"instance %s has no address: whether it runs is unknown, since it is on host %s%s", i.Name, i.Host,
			silence(i))
	}
	if i.Reported() == croft.StateFailed {
		return fmt.Errorf("instance %s has no address: it failed: %s", i.Name, i.Error)
	}
	boots := map[string]string{
		string(croft.StateStopped): "`schedule start %s` boots it",
		string(croft.StateHeld):    "`croft claim use %s` boots it",
		string(croft.StateLost):    "`schedule show %s` names the ways to have it again",
	}
	if remedy, off := boots[i.State]; off {
		return fmt.Errorf("instance %s has no address: it is %s; "+remedy, i.Name, i.State, i.Name)
	}
	remedy := cmp.Or(lateAddress(i), "with --wait this waits for one")
	return fmt.Errorf("instance %s has no address yet: it is %s; %s", i.Name, i.State, remedy)
}

// lateAddress says why the guest may have no address; empty: it has one, or has not been on for long.
func lateAddress(i api.Instance) string {
	return schedule.NoAddress(i.Name, i.State, i.Machine, &croft.Observation{Events: i.Events})
}

// silence returns a clause with the time since when the host of an instance is silent; empty: the host is alive.
func silence(i api.Instance) string {
	if i.HostAlive == nil || *i.HostAlive {
		return ""
	}
	return ", which is silent" + Since(i.HostSeen)
}

// StateCell returns the state of an instance, in its color.
func StateCell(word string) out.Cell {
	switch croft.State(word) {
	case croft.StateRunning:
		return out.Cell{Text: word, Color: out.Green}
	case croft.StateFailed, schedule.Unknown:
		return out.Cell{Text: word, Color: out.Red}
	case croft.StateStopped:
		return out.Cell{Text: word}
	}
	return out.Cell{Text: word, Color: out.Yellow}
}

// Since returns when a silent host last reported.
func Since(seen time.Time) string {
	if seen.IsZero() {
		return ""
	}
	return " since " + seen.Local().Format(time.DateTime)
}

// wait waits for all instances, many at once, within the time limit of the settings, and shows their progress on
// stderr. It returns one error for each instance; nil: the instance reached the goal.
func (c *session) wait(ctx context.Context, cmd *cobra.Command, instances []api.Instance,
	goal schedule.Goal) []error {
	ctx, cancel := context.WithTimeout(ctx, c.Settings.Timeout)
	defer cancel()
	shown := newProgress(cmd.ErrOrStderr(), instances)
	errs := forEach(len(instances), waitsAtOnce, func(i int) error {
		err := c.AwaitInstance(ctx, instances[i], goal, func(now api.Instance) { shown.update(i, now) })
		shown.end(i, err)
		if errors.Is(err, context.Canceled) {
			err = &command.Interrupted{Text: fmt.Sprintf(
				"instance %s: stopped waiting for it; its order stays",
				instances[i].Name)}
		}
		return err
	})
	shown.close()
	return errs
}

// mostBars is the largest number of instances that get a line each on a terminal.
const mostBars = 40

// progress shows the progress of instances. Calls for different instances may overlap.
type progress interface {
	update(n int, i api.Instance)
	end(i int, err error)
	close()
}

func newProgress(stderr io.Writer, instances []api.Instance) progress {
	if out.Draws(stderr) && len(instances) <= mostBars {
		return newStatusBars(stderr, namesOf(instances))
	}
	return &lines{w: stderr, last: make([]string, len(instances)), name: namesOf(instances)}
}

// statusBars shows instances on a terminal, one per line.
type statusBars struct {
	*out.Bars
	last []string // states
}

func newStatusBars(w io.Writer, names []string) *statusBars {
	return &statusBars{out.NewBars(w, names, "ordered"), make([]string, len(names))}
}

func (b *statusBars) update(n int, i api.Instance) {
	l := b.Line(n)
	l.Say(stage(i))
	b.last[n] = i.State
	if word := croft.State(described(i)); word == croft.StateFetching || word == croft.StateMoving {
		l.Count(i.Progress)
	} else {
		l.Count(nil)
	}
}

func (b *statusBars) end(i int, err error) {
	l := b.Line(i)
	if err != nil {
		giveUp(l, err)
	} else if b.last[i] == string(croft.StateDestroying) {
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

func namesOf(instances []api.Instance) []string {
	var all []string
	for _, i := range instances {
		all = append(all, i.Name)
	}
	return all
}

// lines prints the progress for logs: one line for each change of state.
type lines struct {
	mu   sync.Mutex
	w    io.Writer
	name []string
	last []string
}

func (l *lines) update(n int, i api.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	word := described(i)
	if word == string(croft.StateRunning) && i.CloudInit != nil {
		word += " " + string(i.CloudInit.State)
	}
	if word != l.last[n] {
		l.last[n] = word
		fmt.Fprintf(l.w, "instance %s: %s\n", l.name[n], plain.Line(stage(i)))
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

// reported describes how the guest's set-up ended, if it has reported since it was last started.
func reported(c *croft.CloudInit) string {
	if !c.Current() {
		return ""
	}
	return ", set-up " + string(c.State)
}

// described returns the state of an instance for somebody who waits for its newest order: an observation of the agent
// before it has seen that order is about an earlier one.
func described(i api.Instance) string {
	if i.Pending && i.State != schedule.Unknown && i.State != string(croft.StateMoving) {
		return schedule.Ordered
	}
	return i.State
}

// stage describes the progress of an instance's newest order in words.
func stage(i api.Instance) string {
	word := described(i)
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
		if i.Address != "" {
			return "running at " + i.Address + reported(i.CloudInit)
		}
	case croft.StateMoving:
		return "moving its disk to the new host"
	case croft.StateDestroying:
		return "being removed"
	}
	return word
}

const (
	// atOnce is the number of requests of a command that run at the same time.
	atOnce = 64
	// waitsAtOnce is the number of instances watched at the same time. The others follow when earlier ones have reached
	// the goal, or are checked when the time limit ends.
	waitsAtOnce = 512
)

// inOrder calls do for 0 to n-1, at most limit at once, and passes the results in order to each. Once each returns
// false, or ctx has ended, it starts no more calls; it returns when the running calls have ended and their results were
// passed on.
func inOrder[T any](ctx context.Context, n, limit int, do func(i int) T, each func(T) (more bool)) {
	var underWay []chan T // oldest first
	more := true
	for next := 0; ; {
		for more && ctx.Err() == nil && next < n && len(underWay) < limit {
			result, i := make(chan T, 1), next
			go func() { result <- do(i) }()
			underWay = append(underWay, result)
			next++
		}
		if len(underWay) == 0 {
			return
		}
		if !each(<-underWay[0]) {
			more = false
		}
		underWay = underWay[1:]
	}
}

// forEach calls do for 0 to n-1, at most limit at once, and returns their errors.
func forEach(n, limit int, do func(i int) error) []error {
	errs := make([]error, n)
	var work errgroup.Group
	work.SetLimit(limit)
	for i := range n {
		work.Go(func() error {
			errs[i] = do(i)
			return nil
		})
	}
	_ = work.Wait() // the errors are in errs
	return errs
}

// look reads an instance; if the settings say so, it first waits until the instance runs.
func (c *session) look(ctx context.Context, cmd *cobra.Command, idOrName string) (api.Instance, error) {
	i, err := c.Instance(ctx, idOrName)
	if err != nil || !c.Settings.Wait.Any() {
		return i, err
	}
	if errs := c.wait(ctx, cmd, []api.Instance{i}, c.Settings.Wait.Goal()); errs[0] != nil {
		return i, errs[0]
	}
	return c.Instance(ctx, string(i.ID))
}
