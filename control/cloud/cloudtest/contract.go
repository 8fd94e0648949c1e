// Package cloudtest is the contract of the API: the behaviour that commands rely on, over the network and with a server
// in their own process.
package cloudtest

import (
	"bytes"
	"context"
	"errors"
	"image/png"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// Run checks the client of an operator on a host of the cloud. start creates a new cloud that ends with its test.
func Run(t *testing.T, start func(t *testing.T) Fixture) {
	RunShared(t, start)
	runAll(t, start, []check{{"a snapshot has as many bytes as it says", (*suite).snapshot}})
}

// RunShared checks the part of the contract that a client over the network fulfils too, for a caller who may see
// everything.
func RunShared(t *testing.T, start func(t *testing.T) Fixture) {
	runAll(t, start, []check{
		{"an instance is asked for, seen, waited for and destroyed", (*suite).life},
		{"a claim is held, used or released", (*suite).holds},
		{"an instance is stopped, started, rebooted and rebuilt", (*suite).changes},
		{"what is not there is not found, and what is taken is a conflict", (*suite).refusals},
		{"what fits nowhere is explained, and leaves nothing", (*suite).explanations},
		{"many requests run at once", (*suite).many},
		{"instances of a project are listed in pages", (*suite).pages},
		{"changes are watched until the context ends", (*suite).watching},
		{"a console is read, followed and attached to", (*suite).consoles},
		{"a screen is looked at and attached to", (*suite).screens},
		{"commands run in guests that have an agent", (*suite).commands},
		{"the feed tells which instances change, and in which project", (*suite).feed},
		{"hosts are listed with their instances", (*suite).hosts},
		{"hosts are put together in aggregates", aggregatesAreKept},
		{"policies are kept, choose hosts and are explained", policiesAreKept},
		{"clusters are asked for, joined and given up", clustersAreAskedFor},
		{"hosts are drained, enabled and kept from being forgotten", (*suite).maintenance},
		{"a silent host says so, and can be forgotten", (*suite).silence},
		{"an audit of a cloud that is well finds nothing", (*suite).audit},
		{"claims and usages of a host are listed", (*suite).load},
		{"tokens are made, listed without their secrets and revoked", (*suite).tokens},
		{"classes, traits and inventories are listed, and traits are made and removed", catalogueIsListed},
		{"users are listed with their roles", usersAreListed},
		{"what is counted is compared with the records", countsAreCompared},
		{"keys are kept by project and name", (*suite).keys},
		{"a ticket is opened once, waited for, renewed and closed", ticketsAreKept},
		{"pools and their resources are listed", poolsAreListed},
		{"a host fetches an image, or says why not", (*suite).images},
		{"properties and tags are kept until their thing ends", (*suite).objects},
		{"definitions govern properties", (*suite).definitions},
		{"partitions are exported, imported, shown and forgotten", (*suite).partitions},
		{"peers are added and removed, with what their projects are here", peersAreKept},
		{"access tokens are made, listed without their secrets and revoked", (*suite).access},
		{"access tokens that cannot be are refused", (*suite).noAccess},
		{"what projects used is recorded by day", usageIsRecorded},
		{"the action log has what was done, and what was refused", (*suite).actions},
	})
}

func runAll(t *testing.T, start func(t *testing.T) Fixture, checks []check) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			f := start(t)
			c.test(&suite{t, f, ctx})
		})
	}
}

func (s *suite) pages() {
	for name, project := range map[string]croft.Project{"c": "", "a": "", "b": "other"} {
		r := wanted(name)
		r.Project = project
		_, err := s.Client.CreateInstance(s.ctx, r)
		s.must(err)
	}
	for _, c := range []struct {
		project croft.Project
		after   string
		limit   int
		want    string
		more    bool
	}{
		{"default", "", 5, "ac", false}, {"default", "", 2, "ac", false}, {"default", "", 1, "a", true},
		{"default", "a", 1, "c", false}, {"default", "b", 5, "c", false}, {"default", "c", 5, "", false},
		{"other", "", 5, "b", false}, {"other", "b", 5, "", false}, {"another", "", 5, "", false},
	} {
		page, err := s.Client.ListInstances(s.ctx, api.InstanceFilter{InProject: api.InProject{Project: c.project},
			Page: api.Page{After: c.after, Limit: c.limit}})
		names := ""
		for _, i := range page.Instances {
			names += i.Name
			one, err := s.find(c.project, i.Name)
			if err != nil || one.ID != i.ID || i.Host != s.Host || i.HostAlive == nil || !*i.HostAlive {
				s.Errorf("%s is %+v, %v", i.Name, i, err)
			}
		}
		if err != nil || names != c.want || page.Next != "" != c.more {
			s.Errorf("%+v: %s, more at %q, %v", c, names, page.Next, err)
		}
	}
}

