package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
)

// waiting says whether, and how long, a command waits for a cluster.
type waiting struct {
	not     bool
	timeout time.Duration
	resizes bool // the command resizes the cluster, and fails if the cluster does not get the size
}

func (w *waiting) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.not, "no-wait", false, "do not wait until it is done")
	command.DurationVar(cmd.Flags(), &w.timeout, "for", 0, "wait no longer than this `duration` (as long as it takes)")
}

// finish waits until a cluster is settled, unless the command does not wait, and prints the result. doing describes the
// operation, for the case that the wait ends first.
func (w *waiting) finish(ctx context.Context, cmd *cobra.Command, c *args.Client, have api.Cluster, doing string,
) error {
	asked := have
	if !w.not {
		var err error
		if have, err = w.wait(ctx, cmd, c, have, doing); err != nil {
			return err
		}
	}
	have.Reused = asked.Reused
	if c.WantsData() {
		if err := c.PrintData(have); err != nil {
			return err
		}
		return cmp.Or(failure(have), w.unsized(asked, have))
	}
	switch {
	case w.not:
		fmt.Fprintln(cmd.OutOrStdout(), have.ID)
		return nil
	case w.unsized(asked, have) != nil:
		return w.unsized(asked, have)
	case have.State == cluster.Ready && have.Error != nil:
		fmt.Fprintf(cmd.ErrOrStderr(), "cluster %s is ready, and unchanged: %s\n", have.Name, have.Error.Message)
	case have.State == cluster.Degraded:
		fmt.Fprintf(cmd.ErrOrStderr(), "cluster %s is degraded: %s\n", have.Name, now(have))
	}
	if err := failure(have); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), have.MasterIP)
	return nil
}

// unsized returns the error of a resize that was taken back, or that ended with another size; nil: the cluster has the
// wanted size.
func (w *waiting) unsized(asked, have api.Cluster) error {
	if !w.resizes || w.not || have.Error == nil || have.Error.Code != cluster.FailedResize ||
		have.State == cluster.Failed {
		return nil
	}
	if asked.Error != nil && asked.Error.At.Equal(have.Error.At) && asked.Slaves == have.Slaves {
		return nil // an earlier resize failed, and this one changes nothing
	}
	return fmt.Errorf("cluster %s was not resized, and has %d slaves: %s", have.Name, have.Slaves, have.Error.Message)
}

// failure returns the error of a cluster that cannot be used; nil: it can be used.
func failure(have api.Cluster) error {
	if have.State != cluster.Failed || have.Error == nil {
		return nil
	}
	kinds := map[cluster.FailureCode]croft.Kind{cluster.FailedRoom: croft.NoCapacity,
		cluster.FailedCredential: croft.Denied, cluster.FailedDeadline: croft.Unavailable}
	text := fmt.Sprintf("cluster %s failed: %s (croft cluster events %s)", have.Name, have.Error.Message, have.Name)
	if kind := kinds[have.Error.Code]; kind != "" {
		return croft.Errorf(kind, "%s", text)
	}
	return errors.New(text)
}

// wait waits until a cluster is settled, and shows its progress.
func (w *waiting) wait(ctx context.Context, cmd *cobra.Command, c *args.Client, have api.Cluster, doing string) (
	api.Cluster, error) {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	shown := newProgress(cmd.ErrOrStderr())
	last, err := c.AwaitCluster(ctx, nameOf(have), shown.update)
	shown.close()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return last, &command.Interrupted{Text: "cluster " + have.Name + ": stopped waiting for it; it " + doing +
			" all the same"}
	case ctx.Err() != nil && (err != nil || !last.Settled):
		return last, croft.Errorf(croft.Unavailable, "cluster %s is %s after %s; it %s all the same", have.Name,
			last.State, wording.Duration(w.timeout), doing)
	}
	return last, err
}

// progress shows the progress of a cluster.
type progress interface {
	update(api.Cluster)
	close()
}

// mostBars is the largest number of hosts that get a line each on a terminal.
const mostBars = 40

func newProgress(stderr io.Writer) progress {
	if out.Draws(stderr) {
		return &bars{w: stderr}
	}
	return &lines{w: stderr}
}

// bars shows a cluster on a terminal, with one line for the cluster and one for each host.
type bars struct {
	w     io.Writer
	all   *out.Bars
	index map[string]int // line of each host
}

// begin draws the lines of the wanted hosts.
func (b *bars) begin(have api.Cluster) {
	names := []string{have.Name}
	b.index = map[string]int{}
	if have.Slaves < mostBars {
		for _, name := range wanted(have) {
			b.index[name] = len(names)
			names = append(names, "  "+name)
		}
	}
	b.all = out.NewBars(b.w, names, "asked")
}

// wanted lists the hosts that a cluster should have.
func wanted(have api.Cluster) []string {
	names := []string{string(cluster.Master)}
	for _, index := range have.Indexes {
		names = append(names, memberName(cluster.Member{Role: cluster.Slave, Index: index}))
	}
	return names
}

func (b *bars) update(have api.Cluster) {
	if b.all == nil {
		b.begin(have)
	}
	b.all.Line(0).Say(words(have))
	for _, m := range have.Members {
		if i, drawn := b.index[memberName(m)]; drawn {
			b.all.Line(i).Say(stage(m))
		}
	}
}

// stage describes in a word how far a host is: asked, booting, set-up, ready.
func stage(m cluster.Member) string {
	switch {
	case m.Error != "":
		return m.Error
	case m.State == cluster.MemberReady:
		return "ready  " + m.Address
	case m.Step != "":
		return m.Step
	case m.State == cluster.MemberGone:
		return "gone"
	}
	return "asked"
}

// words describes the state of a cluster.
func words(have api.Cluster) string {
	text := string(have.State)
	if step := now(have); step != "" {
		text += ": " + step
	}
	if have.Site != "" {
		text += " (" + have.Site + ")"
	}
	return text
}

func (b *bars) close() {
	if b.all == nil {
		return
	}
	for i := range len(b.index) + 1 {
		b.all.Line(i).End()
	}
	b.all.Wait()
}

// lines writes a line for each change.
type lines struct {
	w    io.Writer
	last string
}

func (l *lines) update(have api.Cluster) {
	if text := words(have); text != l.last {
		fmt.Fprintf(l.w, "cluster %s %s\n", have.Name, text)
		l.last = text
	}
}

func (*lines) close() {}
