package direct

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"croft"
	"croft/compute"
	"croft/internal/plain"
)

// consoles implements cloud.Consoles.
type consoles struct{ agents agents }

// Log implements cloud.Consoles.
func (c consoles) Log(ctx context.Context, st croft.Status, follow bool, show func(io.Reader) error) error {
	query := ""
	if follow {
		query = "?follow=1"
	}
	answer, err := c.ask(ctx, st, "read the console of", http.MethodGet, "/console"+query, follow)
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
	answer, err := c.ask(ctx, st, "look at the screen of", http.MethodGet, "/screen", false)
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
	answer, err := c.ask(ctx, st, "attach to the console of", http.MethodPost, path, false)
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

// maxAnswer limits the answer about a command, in bytes: JSON has base64.
const maxAnswer = 3*compute.MaxGuestOutput + 64<<10

// Run implements cloud.Consoles.
func (c consoles) Run(ctx context.Context, st croft.Status, command compute.GuestCommand,
	same func() error) (compute.GuestResult, error) {
	attempt := "run a command in " + st.Instance.Name
	var none compute.GuestResult
	answer, err := c.ask(ctx, st, "run a command in", http.MethodPost, "/commands", false)
	if answer == nil {
		return none, err
	}
	defer answer.Body.Close()
	guest, ok := answer.Body.(io.ReadWriteCloser)
	if answer.StatusCode != http.StatusSwitchingProtocols || !ok {
		err := refused(attempt, answer)
		if strings.Contains(err.Error(), compute.ErrNoAgent.Error()) {
			err = &compute.GuestError{Err: err}
		}
		return none, err
	}
	if err := same(); err != nil {
		return none, err
	}
	stop := context.AfterFunc(ctx, func() { _ = guest.Close() })
	defer stop()
	var said compute.CommandAnswer
	err = json.NewEncoder(guest).Encode(command)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(guest, maxAnswer)).Decode(&said)
	}
	switch {
	case ctx.Err() != nil:
		return none, fmt.Errorf("%s: %w; whether it runs there is unknown", attempt, ctx.Err())
	case err == nil && said.Error != nil && said.Error.Kind != "":
		err := croft.Errorf(said.Error.Kind, "%s: %s", attempt, plain.Cut(said.Error.Message, plain.Longest))
		if said.Error.Guest {
			err = &compute.GuestError{Err: err}
		}
		return none, err
	case err == nil && said.Result != nil:
		return *said.Result, nil
	}
	return none, croft.Errorf(croft.Unavailable, "%s: its host sent no answer (%w), so whether it runs there is unknown",
		attempt, cmp.Or(err, errNoResult))
}

var errNoResult = errors.New("it is not complete")

// ask requests something of the instance, such as its console, from the agent of the instance's host. The response may
// be nil with or without an error.
func (c consoles) ask(ctx context.Context, st croft.Status, verb, method, path string,
	follow bool) (*http.Response, error) {
	if st.Host == nil || st.Host.API == "" {
		return nil, croft.Errorf(croft.NotFound, "%s %s: it is on no host yet", verb, st.Instance.Name)
	}
	address := strings.TrimSuffix(st.Host.API, "/") + "/v1/instances/" + string(st.Instance.ID) + path
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", verb, st.Instance.Name, err)
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
		return nil, unreached(ctx, st, verb, follow, err)
	}
	return answer, nil
}

// consoleError is unreached for the console.
func consoleError(ctx context.Context, st croft.Status, follow bool, err error) error {
	return unreached(ctx, st, "read the console of", follow, err)
}

// unreached names the host that does not answer. It returns nil if the caller stopped following.
func unreached(ctx context.Context, st croft.Status, verb string, follow bool, err error) error {
	if follow && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", verb, st.Instance.Name, err)
	}
	return croft.Errorf(croft.Unavailable,
		"%s %s: its host %s does not answer at %s (%w); is the agent running there?", verb,
		st.Instance.Name, st.Host.Name, st.Host.API, errors.Unwrap(err))
}

// consoleRefused returns the error in the response of the host's agent.
func consoleRefused(st croft.Status, answer *http.Response) error {
	return refused(fmt.Sprintf("read the console of %s on host %s", st.Instance.Name, st.Host.Name), answer)
}
