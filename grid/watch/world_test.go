package watch

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/grid/place"
	"croft/grid/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree is a directory: files, and links, whose targets follow "->".
type tree map[string]string

func (f tree) write(dir string) error {
	for name, text := range f {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		var err error
		if to, link := strings.CutPrefix(text, "->"); link {
			err = os.Symlink(to, file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readTree(dir string) (tree, error) {
	f := tree{}
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, file)
		if e.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(file)
			f[name] = "->" + to
			return err
		}
		text, err := os.ReadFile(file)
		f[name] = string(text)
		return err
	})
	return f, err
}

// cluster returns nine nodes in three sites, an exclusive job db and a job web, placed.
func cluster(t *testing.T) tree {
	t.Helper()
	f := tree{"cluster.yaml": "id: '0123456789abcdef0123456789abcdef'\nruntime: process\n", "nodes/_.yaml": "id: -1\n",
		"jobs/db.yaml":  "exclusive: true\nimage: {rootfs: /srv}\ncommand: [/db]\n",
		"jobs/web.yaml": "replicas: 3\npolicy: spread(site)\nimage: {rootfs: /srv}\ncommand: [/web]\n"}
	for site := range 3 {
		f[fmt.Sprintf("nodes/s%d/_.yaml", site)] = fmt.Sprintf("id: %d\n", -2-site)
		for i := range 3 {
			f[fmt.Sprintf("nodes/s%d/n%d.yaml", site, 3*site+i)] = fmt.Sprintf("# node %d\nid: %d\n", 3*site+i,
				3*site+i)
		}
	}
	dir := t.TempDir()
	if err := f.write(dir); err != nil {
		t.Fatal(err)
	}
	s, err := state.Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := place.Decide(s, place.Options{})
	if err == nil {
		err = r.Write(dir)
	}
	if err == nil {
		f, err = readTree(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// origin is an upstream in memory.
type origin struct {
	mu      sync.Mutex
	commits []tree
	log     []string
	record  LeaderRecord
	records int
	pushed  func(leader string, old, now tree) // called with every commit of a watch, under the lock
}

func (o *origin) head() (tree, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.commits[len(o.commits)-1], len(o.commits) - 1
}

// edit is a commit of an operator.
func (o *origin) edit(change func(tree)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := maps.Clone(o.commits[len(o.commits)-1])
	change(next)
	o.commits, o.log = append(o.commits, next), append(o.log, "operator")
}

// controller is a simulated controller: its clone of the origin, its links, and a gate that freezes it.
type controller struct {
	name    string
	o       *origin
	w       *world
	dir     string
	at      int
	made    tree
	said    string
	store   *Store
	mu      sync.Mutex
	frozen  chan struct{} // not nil: frozen until it is closed
	stopped time.Duration // not 0: its clock has stood still since then
	lost    time.Duration // how long its clock stood still in all
	dialed  func()        // called at each dial
	gone    []string      // nodes that its applies counted as gone
	// what happens to a write: 0 nothing, 1 it is lost, 2 its answer is lost, 3 it arrives later
	trouble func(what string) int
}

// step is a point at which a process may be frozen.
func (c *controller) step() {
	for {
		c.mu.Lock()
		gate := c.frozen
		c.mu.Unlock()
		if gate == nil {
			return
		}
		<-gate
	}
}

func (c *controller) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen == nil {
		c.frozen = make(chan struct{})
	}
}

// now returns the time on the clock of the controller's machine.
func (c *controller) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != 0 {
		return c.stopped - c.lost
	}
	return c.w.now() - c.lost
}

// pause pauses the virtual machine of the controller: nothing runs in it, no beat arrives, and its clock stands still.
func (c *controller) pause() {
	c.freeze()
	c.w.set(c.name, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped == 0 {
		c.stopped = c.w.now()
	}
}

func (c *controller) paused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped != 0
}

// resume restarts the clock and the receivers of the machine. Its watch stays frozen until thaw.
func (c *controller) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != 0 {
		c.lost += c.w.now() - c.stopped
		c.stopped = 0
	}
	c.w.set(c.name, false)
}

