package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
)

func listCommand() *cobra.Command {
	var watch, all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the instances",
		Args:  count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, func(ctx context.Context, c *client) error {
				if all {
					c.project = ""
				}
				if watch {
					return c.watchList(ctx, cmd)
				}
				text, err := c.renderList(ctx, cmd, false)
				if err == nil {
					_, err = fmt.Fprint(cmd.OutOrStdout(), text)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print the list again whenever something changes, until interrupted")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list the instances of all projects")
	return cmd
}

// watchList prints the list now and after every change that shows in it. On a
// terminal it stays in one place; as JSON each list is one line.
func (c *client) watchList(ctx context.Context, cmd *cobra.Command) error {
	ctx, cancel := context.WithCancel(ctx)
	wake, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- c.View.WatchInstances(ctx, func() {
			select {
			case wake <- struct{}{}:
			default: // one is waiting already
			}
		})
	}()
	err := c.printLists(ctx, cmd, wake)
	cancel()
	if watching := <-ended; err == nil && !errors.Is(watching, context.Canceled) {
		err = watching
	}
	return err
}

// printLists ends without an error when ctx does: that is how watching ends.
func (c *client) printLists(ctx context.Context, cmd *cobra.Command, wake <-chan struct{}) error {
	out := cmd.OutOrStdout()
	last := ""
	for {
		text, err := c.renderList(ctx, cmd, true)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && text != last {
			switch {
			case isTerminal(out):
				fmt.Fprint(out, "\x1b[H\x1b[2J", text)
			case last != "" && c.settings.Output != formatJSON:
				fmt.Fprint(out, "\n", text)
			default:
				fmt.Fprint(out, text)
			}
			last = text
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// renderList is the list as it is printed.
func (c *client) renderList(ctx context.Context, cmd *cobra.Command, watching bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	all, err := c.View.List(ctx, c.project)
	if err != nil {
		return "", err
	}
	if all == nil {
		all = []croft.Status{} // an empty list, not null
	}
	switch c.settings.Output {
	case formatJSON, formatYAML:
		return renderData(c.settings.Output, allPrintable(all), watching)
	}
	t := listTable(all, c.project == "")
	t.color = isColored(cmd.OutOrStdout())
	return t.String(), nil
}

func renderData(format string, all []croft.Status, line bool) (string, error) {
	if line && format == formatJSON {
		text, err := json.Marshal(all)
		return string(text) + "\n", err
	}
	var b strings.Builder
	err := printData(&b, format, all)
	if line && format == formatYAML {
		return "---\n" + b.String(), err
	}
	return b.String(), err
}

func listTable(all []croft.Status, projects bool) *table {
	t := &table{}
	head := []string{"NAME", "STATE", "ADDRESS", "HOST", "RESOURCES", "CREATED", "INSTANCE"}
	if projects {
		head = append([]string{"PROJECT"}, head...)
	}
	t.head(head...)
	for _, st := range all {
		inst, host := st.Instance, "-"
		if st.Host != nil {
			host = st.Host.Name
		}
		addr := address(st)
		if addr == "" {
			addr = "-"
		}
		row := []cell{
			{text: inst.Name}, state(st), {text: addr}, {text: host}, {text: inst.Spec.Resources.String()},
			{text: inst.Created.Local().Format(time.DateTime)}, {text: string(inst.ID)},
		}
		if projects {
			row = append([]cell{{text: string(inst.Project)}}, row...)
		}
		t.row(row...)
	}
	return t
}
