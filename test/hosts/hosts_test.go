package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestThreeHosts runs all steps on one cloud of three hosts, since creating it takes longest.
func TestThreeHosts(t *testing.T) {
	w := newWorld(t)
	for _, step := range []struct {
		name string
		run  func(*world)
	}{
		{"each host runs a guest that was asked for there", oneOnEach},
		{"a chosen address is kept over a restart of agent and libvirtd", keepsAddress},
		{"the end of the leading etcd member is not noticed", withoutLeader},
		{"nor is one that hangs", withHungLeader},
		{"a host that was cut off is silent, keeps its guests and returns", cutOff},
		{"a destroy that the cut came into is finished on return", cutInDestroy},
		{"without a quorum nothing begins and no guest is touched", withoutQuorum},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			inside := *w
			inside.t = t
			step.run(&inside)
		})
		if !ok {
			return // later steps depend on it
		}
	}
}

// running returns the guests of all hosts.
func (w *world) running() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, h := range w.hosts {
		for id, domain := range h.domains() {
			all[id] = h.name + "/" + domain
		}
	}
	return all
}

// untouched checks that the guests are the same as before, not restarted.
func (w *world) untouched(before map[string]string) {
	w.t.Helper()
	if now := w.running(); !maps.Equal(now, before) {
		w.t.Errorf("guests, with host and domain ID: %v, before %v", now, before)
	}
}

func oneOnEach(w *world) {
	results := make(chan result)
	for _, h := range w.hosts {
		go func() { results <- w.request("one-"+h.name, h, "--wait", "--timeout", patience.String()) }()
	}
	for range w.hosts {
		if r := <-results; r.exit != 0 {
			w.t.Errorf("a request: %v", r)
		}
	}
	for _, h := range w.hosts {
		name := "one-" + h.name
		st := w.show(name)
		if st.HostID != h.id() || h.domains()[st.ID] == "" {
			w.t.Errorf("%s is on host %s, and %s has %v", name, st.HostID, h.name, h.domains())
		}
		h.answers(name)
	}
}

