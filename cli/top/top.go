// Package top has the command croft top, which shows hosts and instances as they change.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/out"
	"croft/internal/wording"
)

// Command returns the command croft top.
func Command() *cobra.Command {
	var once, all bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch hosts and instances as they change, and what they use",
		Long: `top shows the hosts and the instances as they change: their states come from an etcd
watch, claims from Placement, and the current usage of guests from the agents of the
hosts on the screen.

  Tab       give the other list the greater part of the screen
  s, r      sort it by the next column, turn its order around
  ↑ ↓ PgUp PgDn Home End    go through it
  q         quit

Without a terminal, with --once, or with -o json or yaml, it prints the current state of
the cloud and ends. CPU is what guests use of one CPU: 200% is two CPUs.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				if all {
					c.Project = ""
				}
				return top(ctx, cmd, c, once)
			})
		},
	}
	args.AddCloudFlags(cmd.Flags())
	cmd.Flags().BoolVar(&once, "once", false, "print the current state of the cloud and end")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show the instances of all projects")
	return cmd
}

// top shows the cloud until the user quits, or once.
func top(ctx context.Context, cmd *cobra.Command, c *args.Client, once bool) error {
	ctx, cancel := context.WithCancel(ctx)
	w := newWatch(c)
	var work sync.WaitGroup
	work.Go(func() { w.run(ctx) })
	defer func() { cancel(); work.Wait() }()
	if err := w.await(ctx); err != nil {
		return err
	}
	format := c.Settings.Output
	in, stdout := cmd.InOrStdin(), cmd.OutOrStdout()
	if once || out.IsData(format) || !out.IsTerminal(in) || !out.IsTerminal(stdout) {
		return printView(stdout, format, w.complete(ctx))
	}
	return w.show(ctx, in, stdout)
}

// printView prints the current state of the cloud.
func printView(stdout io.Writer, format string, v View) error {
	var err error
	if out.IsData(format) {
		err = out.PrintData(stdout, format, v)
	} else {
		screen := screen{color: out.IsColored(stdout)}
		_, err = fmt.Fprint(stdout, screen.whole(v))
	}
	if v.Trouble != "" && err == nil {
		err = croft.Errorf(croft.Unavailable, "%s", v.Trouble)
	}
	return err
}

// await returns when there is data to show. Unavailable: no data came in time.
func (w *watch) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	for !w.mirror.Ready() {
		select {
		case <-w.changed:
		case err := <-w.refused:
			return err
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return croft.Errorf(croft.Unavailable,
					"hosts and instances could not be read within %s; see etcd.endpoints in the settings",
					wording.Duration(args.AnswerTimeout))
			}
			return ctx.Err()
		}
	}
	return nil
}
