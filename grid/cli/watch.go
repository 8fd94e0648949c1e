package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/ssh"
	"croft/grid/watch"
	"croft/grid/watch/fencer"
	"croft/grid/watch/probe"
	"croft/grid/watch/upstream"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
)

func watchCommand(o *options) *cobra.Command {
	var store, name string
	var once bool
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Move what ran on nodes that are lost",
		Long: `watch judges nodes by their beats (see croft grid beat). A node that missed three beats is
suspect. It is dead when it was silent for the grace and answers no dial, neither from here
nor from another node. Then watch writes state: out into its file, places, commits, pushes,
and applies. Nothing is done when more than a third of the nodes, or all of a site that has
several, are lost: this machine may be what is cut off. A node that comes back stays out until
croft grid node up NODE.

A slot of an exclusive job leaves a dead node only when the fence says that the node is off,
or when the lease of the node must have run out (croft grid beat --script).

The cluster's directory says where to push: to the upstream of its git branch. watch works
in a clone of its own and leaves the directory alone. Several may watch on several machines:
one leads, the others stand by.

In cluster.yaml, in seconds, with these defaults; fence names hardpoints/fence/NAME.yaml:

  watch: {every: 10, grace: 60, term: 120, fence: ipmi}

--once looks once, for cron and alerts, and ends with 0; 2 if something is held back and
needs a person; 3 if another watch runs with this directory of beats; 4 if a change was pushed and not applied everywhere; 5 if a job would have
too few nodes, so nothing was changed. Runs must be less than the term apart.`,
		Example: `  croft grid watch -C /srv/cluster
  croft grid watch -C /srv/cluster --once -o json`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := o.data()
			if err != nil {
				return err
			}
			if data && !once {
				return croft.Errorf(croft.Invalid,
					"--output is for --once: a watch that goes on says what it does on its "+
						"standard error")
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			dialer := ssh.New(dialing(s, ""))
			defer dialer.Close()
			level := slog.LevelInfo
			if once {
				level = slog.LevelError // the findings are printed anyway
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			w, err := o.watch(cmd, store, name, dialer, log)
			if err != nil {
				return err
			}
			if !once {
				return w.Run(cmd.Context())
			}
			r, err := w.Once(cmd.Context())
			return o.watched(cmd, r, err, data)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&once, "once", false, "look once, print what was found, and end")
	f.StringVar(&name, "name", "", "this controller's `name`, which others are told (the machine's)")
	storeFlag(cmd, &store)
	o.formats(cmd)
	return cmd
}

func (o *options) watch(cmd *cobra.Command, store, name string, dialer *ssh.Dialer,
	log *slog.Logger) (*watch.Watch, error) {
	clock, err := watch.SystemClock()
	if err != nil {
		return nil, err
	}
	settings, s, err := openStore(o.dir, store, clock)
	if err != nil {
		return nil, err
	}
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "find this machine's name: %w; give one with --name", err)
		}
		name, _, _ = strings.Cut(strings.ToLower(host), ".")
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, fmt.Errorf("find the cluster's directory: %w", err)
	}
	repo, err := upstream.Open(cmd.Context(), dir, s.Path("clone"), name)
	if err != nil {
		return nil, err
	}
	c := watch.Config{Name: name, Store: s, Rules: settings.Rules, Term: settings.Term, Repository: repo,
		Prober: &probe.Prober{Dialer: dialer}, Applier: watchApplier{cmd}, Log: log}
	if settings.Fence != "" {
		if c.Fence, err = fencer.Open(os.DirFS(dir), settings.Fence); err != nil {
			return nil, err
		}
	}
	return watch.New(c)
}

// watched prints the findings of a round.
func (o *options) watched(cmd *cobra.Command, r watch.Report, err error, data bool) error {
	if r.Revision != "" {
		if printed := o.printRound(cmd, r, data); printed != nil {
			return errors.Join(err, printed)
		}
	}
	unapplied, _ := errors.AsType[*watch.Unapplied](err)
	switch {
	case unapplied != nil:
		return exit(ExitPartly, err)
	case errors.Is(err, croft.NoCapacity):
		return exit(ExitUnsatisfiable, err)
	case errors.Is(err, croft.Conflict):
		return exit(ExitRefused, err)
	case errors.Is(err, context.Canceled):
		return &command.Interrupted{Text: "the watch was interrupted"}
	case err != nil:
		return err
	case len(r.Held) > 0:
		return exit(ExitPending, nil)
	}
	return nil
}

func (o *options) printRound(cmd *cobra.Command, r watch.Report, data bool) error {
	if data {
		return out.PrintData(cmd.OutOrStdout(), o.output, r)
	}
	var t out.Table
	t.Head("node", "state", "status", "silent", "reason")
	for _, v := range r.Verdicts {
		silent := ""
		if v.Silent >= time.Second {
			silent = wording.Duration(v.Silent)
		}
		t.Texts(v.Node, v.State, string(v.Status), out.OrDash(silent), out.OrDash(command.Names.Replace(v.Reason)))
	}
	if err := t.Print(cmd.OutOrStdout()); err != nil {
		return err
	}
	if !r.Leads {
		say(cmd, "%s leads; this controller stands by", cmp.Or(r.Leader, "another controller"))
	}
	for _, a := range r.Actions {
		say(cmd, "%s is %s: %s", a.Node, a.State, a.Reason)
	}
	for _, held := range r.Held {
		say(cmd, "%s", held)
	}
	if len(r.Actions) > 0 {
		say(cmd, "pushed %s", r.Revision)
	}
	return nil
}
