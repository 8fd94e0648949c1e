package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"croft"
	"croft/compute"
)

// manyHosts is a cloud of so many hosts with five instances each.
func manyHosts(n int) topView {
	v := topView{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for i := range n {
		busy := float64(i%7) / 2
		h := topHost{ID: croft.NewHostID(), Name: fmt.Sprintf("host%04d", i), State: "ready", Instances: 5, CPU: &busy,
			Offered: croft.Resources{croft.VCPU: 16}, Claimed: croft.Resources{croft.VCPU: int64(i % 16)}}
		v.Hosts = append(v.Hosts, h)
		for j := range 5 {
			v.Instances = append(v.Instances, topInstance{ID: croft.NewInstanceID(), Name: fmt.Sprintf("i%04d-%d", i, j), State: "running", Host: h.Name, hostID: h.ID})
		}
	}
	return v
}

func TestTheScreenFillsATerminalOfEverySize(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 12}, {200, 60}, {20, 5}, {1, 1}} {
		for _, v := range []topView{{}, manyHosts(1), manyHosts(100)} {
			for focus := range 2 {
				screen := topScreen{focus: focus, color: true}
				got, _ := screen.draw(v, size[0], size[1])
				if len(got) > size[1] {
					t.Errorf("%v, %d hosts: %d lines", size, len(v.Hosts), len(got))
				}
				for _, line := range got {
					if n := utf8.RuneCountInString(clip(strings.NewReplacer("\x1b[1m", "", "\x1b[0m", "", "\x1b[32m", "", "\x1b[31m", "", "\x1b[33m", "").Replace(line), 1000)); n > size[0] {
						t.Errorf("%v: a line of %d: %q", size, n, line)
					}
				}
			}
		}
	}
}

func TestTheListInFocusHasMostOfTheScreen(t *testing.T) {
	screen := topScreen{focus: 1}
	got, shown := screen.draw(manyHosts(100), 80, 24)
	count := func(part string) (n int) {
		for _, line := range got {
			if strings.Contains(line, part) {
				n++
			}
		}
		return n
	}
	hosts, instances := count("ready  5"), count("running")-1 // one is in the summary
	if hosts != 6 || instances != 12 {
		t.Errorf("there are %d hosts and %d instances:\n%s", hosts, instances, strings.Join(got, "\n"))
	}
	if len(shown) != hosts+instances {
		t.Errorf("the guests of %d hosts are asked about, want those of the rows", len(shown))
	}
	screen.key("\t")
	if screen.draw(manyHosts(2), 80, 24); screen.lists[0].fits < 2 || screen.lists[1].fits < 10 {
		t.Errorf("room that one list does not need is not given to the other: %+v", screen.lists)
	}
}

func TestKeysSortAndScroll(t *testing.T) {
	v, screen := manyHosts(30), topScreen{}
	top := func() string {
		got, _ := screen.draw(v, 80, 24)
		return strings.Fields(got[3])[0]
	}
	for _, step := range []struct{ keys, first string }{
		{"", "host0000"},
		{"r", "host0029"},
		{"r", "host0000"},
		{"j j j k", "host0002"},
		{"\x1b[6~", "host0014"},
		{"\x1b[F", "host0018"},
		{"j", "host0018"},
		{"\x1b[5~ \x1b[5~", "host0000"},
		{"s s s", "host0006"}, // by CPU, the busiest first
		{"s", "host0015"},     // by VCPU, the fullest first
		{"r", "host0016"},     // the emptiest, of them the last by name
	} {
		top()
		for key := range strings.FieldsSeq(step.keys) {
			if screen.key(key) {
				t.Fatalf("%q quits", key)
			}
		}
		if got := top(); got != step.first {
			t.Errorf("after %q the first is %s, want %s", step.keys, got, step.first)
		}
	}
	for _, key := range []string{"q", "\x03"} {
		if !screen.key(key) {
			t.Errorf("%q does not quit", key)
		}
	}
}

