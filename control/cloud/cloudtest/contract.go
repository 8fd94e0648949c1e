// Package cloudtest is the contract of the API: the behaviour that commands rely on, over the network and with a server
// in their own process.
package cloudtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
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
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			f := start(t)
			c.test(&suite{t, f, f.Client.Cloud(), ctx})
		})
	}
}

func (s *suite) pages() {
	query, err := schedule.ParseQuery(small)
	s.must(err)
	for _, r := range []schedule.Request{{Name: "c"}, {Name: "a"}, {Name: "b", Project: "other"}} {
		r.Query, r.Image = query, "/images/tiny.qcow2"
		_, err := s.Cloud.Requests.Request(s.ctx, r)
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
		page, more, err := s.Cloud.Instances.Page(s.ctx, c.project, c.after, c.limit)
		names := ""
		for _, st := range page {
			names += st.Instance.Name
			one, err := s.Cloud.Instances.Find(s.ctx, c.project, st.Instance.Name)
			if err != nil || one.Instance.ID != st.Instance.ID || st.Instance.State != croft.StateScheduled ||
				st.Host == nil || st.Host.Name != s.Host || !st.Host.Alive {
				s.Errorf("%s is %+v on %+v, %v", st.Instance.Name, st.Instance, st.Host, err)
			}
		}
		if err != nil || names != c.want || more != c.more {
			s.Errorf("%+v: %s, more %v, %v", c, names, more, err)
		}
	}
}

func (s *suite) life() {
	inst, err := s.request("web")
	s.must(err)
	var seen []string
	s.must(s.Cloud.Instances.Wait(s.ctx, inst, schedule.Running, func(st croft.Status) {
		seen = append(seen,
			schedule.Describe(&st))
	}))
	if !slices.Contains(seen, string(croft.StateRunning)) {
		s.Errorf("progress was %q, without its end", seen)
	}
	for _, name := range []string{"web", string(inst.ID)} {
		st, err := s.Cloud.Instances.Find(s.ctx, croft.DefaultProject, name)
		if err != nil || st.Instance.ID != inst.ID || st.Host == nil || st.Host.Name != s.Host {
			s.Errorf("%s: got %+v on %+v, %v", name, st.Instance, st.Host, err)
		}
	}
	for project, want := range map[croft.Project]int{croft.DefaultProject: 1, "": 1, "another": 0} {
		if all, err := s.Cloud.Instances.List(s.ctx, project); err != nil || len(all) != want {
			s.Errorf("project %q has %d instances, %v; want %d", project, len(all), err, want)
		}
	}
	for _, life := range []time.Duration{time.Hour, 0} {
		kept, err := s.Cloud.Changes.Keep(s.ctx, croft.DefaultProject, "web", life, nil)
		if err != nil || kept.ID != inst.ID || kept.Expires.IsZero() != (life == 0) {
			s.Errorf("kept for %s: it expires at %s, %v", life, kept.Expires, err)
		}
	}
	_, err = s.Cloud.Changes.Destroy(s.ctx, croft.DefaultProject, "web", false)
	s.must(err)
	s.must(s.Cloud.Instances.Wait(s.ctx, inst, schedule.Gone, nil))
	_, err = s.Cloud.Instances.Find(s.ctx, croft.DefaultProject, "web")
	s.is(err, croft.NotFound, "an instance that is gone")
}

func (s *suite) changes() {
	st := s.running("web")
	for _, step := range []struct {
		what string
		do   func(context.Context, croft.Project, string) (croft.Instance, error)
		goal schedule.Goal
	}{
		{"stop", s.Cloud.Changes.Stop, schedule.Stopped},
		{"start", s.Cloud.Changes.Start, schedule.Running},
		{"reboot", s.Cloud.Changes.Reboot, schedule.Running},
		{"rebuild", s.Cloud.Changes.Rebuild, schedule.Running},
	} {
		inst, err := step.do(s.ctx, croft.DefaultProject, "web")
		if err != nil {
			s.Fatalf("%s: %v", step.what, err)
		}
		if inst.ID != st.Instance.ID || inst.Generation <= st.Instance.Generation {
			s.Errorf("%s: generation %d of %s after %d", step.what, inst.Generation, inst.ID, st.Instance.Generation)
		}
		if err := s.Cloud.Instances.Wait(s.ctx, inst, step.goal, nil); err != nil {
			s.Fatalf("%s: %v", step.what, err)
		}
		st.Instance = inst
	}
}

