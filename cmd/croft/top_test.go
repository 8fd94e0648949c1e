package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/cli/top"
	"croft/internal/testing/pty"
)

func TestTopFollowsTheCloudOnATerminal(t *testing.T) {
	c, term := cloudFor(t, 2), pty.New(t)
	code := make(chan int, 1)
	var errs, more bytes.Buffer
	go func() { code <- Run(t.Context(), c.args("top"), term.File, term.File, &errs) }()
	term.Await(t, "hosts: 1 (1 ready)   instances: 0")
	if c.schedule(t.Context(), &more, &more, small, "--name", "web", "--wait") != 0 {
		t.Fatal(more.String())
	}
	term.Await(t, "instances: 1 (1 running)")
	term.Await(t, "MiB") // the agent has reported its guest's usage
	term.Await(t, "1/2") // and Placement the claims
	term.Resize(t, 10, 30)
	term.Await(t, "q quit  Tab other list  s sort"+top.ClearLine) // cut at 30
	term.Type(t, "\tsr")
	term.Await(t, "STATE\x1b[0m")
	term.Await(t, "STATE↑")
	term.Type(t, "q")
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, &errs)
	}
	screen := term.End()
	if !strings.HasPrefix(screen, top.EnterScreen) || !strings.HasSuffix(screen, top.LeaveScreen) {
		t.Errorf("the terminal is not left as it was: %q ... %q", screen[:20], screen[len(screen)-20:])
	}
}

func TestTopEndsWithItsInterrupt(t *testing.T) {
	c, term := cloudFor(t, 1), pty.New(t)
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var errs bytes.Buffer
	go func() { code <- Run(ctx, c.args("top"), term.File, term.File, &errs) }()
	term.Await(t, "q quit")
	interrupt()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, &errs)
	}
	if screen := term.End(); !strings.HasSuffix(screen, top.LeaveScreen) {
		t.Errorf("the terminal is not left as it was: %q", screen[len(screen)-20:])
	}
}

// A key is handled at once, and a change is shown soon, with any number of hosts.
func TestTopOfAThousandHostsStaysResponsive(t *testing.T) {
	c, term := cloudFor(t, 1), pty.New(t)
	var writes errgroup.Group
	writes.SetLimit(32)
	for i := range 1000 {
		writes.Go(func() error {
			return c.Store.Registry.PutHost(t.Context(), croft.Host{ID: croft.NewHostID(),
				Name: fmt.Sprintf("many%04d", i)})
		})
		writes.Go(func() error {
			_, err := c.Store.Instances.Create(t.Context(), croft.Instance{ID: croft.NewInstanceID(),
				Project: croft.DefaultProject, Name: fmt.Sprintf("vm%04d", i), Created: time.Now()})
			return err
		})
	}
	if err := writes.Wait(); err != nil {
		t.Fatal(err)
	}
	code := make(chan int, 1)
	var errs bytes.Buffer
	go func() { code <- Run(t.Context(), c.args("top"), term.File, term.File, &errs) }()
	term.Await(t, "hosts: 1001 (1 ready, 1000 silent)   instances: 1000")
	const soon = time.Minute // a busy machine is slow; work that grows with the square of the instances takes longer
	began := time.Now()
	term.Type(t, "G")
	term.Await(t, "many0999")
	if took := time.Since(began); took > soon {
		t.Errorf("a key is answered after %s", took)
	}
	began = time.Now()
	if err := c.Store.Registry.PutHost(t.Context(), croft.Host{ID: croft.NewHostID(), Name: "zzz"}); err != nil {
		t.Fatal(err)
	}
	term.Await(t, "hosts: 1002")
	if took := time.Since(began); took > soon {
		t.Errorf("a change is shown after %s", took)
	}
	term.Type(t, "q")
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, &errs)
	}
}

// On a terminal that cannot draw, the cloud is printed once.
func TestTopOnADumbTerminal(t *testing.T) {
	c, term := cloudFor(t, 1), pty.New(t)
	t.Setenv("TERM", "dumb")
	var errs bytes.Buffer
	if code := Run(t.Context(), c.args("top"), term.File, term.File, &errs); code != 0 {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	if screen := term.End(); strings.Contains(screen, "\x1b") || strings.Count(screen, "hosts: 1 (1 ready)") != 1 {
		t.Errorf("the screen is:\n%q", screen)
	}
}

func TestTopForPrograms(t *testing.T) {
	c := cloudFor(t, 1)
	var out, errs bytes.Buffer
	if c.schedule(t.Context(), &out, &errs, small, "--name", "web", "--wait") != 0 {
		t.Fatal(errs.String())
	}
	out.Reset()
	if code := Run(t.Context(), c.args("top", "-o", "json"), nil, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	var v top.View
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if len(v.Hosts) != 1 || len(v.Instances) != 1 || v.Hosts[0].Claimed[croft.VCPU] != 1 || v.Hosts[0].Instances != 1 {
		t.Fatalf("got %+v", v)
	}
	web := v.Instances[0]
	if web.Name != "web" || web.State != "running" || web.Host != "host1" || web.CPU == nil ||
		*web.Memory <= 0 || *web.Memory > 256<<20 {
		t.Errorf("got %+v", web)
	}
}