func (s *suite) life() {
	made, err := s.request("web")
	s.must(err)
	var seen []string
	s.must(s.Client.AwaitInstance(s.ctx, made, schedule.Running, func(now api.Instance) {
		seen = append(seen, now.State)
	}))
	if !slices.Contains(seen, string(croft.StateRunning)) {
		s.Errorf("progress was %q, without its end", seen)
	}
	for _, name := range []string{"web", string(made.ID)} {
		found, err := s.find(croft.DefaultProject, name)
		if err != nil || found.ID != made.ID || found.Host != s.Host {
			s.Errorf("%s: got %+v, %v", name, found, err)
		}
	}
	for project, want := range map[croft.Project]int{croft.DefaultProject: 1, "": 1, "another": 0} {
		if all, err := s.list(project); err != nil || len(all) != want {
			s.Errorf("project %q has %d instances, %v; want %d", project, len(all), err, want)
		}
	}
	for _, life := range []int64{3600, 0} {
		kept, err := s.Client.ChangeInstance(s.ctx, api.InstancePatch{InstanceNamed: named("web").InstanceNamed,
			Expires: &life})
		if err != nil || kept.ID != made.ID || kept.Expires.IsZero() != (life == 0) {
			s.Errorf("kept for %d s: it expires at %s, %v", life, kept.Expires, err)
		}
	}
	_, err = s.destroy("web")
	s.must(err)
	s.must(s.await(made, schedule.Gone))
	_, err = s.find(croft.DefaultProject, "web")
	s.is(err, croft.NotFound, "an instance that is gone")
}

func (s *suite) stop(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
	return s.Client.StopInstance(ctx, api.InstanceStop{InstanceChange: in})
}

func (s *suite) changes() {
	was := s.running("web")
	for _, step := range []struct {
		what string
		do   func(context.Context, api.InstanceChange) (api.Instance, error)
		goal schedule.Goal
	}{
		{"stop", s.stop, schedule.Stopped},
		{"start", s.Client.StartInstance, schedule.Running},
		{"reboot", s.Client.RebootInstance, schedule.Running},
		{"rebuild", s.Client.RebuildInstance, schedule.Running},
	} {
		now, err := step.do(s.ctx, named("web"))
		if err != nil {
			s.Fatalf("%s: %v", step.what, err)
		}
		if now.ID != was.ID || now.Generation <= was.Generation {
			s.Errorf("%s: generation %d of %s after %d", step.what, now.Generation, now.ID, was.Generation)
		}
		if err := s.await(now, step.goal); err != nil {
			s.Fatalf("%s: %v", step.what, err)
		}
		was = now
	}
}

func (s *suite) refusals() {
	_, err := s.request("web")
	s.must(err)
	_, err = s.request("web")
	s.is(err, croft.Conflict, "a name that is taken")
	_, err = s.find("another", "web")
	s.is(err, croft.NotFound, "an instance of another project")
	_, err = s.find(croft.DefaultProject, "")
	s.is(err, croft.Invalid, "an instance without a name")
	for what, do := range map[string]func(context.Context, api.InstanceChange) (api.Instance, error){
		"stop": s.stop, "start": s.Client.StartInstance, "reboot": s.Client.RebootInstance,
		"rebuild": s.Client.RebuildInstance, "recreate": s.Client.RecreateInstance,
		"destroy": func(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
			return s.Client.DestroyInstance(ctx, api.InstanceRemoval{InstanceChange: in})
		},
		"resize": func(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
			return s.Client.ResizeInstance(ctx, api.InstanceSize{InstanceChange: in,
				Resources: croft.Resources{croft.VCPU: 2}})
		},
		"keep": func(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
			return s.Client.KeepInstance(ctx, api.Expiry{InstanceNamed: in.InstanceNamed, Expires: 3600})
		},
	} {
		_, err := do(s.ctx, named("nobody"))
		s.is(err, croft.NotFound, what)
	}
}

