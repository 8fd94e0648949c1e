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
	"strings"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/unit"
	"croft/internal/plain"
	"croft/internal/wording"
)

// Times of checks: the default timeout, the pause between two attempts, and the limit of one attempt.
const (
	defaultCheck = 60 * time.Second
	checkPause   = 500 * time.Millisecond
	oneTry       = 30 * time.Second
)

// asks reports whether a check is configured.
func asks(c unit.Check) bool { return len(c.Command) > 0 || len(c.Here) > 0 || c.URL != "" }

// final wraps an error after which further attempts are useless.
type final struct{ error }

// Unwrap returns the wrapped error.
func (f final) Unwrap() error { return f.error }

// await calls ask repeatedly until the check succeeds. ask returns the reason why it did not, or "". When the time is
// over, await returns Unavailable with the last reason. A final error or a lost connection ends it at once.
func await(ctx context.Context, seconds int, what string, ask func(ctx context.Context) (string, error)) error {
	limit := cmp.Or(time.Duration(seconds)*time.Second, defaultCheck)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last := ""
	for {
		try, done := context.WithTimeout(ctx, oneTry)
		begun := time.Now()
		why, err := ask(try)
		hung := try.Err() != nil
		done()
		switch {
		case err != nil && hung:
			if took := time.Since(begun).Truncate(time.Second); last == "" || took >= oneTry {
				last = fmt.Sprintf("the check had not ended after %s", wording.Duration(took))
			}
		case err != nil && ctx.Err() == nil:
			if end, is := errors.AsType[final](err); is {
				return fmt.Errorf("%s: %w", what, end.error)
			}
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
			return croft.Errorf(croft.Unavailable, "%s: not within %s: %s", what, wording.Duration(limit), last)
		case <-time.After(checkPause):
		}
	}
}

// ask runs a check once. It returns the reason why the check did not succeed, or "".
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

// query queries a Prometheus server. The check succeeds if the result is one sample with a value other than 0.
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

// endings is how many consecutive attempts must find a unit not running before await gives up. The runtime may restart
// the unit in between.
const endings = 4

// ready waits until a started unit is ready. Its error contains the unit's last log lines.
func (g *Grid) ready(ctx context.Context, n *locked, u unit.Unit) error {
	m := n.conn
	r, err := g.Runtimes(u.Runtime, n.Node)
	if err != nil {
		return err
	}
	ended := 0
	err = await(ctx, u.Ready.Timeout, "wait until "+u.Name()+" is ready", func(ctx context.Context) (string, error) {
		why, err := r.Ready(ctx, m, u)
		if errors.Is(err, croft.NotFound) {
			if ended++; ended == endings {
				return "", final{croft.Errorf(croft.Unavailable, "%w", err)}
			}
			return err.Error(), nil
		}
		ended = 0
		if why != "" || err != nil {
			return why, err
		}
		return g.ask(ctx, u.Ready, m)
	})
	if err == nil {
		return nil
	}
	if _, lost := errors.AsType[*machine.Lost](err); lost {
		return err
	}
	if said := lastLines(ctx, r, m, u); said != "" {
		err = fmt.Errorf("%w; its last output: %s", err, said)
	}
	return err
}

// Limits of the log that is shown of a unit that does not become ready.
const (
	shownLines = 5
	shownBytes = 1 << 10
	logsTime   = 10 * time.Second
)

// lastLines returns a unit's last log lines as one line, or "" if they cannot be read.
func lastLines(ctx context.Context, r Runtime, m machine.Machine, u unit.Unit) string {
	ctx, cancel := context.WithTimeout(ctx, logsTime)
	defer cancel()
	said := &tail{max: shownBytes}
	if err := r.Logs(ctx, m, u, shownLines, said); err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(said.kept)), "\n")
	for i, line := range lines {
		lines[i] = plain.Line(strings.TrimSpace(line))
	}
	return strings.Join(lines, " | ")
}

// tail keeps the last max bytes written to it.
type tail struct {
	max  int
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.max; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}
