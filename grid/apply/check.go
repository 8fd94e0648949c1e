package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/unit"
)

// Times of checks.
const (
	defaultCheck = 60 * time.Second
	checkPause   = 500 * time.Millisecond
	oneTry       = 30 * time.Second
)

// asks says whether a check asks anything.
func asks(c unit.Check) bool { return len(c.Command) > 0 || len(c.Here) > 0 || c.URL != "" }

// await asks again and again until the answer is yes. Unavailable with the last answer when the time is over; an error
// of the connection ends it at once. ask returns why not, or "".
func await(ctx context.Context, seconds int, what string, ask func(ctx context.Context) (string, error)) error {
	limit := cmp.Or(time.Duration(seconds)*time.Second, defaultCheck)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := "it was never asked"
	for {
		try, done := context.WithTimeout(ctx, oneTry)
		why, err := ask(try)
		done()
		switch {
		case err != nil && ctx.Err() == nil:
			if _, lost := errors.AsType[*machine.Lost](err); lost && try.Err() == nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			last = err.Error()
		case err == nil && why == "":
			return nil
		case err == nil:
			last = why
		}
		select {
		case <-ctx.Done():
			return croft.Errorf(croft.Unavailable, "%s: not within %s: %s", what, limit, last)
		case <-time.After(checkPause):
		}
	}
}

// ask asks a check once. It returns why not, or "".
func (g *Grid) ask(ctx context.Context, c unit.Check, node machine.Machine) (string, error) {
	switch {
	case len(c.Command) > 0:
		return program(ctx, node, c.Command)
	case len(c.Here) > 0:
		return program(ctx, g.Here, c.Here)
	case c.Query != "":
		return query(ctx, c.URL, c.Query)
	case c.URL != "":
		_, why, err := get(ctx, c.URL)
		return why, err
	}
	return "", nil
}

func program(ctx context.Context, m machine.Machine, argv []string) (string, error) {
	_, err := machine.Output(ctx, m, nil, argv...)
	if exit, ok := errors.AsType[*machine.Exit](err); ok {
		return fmt.Sprintf("%s: %v", argv[0], exit), nil
	}
	return "", err
}

const maxAnswer = 1 << 20

func get(ctx context.Context, address string) (body []byte, why string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "", croft.Errorf(croft.Invalid, "%w", err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return nil, err.Error(), nil
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case response.StatusCode/100 != 2:
		return nil, fmt.Sprintf("%s answers %s", address, response.Status), nil
	case err != nil:
		return nil, fmt.Sprintf("%s: %v", address, err), nil
	}
	return body, "", nil
}

// query asks a Prometheus. One sample that is not 0 is yes.
func query(ctx context.Context, base, text string) (string, error) {
	body, why, err := get(ctx, base+"/api/v1/query?query="+url.QueryEscape(text))
	if why != "" || err != nil {
		return why, err
	}
	var answer struct {
		Data struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Sprintf("%s is no Prometheus: %v", base, err), nil
	}
	type sample [2]any
	var samples []struct{ Value sample }
	if answer.Data.ResultType == "scalar" {
		samples = append(samples, struct{ Value sample }{})
		err = json.Unmarshal(answer.Data.Result, &samples[0].Value)
	} else {
		err = json.Unmarshal(answer.Data.Result, &samples)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("%s answers no samples: %v", text, err), nil
	case len(samples) != 1:
		return fmt.Sprintf("%s gives %d samples, and 1 is wanted", text, len(samples)), nil
	}
	word, _ := samples[0].Value[1].(string)
	if n, err := strconv.ParseFloat(word, 64); err != nil || n == 0 {
		return fmt.Sprintf("%s is %s", text, word), nil
	}
	return "", nil
}

// ready waits until a unit that was started works.
func (g *Grid) ready(ctx context.Context, n *locked, u unit.Unit) error {
	m := n.conn
	r, err := g.Runtimes(u.Runtime, n.Node)
	if err != nil {
		return err
	}
	return await(ctx, u.Ready.Timeout, "wait until "+u.Name()+" is ready", func(ctx context.Context) (string, error) {
		if why, err := r.Ready(ctx, m, u); why != "" || err != nil {
			return why, err
		}
		return g.ask(ctx, u.Ready, m)
	})
}
