package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"croft"
	"croft/cli/instances"
	"croft/control"
	"croft/control/actions"
	"croft/control/cloud/direct"
	"croft/control/controltest"
	"croft/etcdstore"
	"croft/internal/command"
	"croft/schedule"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// labels are the values of the property by which bulk operations choose instances.
var labels = []string{"red", "blue"}

const labelKey = "team"

// addLabel labels most instances, once each.
func (a *actor) addLabel(ctx context.Context, id croft.InstanceID) {
	n := a.rng.IntN(len(labels) + 1)
	if n == len(labels) {
		return
	}
	a.mu.Lock()
	f := a.facts[id]
	f.label = labels[n]
	a.mu.Unlock()
	ref := objects.Ref{Kind: objects.Instance, Project: croft.DefaultProject, ID: string(id)}
	_, err := objects.New(a.store.Objects).Change(ctx, operatorOf(a.store), access.Within(croft.DefaultProject), ref,
		objects.Change{Set: map[string]objects.Value{labelKey: objects.Text(labels[n])}})
	a.mu.Lock()
	defer a.mu.Unlock()
	f.labelled = err == nil
}

// operatorOf returns the caller of all bulk operations.
func operatorOf(store *etcdstore.Store) access.Caller {
	return access.Caller{Partition: store.Partition(), User: "olga", Roles: []access.Role{access.PartitionAdmin},
		Via: "test"}
}

// bulk is one command for all instances with a label.
type bulk struct {
	w     *world
	verb  string
	label string
	args  []string // further flags
	next  http.Handler

	mu    sync.Mutex
	asked map[croft.InstanceID]bool // of which instances it asked for a change
}

// useBulk stops, starts, protects or removes all instances with a label.
func (a *actor) useBulk(ctx context.Context) {
	b := &bulk{w: a.world, label: labels[a.rng.IntN(len(labels))]}
	switch a.rng.IntN(7) {
	case 0, 1:
		b.verb = "stop"
	case 2, 3:
		b.verb = "start"
	case 4:
		b.verb = "protect"
	case 5:
		b.verb, b.args = "protect", []string{"--off"}
	default:
		b.verb, b.args = "remove", []string{"--yes"}
	}
	must := a.labelled(b.label)
	if said, listed := b.run(ctx, a.lifetime()); listed && ctx.Err() == nil {
		a.tally.add("bulk " + b.verb)
		b.check(must, said)
	}
}

// labelled returns the instances that surely exist and have a label, without those that somebody may remove.
func (w *world) labelled(label string) (all []croft.InstanceID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, f := range w.facts {
		if f.label == label && f.labelled && f.created && !f.held && !w.doomed[id] && !w.reused[id] {
			all = append(all, id)
		}
	}
	return all
}

// check compares the instances that the command asked about with those that have the label.
func (b *bulk) check(must []croft.InstanceID, said string) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	for _, id := range must {
		if !b.asked[id] && !leftAlone(said, b.w.facts[id].name) && !b.w.doomed[id] && !b.w.reused[id] {
			b.w.broken = append(b.w.broken, fmt.Sprintf("bulk operations touch what they choose: %s has the label %s and "+
				"was left out of %s: %s", id, b.label, b.verb, said))
		}
	}
	for id := range b.asked {
		if f := b.w.facts[id]; (f == nil || f.label != b.label) && !b.w.reused[id] {
			b.w.broken = append(b.w.broken, fmt.Sprintf("bulk operations touch what they choose: %s does not have the "+
				"label %s, and %s touches it", id, b.label, b.verb))
		}
	}
}

// leftAlone reports whether the command said that it leaves the instance of this name alone, which it may not change.
func leftAlone(said, name string) bool {
	for line := range strings.Lines(said) {
		if strings.Contains(line, "left alone:") &&
			regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).MatchString(line) {
			return true
		}
	}
	return false
}

// run runs the command against a server of the API which may die in the middle, and reports whether the command had the
// list of instances.
func (b *bulk) run(ctx context.Context, last int) (said string, listed bool) {
	b.asked = map[croft.InstanceID]bool{}
	code := 1
	err := b.w.connected(last, func(s *schedule.Scheduler, store *etcdstore.Store) error {
		under, err := direct.Over(store, b.w.claims, direct.Defaults(), direct.Scheduling{})
		if err != nil {
			return err
		}
		under.Scheduler = s
		recorder := actions.NewRecorder(store.Actions, nil)
		server, err := control.New(control.Config{Cloud: under, Objects: objects.New(store.Objects),
			Callers: access.First(controltest.Callers{"bulk": operatorOf(store)}), Images: controltest.Images{},
			Actions: recorder, Log: slog.New(slog.DiscardHandler), Rate: 10_000, Burst: 10_000})
		if err != nil {
			return err
		}
		recording, end := context.WithCancel(context.WithoutCancel(ctx))
		var work sync.WaitGroup
		work.Go(func() { _ = recorder.Run(recording) })
		defer work.Wait()
		defer end()
		defer server.Close()
		b.next = server.Handler()
		front := httptest.NewServer(b)
		defer front.Close()
		code, said = b.command(ctx, front.URL)
		return under.Close()
	})
	if err != nil {
		b.w.t.Errorf("bulk %s: %v", b.verb, err)
	}
	return said, code == 0 || len(b.asked) > 0
}