// answers waits until a guest on the host returns its name, which it has from its metadata.
func (h *host) answers(name string) {
	w := h.w
	w.t.Helper()
	address, want := w.must(name), "croft instance "+name+" "+w.show(name).ID
	eventually(w.t, name+" answers", func(context.Context) error {
		if got := h.inside("curl", "-s", "-m", "10", "--retry", "60", "--retry-delay", "1", "--retry-connrefused",
			"http://"+address+"/"); strings.TrimSpace(got) != want {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

// keepsAddress kills the agent and the libvirtd of a host with a guest that chose its address.
func keepsAddress(w *world) {
	a := w.hosts[0]
	if r := w.request("other", a, "--wait", "--timeout", patience.String()); r.exit != 0 {
		w.t.Fatalf("a request: %v", r)
	}
	address := w.must("other") // one that the network gives to guests
	w.must("destroy", "--wait", "other")
	fixed := []string{"--address", address, "--wait", "--timeout", patience.String()}
	if r := w.request("fixed", a, fixed...); r.exit != 0 {
		w.t.Fatalf("a request: %v", r)
	}
	a.answers("fixed")
	before := w.running()
	id := w.show("fixed").ID
	keeps := func() {
		w.t.Helper()
		if got := w.must("fixed"); got != address {
			w.t.Errorf("it has the address %s, and chose %s", got, address)
		}
		a.answers("fixed")
		r := w.request("second", a, fixed...)
		if r.exit != 5 || !strings.Contains(r.stderr, "in use by instance fixed") {
			w.t.Errorf("a second request for it: %v, want exit code 5", r)
		}
	}
	a.restartLibvirt()
	a.restartAgent()
	w.untouched(before)
	keeps()
	w.must("stop", "--wait", "fixed")
	a.restartLibvirt()
	w.must("start", "--wait", "--timeout", patience.String(), "fixed")
	keeps()
	if now := a.domains()[id]; now == "" || now == before[id] {
		w.t.Errorf("its domain is %q, and was %s", now, before[id])
	}
	w.must("destroy", "--wait", "fixed")
}

// withoutLeader runs a guest's whole life with two of three members.
func withoutLeader(w *world) {
	before := w.running()
	lost := w.leader()
	lost.kill()
	if r := w.request("during", w.hosts[0], "--wait", "--timeout", patience.String()); r.exit != 0 {
		w.t.Errorf("a request: %v", r)
	}
	for _, args := range [][]string{{"list"}, {"show", "during"}, {"stop", "--wait", "during"},
		{"destroy", "--wait", "during"}} {
		if r := w.schedule(args...); r.exit != 0 {
			w.t.Errorf("schedule %v: %v", args, r)
		}
	}
	w.untouched(before)
	w.startMember(lost)
	w.waitForMember(lost)
}

// withHungLeader: a member keeps its connections and answers nothing.
func withHungLeader(w *world) {
	before := w.running()
	hung := w.leader()
	hung.signal(syscall.SIGSTOP)
	w.t.Cleanup(func() { hung.signal(syscall.SIGCONT) })
	for range 3 { // for any member that the command contacts first
		if r := w.request("hung", w.hosts[0]); r.exit != 0 {
			w.t.Errorf("a request: %v", r)
		}
		w.must("list")
		w.must("destroy", "--wait", "hung")
	}
	if r := w.request("hung", w.hosts[0], "--wait", "--timeout", patience.String()); r.exit != 0 {
		w.t.Errorf("a request that is waited for: %v", r)
	}
	w.must("destroy", "--wait", "hung")
	w.untouched(before)
	hung.signal(syscall.SIGCONT)
	w.waitForMember(hung)
}

// state returns what users see of a host.
func (w *world) state(h *host) string {
	w.t.Helper()
	r := w.user("croft", "host", "list", "-o", "json")
	var all []struct{ ID, State string }
	if err := json.Unmarshal([]byte(r.stdout), &all); r.exit != 0 || err != nil {
		w.t.Fatalf("croft host list: %v: %v", err, r)
	}
	for _, one := range all {
		if one.ID == h.id() {
			return one.State
		}
	}
	return "missing"
}

// silent waits until the host is reported silent, and checks that it gets no requests and that its guests are reported
// unknown, not gone.
func (w *world) silent(h *host, guests ...string) {
	w.t.Helper()
	eventually(w.t, "host "+h.name+" is silent", func(context.Context) error {
		if state := w.state(h); state != "silent" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	if r := w.request("to-"+h.name, h); r.exit != 4 || !strings.Contains(r.stdout, "NO ALLOCATIONS LEFT") ||
		!strings.Contains(r.stderr, "its agent is not running") {
		w.t.Errorf("a request to a silent host: %v, want exit code 4 and the reason", r)
	}
	list := w.must("list")
	for _, name := range guests {
		if !slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool {
			return strings.HasPrefix(line, name+" ") && strings.Contains(line, " unknown ")
		}) {
			w.t.Errorf("%s is not unknown:\n%s", name, list)
		}
	}
}

func cutOff(w *world) {
	b := w.hosts[1]
	before := w.running()
	doomed := w.show("one-b")
	b.cut()
	w.silent(b, "one-b")
	if r := w.request("elsewhere", nil, "--wait", "--timeout", patience.String()); r.exit != 0 {
		w.t.Errorf("a request that any host could serve: %v", r)
	}
	if st := w.show("elsewhere"); st.HostID == b.id() {
		w.t.Errorf("it went to the silent host")
	}
	w.must("destroy", "--wait", "elsewhere")
	if r := w.schedule("destroy", "--force", "one-b"); r.exit != 0 {
		w.t.Errorf("destroy --force on a silent host: %v", r)
	}
	w.gone("one-b")
	w.untouched(before) // the host is still unreachable

	b.plug()
	eventually(w.t, "the tombstone is honoured", func(context.Context) error {
		if all := b.domains(); all[doomed.ID] != "" {
			return fmt.Errorf("it still runs %v", all)
		}
		return nil
	})
	delete(before, doomed.ID)
	w.untouched(before)
	w.accepts("one", b) // the name is free, and the host takes requests
}

// accepts waits until hosts that returned run new guests, named after `as`.
func (w *world) accepts(as string, hosts ...*host) {
	w.t.Helper()
	var names []string
	for _, h := range hosts {
		name := as + "-" + h.name
		names = append(names, name)
		eventually(w.t, "host "+h.name+" takes requests", func(context.Context) error {
			if r := w.request(name, h); r.exit != 0 {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
	}
	w.must(append([]string{"wait", "--timeout", patience.String()}, names...)...)
}

// cutInDestroy cuts the cable as soon as the tombstone is written: at any step of the agent, only that guest is gone at
// the end.
func cutInDestroy(w *world) {
	c := w.hosts[2]
	before := w.running()
	doomed := w.show("one-c").ID
	w.must("destroy", "one-c")
	c.cut()
	w.silent(c)
	c.plug()
	w.gone("one-c")
	delete(before, doomed)
	w.untouched(before)
	w.accepts("one", c)
}

func withoutQuorum(w *world) {
	before := w.running()
	lost := []*member{w.leader()}
	lost[0].kill()
	for _, m := range w.members {
		if m.process != nil && len(lost) == 1 {
			lost = append(lost, m)
			m.kill()
		}
	}
	for _, args := range [][]string{{"resources=VCPU:1,MEMORY_MB:96,DISK_GB:1", guestImage, "--name", "never"},
		{"list"}, {"show", "one-a"}, {"destroy", "one-a"}, {"stop", "one-b"}} {
		r := w.schedule(args...)
		if r.exit != 6 || r.stdout != "" || !strings.Contains(r.stderr, "etcd") ||
			strings.Count(strings.TrimSpace(r.stderr), "\n") > 2 {
			w.t.Errorf("schedule %v: %v\nwant exit code 6 and a sentence about etcd", args, r)
		}
	}
	w.untouched(before)
	for _, m := range lost {
		w.startMember(m)
	}
	for _, m := range w.members {
		w.waitForMember(m)
	}
	w.accepts("after", w.hosts...)
	after := w.running()
	for id, where := range before {
		if after[id] != where {
			w.t.Errorf("guest %s was %s and is %q", id, where, after[id])
		}
	}
	if r := w.schedule("show", "never"); r.exit != 3 {
		w.t.Errorf("what was refused: %v, want exit code 3", r)
	}
	w.must("destroy", "--wait", "one-a", "one-b", "one-c", "after-a", "after-b", "after-c")
	if left := w.running(); len(left) > 0 {
		w.t.Errorf("guests are left: %v", left)
	}
	if r := w.user("croft", "audit"); r.exit != 0 || r.stdout != "" || r.stderr != "" {
		w.t.Errorf("croft audit: %v\nwant nothing", r)
	}
}