func (s *suite) explanations() {
	big := wanted("big")
	big.Query = "VCPU:100,MEMORY_MB:256,DISK_GB:1"
	_, err := s.Client.CreateInstance(s.ctx, big)
	s.is(err, croft.NoCapacity, "a request that no host has room for")
	if why, ok := errors.AsType[*schedule.Explanation](err); !ok || len(why.Rows) == 0 {
		s.Errorf("it is not explained: %v", err)
	}
	why, err := s.Client.ExplainRequest(s.ctx, api.Candidates{InstanceRequest: wanted("").InstanceRequest})
	if err != nil || len(why.Fits) != 1 || why.Fits[0].Host != s.Host {
		s.Errorf("a request that fits: %+v, %v", why, err)
	}
	if all, err := s.list(""); err != nil || len(all) != 0 {
		s.Errorf("%d instances are left, %v", len(all), err)
	}
}

func (s *suite) many() {
	defer s.Client.Prepare(s.ctx)()
	errs := make([]error, Room+1)
	var work sync.WaitGroup
	for i := range errs {
		work.Go(func() { _, errs[i] = s.request("") })
	}
	work.Wait()
	refused := 0
	for _, err := range errs {
		if err != nil {
			s.is(err, croft.NoCapacity, "a request too many")
			refused++
		}
	}
	if all, err := s.list(""); err != nil || len(all) != Room || refused != 1 {
		s.Errorf("%d instances, %d refused, %v; want %d and 1", len(all), refused, err, Room)
	}
}

func (s *suite) watching() {
	ctx, cancel := context.WithCancel(s.ctx)
	seen := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Client.WatchInstances(ctx, func() {
			if _, err := s.find(croft.DefaultProject, "web"); err == nil {
				select {
				case seen <- struct{}{}:
				default: // a wake-up is already waiting
				}
			}
		})
	}()
	_, err := s.request("web")
	s.must(err)
	select {
	case <-seen:
	case <-s.ctx.Done():
		s.Error("a new instance is not noticed")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		s.Errorf("watching ended with %v", err)
	}
}

func (s *suite) screens() {
	in := named("web").InstanceNamed
	s.is(s.Client.ReadScreen(s.ctx, in, nil), croft.NotFound, "the screen of no instance")
	s.running("web")
	s.is(s.Client.ReadScreen(s.ctx, in, nil), croft.Conflict, "the screen of a machine without one")
	s.is(s.Client.AttachScreen(s.ctx, api.Screen{InstanceNamed: in}, nil), croft.Conflict, "likewise, attached to")
	request := wanted("desk")
	request.Machine.Display = croft.DisplayVNC
	made, err := s.Client.CreateInstance(s.ctx, request)
	s.must(err)
	s.must(s.await(made, schedule.Running))
	in = named("desk").InstanceNamed
	s.must(s.Client.ReadScreen(s.ctx, in, func(from io.Reader) error {
		_, err := png.Decode(from)
		return err
	}))
	screen := api.Screen{InstanceNamed: in}
	s.must(s.Client.AttachScreen(s.ctx, screen, func(guest io.ReadWriteCloser) error {
		s.is(s.Client.AttachScreen(s.ctx, screen, nil), croft.Conflict, "a screen that somebody has")
		return readUntil(guest, "RFB 003.008")
	}))
}