func TestKeysAreToldApart(t *testing.T) {
	var got []string
	for typed := "s\x1b[A\x1b[5~\x1bOBä\x1b"; typed != ""; {
		var key string
		key, typed = cutKey(typed)
		got = append(got, key)
	}
	if want := []string{"s", "\x1b[A", "\x1b[5~", "\x1bOB", "ä", "\x1b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHowBusyAGuestIsTakesTwoReadings(t *testing.T) {
	at := time.Now()
	first := reading{}.next(at, compute.Usage{CPU: 10 * time.Second})
	second := first.next(at.Add(2*time.Second), compute.Usage{CPU: 13 * time.Second})
	restarted := second.next(at.Add(4*time.Second), compute.Usage{CPU: time.Second})
	if first.rate != nil || second.rate == nil || *second.rate != 1.5 || restarted.rate != nil {
		t.Errorf("the rates are %v, %v and %v", first.rate, second.rate, restarted.rate)
	}
}

// A thousand hosts are drawn in a fraction of the time in which nobody notices.
func BenchmarkDrawAThousandHosts(b *testing.B) {
	v, screen := manyHosts(1000), topScreen{color: true}
	for b.Loop() {
		screen.draw(v, 160, 50)
	}
}

// resize makes the terminal another size, and tells who runs in it.
func (term *terminal) resize(t *testing.T, rows, cols uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(unix.Getpid(), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
}

func (term *terminal) typed(t *testing.T, keys string) {
	t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func TestTopFollowsTheCloudOnATerminal(t *testing.T) {
	c, term := cloudFor(t, 2), newTerminal(t)
	code := make(chan int, 1)
	var errs, more bytes.Buffer
	go func() { code <- Run(t.Context(), c.args("top"), term.File, term.File, &errs) }()
	term.await(t, "hosts: 1 (1 ready)   instances: 0")
	if c.schedule(t.Context(), &more, &more, small, "--name", "web", "--wait") != 0 {
		t.Fatal(more.String())
	}
	term.await(t, "instances: 1 (1 running)")
	term.await(t, "MiB") // the agent has said what its guest uses
	term.await(t, "1/2") // and Placement what is claimed
	term.resize(t, 10, 30)
	term.await(t, "q quit  Tab other list  s sort"+clearLine) // cut at 30
	term.typed(t, "\tsr")
	term.await(t, "STATE\x1b[0m")
	term.await(t, "STATE↑")
	term.typed(t, "q")
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, &errs)
	}
	screen := term.close()
	if !strings.HasPrefix(screen, enterScreen) || !strings.HasSuffix(screen, leaveScreen) {
		t.Errorf("the terminal is not left as it was: %q ... %q", screen[:20], screen[len(screen)-20:])
	}
}

func TestTopEndsWithItsInterrupt(t *testing.T) {
	c, term := cloudFor(t, 1), newTerminal(t)
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var errs bytes.Buffer
	go func() { code <- Run(ctx, c.args("top"), term.File, term.File, &errs) }()
	term.await(t, "q quit")
	interrupt()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, &errs)
	}
	if screen := term.close(); !strings.HasSuffix(screen, leaveScreen) {
		t.Errorf("the terminal is not left as it was: %q", screen[len(screen)-20:])
	}
}

// A key is answered at once, and a change shown soon, however many hosts there are.
func TestTopOfAThousandHostsStaysResponsive(t *testing.T) {
	c, term := cloudFor(t, 1), newTerminal(t)
	var writes errgroup.Group
	writes.SetLimit(32)
	for i := range 1000 {
		writes.Go(func() error {
			return c.store.PutHost(t.Context(), croft.Host{ID: croft.NewHostID(), Name: fmt.Sprintf("many%04d", i)})
		})
		writes.Go(func() error {
			_, err := c.store.Create(t.Context(), croft.Instance{ID: croft.NewInstanceID(), Project: croft.DefaultProject, Name: fmt.Sprintf("vm%04d", i), Created: time.Now()})
			return err
		})
	}
	if err := writes.Wait(); err != nil {
		t.Fatal(err)
	}
	code := make(chan int, 1)
	var errs bytes.Buffer
	go func() { code <- Run(t.Context(), c.args("top"), term.File, term.File, &errs) }()
	term.await(t, "hosts: 1001 (1 ready, 1000 silent)   instances: 1000")
	const soon = 2 * time.Second // the machine may have other things to do
	began := time.Now()
	term.typed(t, "G")
	term.await(t, "many0999")
	if took := time.Since(began); took > soon {
		t.Errorf("a key is answered after %s", took)
	}
	began = time.Now()
	if err := c.store.PutHost(t.Context(), croft.Host{ID: croft.NewHostID(), Name: "zzz"}); err != nil {
		t.Fatal(err)
	}
	term.await(t, "hosts: 1002")
	if took := time.Since(began); took > soon {
		t.Errorf("a change is shown after %s", took)
	}
	term.typed(t, "q")
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, &errs)
	}
}

// Where nothing can be drawn the cloud is printed once.
func TestTopOnADumbTerminal(t *testing.T) {
	c, term := cloudFor(t, 1), newTerminal(t)
	t.Setenv("TERM", "dumb")
	var errs bytes.Buffer
	if code := Run(t.Context(), c.args("top"), term.File, term.File, &errs); code != 0 {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	if screen := term.close(); strings.Contains(screen, "\x1b") || strings.Count(screen, "hosts: 1 (1 ready)") != 1 {
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
	var v topView
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if len(v.Hosts) != 1 || len(v.Instances) != 1 || v.Hosts[0].Claimed[croft.VCPU] != 1 || v.Hosts[0].Instances != 1 {
		t.Fatalf("got %+v", v)
	}
	web := v.Instances[0]
	if web.Name != "web" || web.State != "running" || web.Host != "host1" || web.CPU == nil || *web.Memory != 256<<20 {
		t.Errorf("got %+v", web)
	}
}
