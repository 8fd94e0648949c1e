package direct

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"croft"
	"croft/compute"
)

// consoles implements cloud.Consoles.
type consoles struct{ agents agents }

// Log implements cloud.Consoles.
func (c consoles) Log(ctx context.Context, st croft.Status, follow bool, show func(io.Reader) error) error {
	query := ""
	if follow {
		query = "?follow=1"
	}
	answer, err := c.ask(ctx, st, "read", http.MethodGet, "/console"+query, follow)
	if answer == nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return consoleRefused(st, answer)
	}
	if err := show(answer.Body); err != nil {
		return consoleError(ctx, st, follow, err)
	}
	return nil
}

// Screen implements cloud.Consoles.
func (c consoles) Screen(ctx context.Context, st croft.Status, show func(io.Reader) error) error {
	answer, err := c.ask(ctx, st, "look at", http.MethodGet, "/screen", false)
	if answer == nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return consoleRefused(st, answer)
	}
	return show(answer.Body)
}

// Attach implements cloud.Consoles.
func (c consoles) Attach(ctx context.Context, st croft.Status, takeOver bool,
	use func(io.ReadWriteCloser) error) error {
	return c.attach(ctx, st, "/console", takeOver, use)
}

// AttachScreen implements cloud.Consoles.
func (c consoles) AttachScreen(ctx context.Context, st croft.Status, takeOver bool,
	use func(io.ReadWriteCloser) error) error {
	return c.attach(ctx, st, "/screen", takeOver, use)
}

func (c consoles) attach(ctx context.Context, st croft.Status, path string, takeOver bool,
	use func(io.ReadWriteCloser) error) error {
	if takeOver {
		path += "?takeover=1"
	}
	answer, err := c.ask(ctx, st, "attach to", http.MethodPost, path, false)
	if answer == nil {
		return err
	}
	defer answer.Body.Close()
	guest, ok := answer.Body.(io.ReadWriteCloser)
	if answer.StatusCode != http.StatusSwitchingProtocols || !ok {
		return consoleRefused(st, answer)
	}
	if err := use(guest); err != nil {
		return consoleError(ctx, st, false, err)
	}
	return nil
}

// ask requests the console or the screen from the agent of the instance's host. The response may be nil with or without
// an error.
func (c consoles) ask(ctx context.Context, st croft.Status, verb, method, path string,
	follow bool) (*http.Response, error) {
	if st.Host == nil || st.Host.API == "" {
		return nil, croft.Errorf(croft.NotFound, "instance %s has no console: it is on no host yet", st.Instance.Name)
	}
	address := strings.TrimSuffix(st.Host.API, "/") + "/v1/instances/" + string(st.Instance.ID) + path
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%s the console of %s: %w", verb, st.Instance.Name, err)
	}
	request.Header.Set("Authorization", "Bearer "+st.Host.Token)
	if method == http.MethodPost {
		request.Header.Set("Connection", "Upgrade")
		request.Header.Set("Upgrade", compute.ConsoleProtocol)
	}
	client, err := c.agents.client(ctx, *st.Host)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, consoleError(ctx, st, follow, err)
	}
	return answer, nil
}

// consoleError names the host that does not answer. It returns nil if the caller stopped following.
func consoleError(ctx context.Context, st croft.Status, follow bool, err error) error {
	if follow && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("read the console of %s: %w", st.Instance.Name, err)
	}
	return croft.Errorf(croft.Unavailable,
		"read the console of %s: its host %s does not answer at %s (%w); is the agent running there?",
		st.Instance.Name, st.Host.Name, st.Host.API, errors.Unwrap(err))
}

// consoleRefused returns the error in the response of the host's agent.
func consoleRefused(st croft.Status, answer *http.Response) error {
	return refused(fmt.Sprintf("read the console of %s on host %s", st.Instance.Name, st.Host.Name), answer)
}
