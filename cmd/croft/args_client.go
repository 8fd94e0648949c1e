package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	cloudapi "croft/cloud"
	"croft/cloud/direct"
	"croft/internal/nearest"
	"croft/internal/span"
	"croft/internal/traces"
)

// answerTimeout is how long the cloud may take for what it answers at once when all is well. It is long enough for
// etcd to elect another leader.
const answerTimeout = 30 * time.Second

// client is the connection of one command to its cloud.
type client struct {
	cloudapi.Cloud
	Settings direct.Settings
	Project  croft.Project // empty: all of them
}

// dial connects to the cloud that the settings name. Close the client.
func dial(ctx context.Context, s direct.Settings) (*client, error) {
	c, err := direct.Dial(ctx, s)
	if err != nil {
		return nil, err
	}
	return &client{Cloud: c, Settings: s, Project: croft.Project(s.Project)}, nil
}

// with reads the settings, connects, calls do and closes the connection.
func with(cmd *cobra.Command, do func(context.Context, *client) error) error {
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	return withSettings(cmd.Context(), s, do)
}

// withSettings is with for settings that are read already.
func withSettings(ctx context.Context, s direct.Settings, do func(context.Context, *client) error) error {
	c, err := dial(ctx, s)
	if err != nil {
		return err
	}
	err = do(ctx, c)
	if closed := c.Close(); err == nil {
		err = closed
	}
	return err
}

// find reads an instance of the project.
func (c *client) find(ctx context.Context, idOrName string) (croft.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	st, err := c.Find(ctx, c.Project, idOrName)
	return st, c.nearestInstance(ctx, idOrName, err)
}

// nearestInstance adds to an error that is NotFound the name of an instance that may have been meant.
func (c *client) nearestInstance(ctx context.Context, idOrName string, err error) error {
	if !errors.Is(err, croft.NotFound) {
		return err
	}
	if _, isID := croft.ParseInstanceID(idOrName); isID == nil {
		return err
	}
	all, listed := c.List(ctx, c.Project)
	if listed != nil {
		return err // which says enough
	}
	var known []string
	for _, st := range all {
		known = append(known, st.Instance.Name)
	}
	if hint := nearest.Hint(idOrName, known); hint != "" {
		return croft.Errorf(croft.NotFound, "%w%s", err, hint)
	}
	return err
}

// traced calls do within a span, where the settings say who records spans. The span belongs to the trace that
// TRACEPARENT names, as CI jobs set it, or begins one.
func (c *client) traced(ctx context.Context, name string, do func(context.Context) error) error {
	provider, flush, err := c.Settings.Traces.Start(ctx, "croft-schedule", traces.CommandFlush, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer flush()
	ctx, _ = span.Join(ctx, os.Getenv("TRACEPARENT"))
	ctx, end := span.Begin(ctx, provider, name)
	err = do(ctx)
	end(err)
	return err
}