// commands: the image of the guest has an agent.
func (s *suite) commands() {
	in := api.GuestCommand{InstanceNamed: named("web").InstanceNamed, Command: []string{"echo", "a", "b"}}
	run := func(words ...string) (api.CommandResult, error) {
		in.Command = words
		return s.Client.RunCommand(s.ctx, in)
	}
	_, err := run("echo")
	s.is(err, croft.NotFound, "a command in no instance")
	s.running("web")
	_, err = run("echo")
	s.is(err, croft.Unavailable, "a command in a guest without an agent")
	request := wanted("agent")
	request.Image = "/images/agent"
	made, err := s.Client.CreateInstance(s.ctx, request)
	s.must(err)
	s.must(s.await(made, schedule.Running))
	in.InstanceNamed = named("agent").InstanceNamed
	for _, c := range []struct {
		words       []string
		exit        int
		stdout, err string
	}{
		{[]string{"echo", "a", "b"}, 0, "a b\n", ""},
		{[]string{"warn", "c"}, 0, "", "c\n"},
		{[]string{"exit", "7"}, 7, "", ""},
		{[]string{"nonesuch"}, 127, "", "nonesuch: not found\n"},
	} {
		got, err := run(c.words...)
		if err != nil || got.Exit != c.exit || string(got.Stdout) != c.stdout || string(got.Stderr) != c.err {
			s.Errorf("%q: %+v, %v", c.words, got, err)
		}
	}
	in.Stdin = []byte("read\x00\xff")
	if got, err := run("cat"); err != nil || string(got.Stdout) != string(in.Stdin) {
		s.Errorf("cat: %+v, %v", got, err)
	}
	in.Stdin, in.Timeout = nil, api.Patience(1)
	if got, err := run("sleep", "600"); err != nil || !got.TimedOut {
		s.Errorf("a command that takes long: %+v, %v", got, err)
	}
	for _, wrong := range [][]string{{}, {"", "x"}, {"a\x00b"}} {
		_, err := run(wrong...)
		s.is(err, croft.Invalid, "a command that cannot be")
	}
	in.Stdin = make([]byte, 600<<10)
	_, err = run("cat")
	s.is(err, croft.Invalid, "too long an input")
}

func (s *suite) consoles() {
	log := api.ConsoleLog{InstanceNamed: named("web").InstanceNamed}
	s.is(s.Client.ReadLog(s.ctx, log, nil), croft.NotFound, "the console of no instance")
	s.running("web")
	console := api.Console{InstanceNamed: log.InstanceNamed}
	s.must(s.Client.AttachConsole(s.ctx, console, func(guest io.ReadWriteCloser) error {
		if _, err := io.WriteString(guest, "hello\r"); err != nil {
			return err
		}
		s.is(s.Client.AttachConsole(s.ctx, console, nil), croft.Conflict, "a console that somebody has")
		if err := readUntil(guest, "hello"); err != nil {
			return err
		}
		console.TakeOver = true
		s.must(s.Client.AttachConsole(s.ctx, console, func(next io.ReadWriteCloser) error {
			if _, err := io.Copy(io.Discard, guest); err != nil {
				s.Errorf("the former console says %v when another client takes over", err)
			}
			if _, err := io.WriteString(next, "again\r"); err != nil {
				return err
			}
			return readUntil(next, "again")
		}))
		return nil
	}))
	var said bytes.Buffer
	s.must(s.Client.ReadLog(s.ctx, log, func(from io.Reader) error {
		_, err := io.Copy(&said, from)
		return err
	}))
	if !strings.Contains(said.String(), "hello") {
		s.Errorf("the log is %q", said.String())
	}
	ctx, cancel := context.WithCancel(s.ctx)
	log.Follow = true
	err := s.Client.ReadLog(ctx, log, func(from io.Reader) error {
		err := readUntil(from, "hello")
		cancel()
		if _, ended := io.Copy(io.Discard, from); err == nil {
			err = ended
		}
		return err
	})
	if err != nil {
		s.Errorf("following ended with %v", err)
	}
}

// readUntil reads until the output contains text.
func readUntil(from io.Reader, text string) error {
	var all []byte
	for b := make([]byte, 256); !bytes.Contains(all, []byte(text)); {
		n, err := from.Read(b)
		all = append(all, b[:n]...)
		if err != nil {
			return err
		}
	}
	return nil
}
