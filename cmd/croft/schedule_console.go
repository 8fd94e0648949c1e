package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/internal/plain"
)

func consoleCommand() *cobra.Command {
	var follow, log bool
	cmd := &cobra.Command{
		Use:   "console UUID|NAME",
		Short: "Type at the guest's serial console",
		Long: `console attaches this terminal to the guest's serial console, through the agent of
its host; Ctrl-] leaves. One at a time can be attached.

Where stdin or stdout is no terminal, and with --log or --follow, it prints what the
guest wrote, as schedule logs does.`,
		Args:              args.Count(1, 1),
		ValidArgsFunction: completeInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			live := !follow && !log && out.IsTerminal(cmd.InOrStdin()) && out.IsTerminal(cmd.OutOrStdout())
			return onConsole(cmd, args[0], func(ctx context.Context, a agents, st croft.Status) error {
				if live {
					return attach(ctx, cmd, a, st)
				}
				return console(ctx, cmd.OutOrStdout(), a, st, follow)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print what the guest wrote and go on with what it writes, until interrupted")
	cmd.Flags().BoolVar(&log, "log", false, "print what the guest wrote")
	return cmd
}

func logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:               "logs UUID|NAME",
		Short:             "Print what the guest wrote to its serial console",
		Args:              args.Count(1, 1),
		ValidArgsFunction: completeInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onConsole(cmd, args[0], func(ctx context.Context, a agents, st croft.Status) error {
				return console(ctx, cmd.OutOrStdout(), a, st, follow)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing what the guest writes, until interrupted")
	return cmd
}

// onConsole does something with the console of an instance that is on a host.
func onConsole(cmd *cobra.Command, idOrName string, do func(context.Context, agents, croft.Status) error) error {
	return with(cmd, func(ctx context.Context, c *client) error {
		st, err := c.find(ctx, idOrName)
		if err != nil {
			return err
		}
		if st.Host == nil || st.Host.API == "" {
			return croft.Errorf(croft.NotFound, "instance %s has no console: it is on no host yet", st.Instance.Name)
		}
		return do(ctx, agents{c.store}, st)
	})
}

// consoleAddress is where the console's host answers for it.
func consoleAddress(st croft.Status) string {
	return strings.TrimSuffix(st.Host.API, "/") + "/v1/instances/" + string(st.Instance.ID) + "/console"
}

// console copies the console's log from the instance's host.
func console(ctx context.Context, w io.Writer, a agents, st croft.Status, follow bool) error {
	name := st.Instance.Name
	address := consoleAddress(st)
	if follow {
		address += "?follow=1"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("read the console of %s: %w", name, err)
	}
	request.Header.Set("Authorization", "Bearer "+st.Host.Token)
	client, err := a.client(ctx, *st.Host)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return consoleError(ctx, st, follow, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refusal(st, answer)
	}
	if err := showText(w, answer.Body); err != nil {
		return consoleError(ctx, st, follow, err)
	}
	return nil
}

// showText prints what a guest or a program wrote: to a terminal text and colors alone, so that
// it cannot steer that; to anything else as it is.
func showText(w io.Writer, from io.Reader) error {
	if out.IsTerminal(w) {
		return plain.Copy(w, from)
	}
	_, err := io.Copy(w, from)
	return err
}

// consoleError is nil where somebody who followed the console had seen enough.
func consoleError(ctx context.Context, st croft.Status, follow bool, err error) error {
	if follow && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("read the console of %s: %w", st.Instance.Name, err)
	}
	return croft.Errorf(croft.Unavailable, "read the console of %s: its host %s does not answer at %s (%w); is the agent running there?",
		st.Instance.Name, st.Host.Name, st.Host.API, errors.Unwrap(err))
}

// refusal is what the host's agent said.
func refusal(st croft.Status, answer *http.Response) error {
	return refused(fmt.Sprintf("read the console of %s on host %s", st.Instance.Name, st.Host.Name), answer)
}

// refused is what an agent said to an attempt.
func refused(attempt string, answer *http.Response) error {
	kind := croft.Unavailable
	switch answer.StatusCode {
	case http.StatusNotFound:
		kind = croft.NotFound
	case http.StatusConflict:
		kind = croft.Conflict
	case http.StatusUnauthorized, http.StatusBadRequest:
		kind = croft.Invalid
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, plain.Longest)) // the status is enough where the rest is lost
	words := cmp.Or(said(text), said([]byte(answer.Status)))
	return croft.Errorf(kind, "%s: %s", attempt, words)
}