func (c *controller) thaw() {
	if c.paused() {
		c.resume()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen != nil {
		close(c.frozen)
		c.frozen = nil
	}
}

func (c *controller) Checkout(context.Context) (string, string, error) {
	c.step()
	f, at := c.o.head()
	if at != c.at || c.made == nil {
		list, _ := filepath.Glob(c.dir + "/*")
		for _, one := range list {
			if err := os.RemoveAll(one); err != nil {
				return "", "", err
			}
		}
		if err := f.write(c.dir); err != nil {
			return "", "", err
		}
		c.at, c.made = at, f
	}
	return c.dir, fmt.Sprintf("git:%d", at), nil
}

func (c *controller) Leader(context.Context) (LeaderRecord, error) {
	c.step()
	c.o.mu.Lock()
	defer c.o.mu.Unlock()
	return c.o.record, nil
}

func (c *controller) Swap(_ context.Context, old LeaderRecord, next Term) (LeaderRecord, error) {
	return c.attempt("swap", func() (LeaderRecord, error) { return c.o.swap(old, next) })
}

func (o *origin) swap(old LeaderRecord, next Term) (LeaderRecord, error) {
	if o.record.Value != old.Value {
		return LeaderRecord{}, croft.Errorf(croft.Conflict, "another record")
	}
	o.records++
	o.record = LeaderRecord{fmt.Sprint("m", o.records), next}
	return o.record, nil
}

// attempt does a write, or the part of it that the network lets through.
func (c *controller) attempt(what string, do func() (LeaderRecord, error)) (LeaderRecord, error) {
	c.step()
	locked := func() (LeaderRecord, error) {
		c.o.mu.Lock()
		defer c.o.mu.Unlock()
		return do()
	}
	how := 0
	if c.trouble != nil {
		how = c.trouble(what)
	}
	switch how {
	case 1:
		return LeaderRecord{}, croft.Errorf(croft.Unavailable, "lost on the way there")
	case 2:
		_, _ = locked()
		return LeaderRecord{}, croft.Errorf(croft.Unavailable, "lost on the way back")
	case 3:
		c.w.later(40*time.Second, func() { _, _ = locked() })
		return LeaderRecord{}, croft.Errorf(croft.Unavailable, "no answer")
	}
	m, err := locked()
	c.step()
	return m, err
}

func (c *controller) Commit(_ context.Context, message string) (string, error) {
	c.step()
	f, err := readTree(c.dir)
	if err != nil {
		return "", err
	}
	c.made, c.said, c.at = f, message, -1 // the next Checkout replaces the changes
	return "git:made", nil
}

func (c *controller) Push(_ context.Context, base, _ string, old LeaderRecord, next Term) (LeaderRecord, error) {
	made, said := c.made, c.said
	c.made = nil
	return c.attempt("push", func() (LeaderRecord, error) {
		if base != fmt.Sprintf("git:%d", len(c.o.commits)-1) {
			return LeaderRecord{}, croft.Errorf(croft.Conflict, "the branch has moved")
		}
		m, err := c.o.swap(old, next)
		if err == nil {
			if c.o.pushed != nil {
				c.o.pushed(old.Leader, c.o.commits[len(c.o.commits)-1], made)
			}
			c.o.commits, c.o.log = append(c.o.commits, made), append(c.o.log, said)
		}
		return m, err
	})
}

// Direct implements Prober.
func (c *controller) Direct(_ context.Context, n *state.Node) Answer {
	c.step()
	if c.dialed != nil {
		c.dialed()
	}
	return c.w.reaches(c.name, n.Name)
}

// Through implements Prober.
func (c *controller) Through(_ context.Context, via, n *state.Node) Answer {
	c.step()
	if c.w.reaches(c.name, via.Name) != Yes {
		return Unknown
	}
	return c.w.reaches(via.Name, n.Name)
}

// Apply implements Applier. Nodes that it reaches get the state of the head, in the order that exclusive jobs need, and
// refuse a state that is older than their own.
func (c *controller) Apply(_ context.Context, _, _ string, nodes, gone []string) error {
	c.step()
	f, at := c.o.head()
	for _, name := range gone {
		if n := c.w.stateOf(name); n != state.Out && n != state.Up {
			return croft.Errorf(croft.Invalid, "%s is %s, and taken for gone", name, n)
		}
		c.w.mu.Lock()
		c.gone = append(c.gone, name)
		c.w.mu.Unlock()
	}
	return c.w.apply(c.name, f, at, nodes)
}

func newController(t *testing.T, w *world, name string) *controller {
	t.Helper()
	c := &controller{name: name, o: w.o, w: w, dir: t.TempDir(), at: -1}
	store, err := OpenStore(t.TempDir(), Clock{Boot: "boot of " + name, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	c.store = store
	return c
}

func (c *controller) watch(t *testing.T, fence Fencer) *Watch {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), nil)).With("controller", c.name)
	}
	w, err := New(Config{Name: c.name, Store: c.store, Rules: rules, Term: 2 * time.Minute, Repository: c, Prober: c,
		Fence: fence, Applier: c, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// slotsOf returns the nodes of a job's slots, by slot.
func (f tree) slotsOf(job string) []string {
	var nodes []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if strings.HasPrefix(name, "alloc/"+job+"/") {
			nodes = append(nodes, strings.TrimSuffix(filepath.Base(f[name]), ".yaml"))
		}
	}
	return nodes
}

// fileOf returns the path of a node's file.
func fileOf(node string) string {
	return fmt.Sprintf("nodes/s%d/%s.yaml", (node[1]-'0')/3, node)
}