func (s *suite) refusals() {
	_, err := s.request("web")
	s.must(err)
	_, err = s.request("web")
	s.is(err, croft.Conflict, "a name that is taken")
	_, err = s.Cloud.Instances.Find(s.ctx, "another", "web")
	s.is(err, croft.NotFound, "an instance of another project")
	for what, do := range map[string]func(context.Context, croft.Project, string) (croft.Instance, error){
		"stop": s.Cloud.Changes.Stop, "start": s.Cloud.Changes.Start, "reboot": s.Cloud.Changes.Reboot,
		"rebuild": s.Cloud.Changes.Rebuild, "recreate": s.Cloud.Changes.Recreate,
		"destroy": func(ctx context.Context, project croft.Project, name string) (croft.Instance, error) {
			d, err := s.Cloud.Changes.Destroy(ctx, project, name, false)
			return d.Instance, err
		},
		"keep": func(ctx context.Context, project croft.Project, name string) (croft.Instance, error) {
			return s.Cloud.Changes.Keep(ctx, project, name, time.Hour, nil)
		},
	} {
		_, err := do(s.ctx, croft.DefaultProject, "nobody")
		s.is(err, croft.NotFound, what)
	}
}

func (s *suite) explanations() {
	query, err := schedule.ParseQuery("VCPU:100,MEMORY_MB:256,DISK_GB:1")
	s.must(err)
	_, err = s.Cloud.Requests.Request(s.ctx, schedule.Request{Name: "big", Query: query, Image: "/images/tiny.qcow2"})
	s.is(err, croft.NoCapacity, "a request that no host has room for")
	if why, ok := errors.AsType[*schedule.Explanation](err); !ok || len(why.Rows) == 0 {
		s.Errorf("it is not explained: %v", err)
	}
	if query, err = schedule.ParseQuery(small); err == nil {
		why, err := s.Cloud.Requests.Explain(s.ctx, schedule.Request{Query: query, Image: "/images/tiny.qcow2"})
		if err != nil || len(why.Fits) != 1 || why.Fits[0].Host != s.Host {
			s.Errorf("a request that fits: %+v, %v", why, err)
		}
	}
	if all, err := s.Cloud.Instances.List(s.ctx, ""); err != nil || len(all) != 0 {
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
	if all, err := s.Cloud.Instances.List(s.ctx, ""); err != nil || len(all) != Room || refused != 1 {
		s.Errorf("%d instances, %d refused, %v; want %d and 1", len(all), refused, err, Room)
	}
}

func (s *suite) watching() {
	ctx, cancel := context.WithCancel(s.ctx)
	seen := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Cloud.Instances.Watch(ctx, func() {
			if _, err := s.Cloud.Instances.Find(ctx, croft.DefaultProject, "web"); err == nil {
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

func (s *suite) consoles() {
	s.is(s.Cloud.Consoles.Log(s.ctx, croft.Status{}, false, nil), croft.NotFound,
		"the console of an instance on no host")
	st := s.running("web")
	s.must(s.Cloud.Consoles.Attach(s.ctx, st, func(guest io.ReadWriteCloser) error {
		if _, err := io.WriteString(guest, "hello\r"); err != nil {
			return err
		}
		s.is(s.Cloud.Consoles.Attach(s.ctx, st, nil), croft.Conflict, "a console that somebody has")
		return readUntil(guest, "hello")
	}))
	var log bytes.Buffer
	s.must(s.Cloud.Consoles.Log(s.ctx, st, false, func(from io.Reader) error {
		_, err := io.Copy(&log, from)
		return err
	}))
	if !strings.Contains(log.String(), "hello") {
		s.Errorf("the log is %q", log.String())
	}
	ctx, cancel := context.WithCancel(s.ctx)
	err := s.Cloud.Consoles.Log(ctx, st, true, func(from io.Reader) error {
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