// command runs the command line.
func (b *bulk) command(ctx context.Context, url string) (code int, said string) {
	file := filepath.Join(b.w.dir, fmt.Sprintf("bulk%d.yaml", b.w.gates.Add(1)))
	text := fmt.Sprintf("url: %s\ntoken: bulk\n", url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.w.t.Error(err)
	}
	var out bytes.Buffer
	words := append([]string{b.verb, "--settings", file, "--filter", "label." + labelKey + "=" + b.label}, b.args...)
	code = command.Run(ctx, command.Finished(instances.Command()), words, strings.NewReader(""), &out, &out,
		func(error) string { return "" })
	return code, out.String()
}

// ServeHTTP passes requests on, and notes what is asked and answered about each instance.
func (b *bulk) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	name, below := strings.CutPrefix(r.URL.Path, "/v1/instances/")
	if r.Method == http.MethodGet || !below {
		b.next.ServeHTTP(rw, r)
		return
	}
	name, _, _ = strings.Cut(name, "/")
	id := croft.InstanceID(name)
	b.mu.Lock()
	b.asked[id] = true
	b.mu.Unlock()
	answer := &statusOf{ResponseWriter: rw, status: http.StatusOK}
	defer b.w.noting(id, b.verb, slices.Contains(b.args, "--off"))(func() bool { return answer.status < 300 })
	b.next.ServeHTTP(answer, r)
}

// noting records that a change of an instance is asked for. The returned function records whether that was done.
func (w *world) noting(id croft.InstanceID, verb string, off bool) func(done func() bool) {
	switch verb {
	case "protect":
		protected := w.protecting(id, !off)
		return func(done func() bool) { protected(done()) }
	case "remove":
		removed := w.destroying(id)
		return func(done func() bool) { removed(done()) }
	}
	return func(func() bool) {}
}

// statusOf remembers the status of an answer.
type statusOf struct {
	http.ResponseWriter
	status int
}

func (s *statusOf) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// bulkAtRest stops all instances with one label and removes those with the other, when nothing else happens: the
// records of exactly these change.
func (w *world) bulkAtRest() {
	for n, verb := range []string{"stop", "remove"} {
		b := &bulk{w: w, verb: verb, label: labels[n]}
		if verb == "remove" {
			b.args = []string{"--yes"}
		}
		before := w.records() // other changes of a record, such as a fence, raise its revision only
		chosen := w.havingLabel(b.label)
		said, _ := b.run(w.t.Context(), 0)
		touched := maps.Clone(b.asked)
		for id, name := range chosen {
			if leftAlone(said, name) {
				touched[id] = true
			}
		}
		same := func(string, bool) bool { return true }
		if !maps.EqualFunc(chosen, touched, same) {
			bad := fmt.Sprintf("bulk operations touch what they choose: %s --filter label.%s=%s asks about %v and names %v, "+
				"and these have the label: %v: %s", verb, labelKey, b.label, b.asked, touched, chosen, said)
			w.t.Error(bad)
			w.recount([]string{bad})
		}
		after := w.records()
		for id, was := range before {
			_, is := chosen[id]
			if !is && after[id].Generation != was.Generation && was.State != croft.StateDestroying {
				w.t.Errorf("bulk operations touch what they choose: %s does not have the label %s, and %s changes it", id,
					b.label, verb)
			}
		}
		w.rest(restTime)
	}
}

// records returns the records of all instances.
func (w *world) records() map[croft.InstanceID]croft.Instance {
	all, err := w.store.Instances.List(w.t.Context(), "")
	if err != nil {
		w.t.Error(err)
	}
	records := map[croft.InstanceID]croft.Instance{}
	for _, st := range all {
		records[st.Instance.ID] = st.Instance
	}
	return records
}

// havingLabel returns the instances that have a label according to their properties, with their names.
func (w *world) havingLabel(label string) map[croft.InstanceID]string {
	all, err := objects.New(w.store.Objects).List(w.t.Context(), operatorOf(w.store),
		access.Within(croft.DefaultProject), objects.Instance, nil)
	if err != nil {
		w.t.Error(err)
	}
	having := map[croft.InstanceID]string{}
	for _, o := range all {
		if o.Properties[labelKey].String() == label {
			inst, err := w.store.Instances.Instance(w.t.Context(), croft.InstanceID(o.ID))
			if err != nil && !errors.Is(err, croft.NotFound) {
				w.t.Error(err)
			}
			having[croft.InstanceID(o.ID)] = inst.Name
		}
	}
	return having
}
