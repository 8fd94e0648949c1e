package place

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/crush"
	"croft/crush/policy"
	"croft/grid/state"
	"croft/grid/unit"
)

// files maps names of files in a cluster's directory to their contents.
type files map[string]string

func (f files) write(t testing.TB, dir string) {
	t.Helper()
	for name, text := range f {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cluster returns a cluster with racks r0, r1 and so on, with the given numbers of nodes. Each node has a capacity of
// 10 cpu.
func cluster(racks ...int) files {
	f := files{"cluster.yaml": "id: '0123456789abcdef0123456789abcdef'\nruntime: process\n",
		"nodes/_.yaml":   "id: -1\ncapacity: {cpu: 10}\n",
		"nodes/s/_.yaml": "id: -2\n"}
	id := 0
	for r, nodes := range racks {
		f[fmt.Sprintf("nodes/s/r%d/_.yaml", r)] = fmt.Sprintf("id: %d\n", -3-r)
		for range nodes {
			f[fmt.Sprintf("nodes/s/r%d/n%d.yaml", r, id)] = fmt.Sprintf("id: %d\n", id)
			id++
		}
	}
	return f
}

func loadAt(t testing.TB, dir string) *state.State {
	t.Helper()
	s, err := state.Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// placed runs Decide on a directory and writes the result.
func placed(t testing.TB, dir string, o Options) *Result {
	t.Helper()
	r, err := Decide(loadAt(t, dir), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLinksSurviveACrashOfTheMachine expects that the directories of links are flushed after the links are created, and
// then the directories above, which may be new.
func TestLinksSurviveACrashOfTheMachine(t *testing.T) {
	dir, f := t.TempDir(), cluster(1)
	f["jobs/shop/front.yaml"] = "replicas: 1\n"
	f.write(t, dir)
	r, err := Decide(loadAt(t, dir), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var flushed []string
	before := syncDir
	t.Cleanup(func() { syncDir = before })
	syncDir = func(d *os.File) error {
		if _, err := os.Lstat(filepath.Join(dir, "alloc/shop/front/0")); err != nil {
			t.Errorf("%s is flushed before the link is there: %v", d.Name(), err)
		}
		name, err := filepath.Rel(dir, d.Name())
		if err != nil {
			t.Fatal(err)
		}
		flushed = append(flushed, name)
		return nil
	}
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	if want := []string{"alloc/shop/front", "alloc/shop", "alloc", "."}; !slices.Equal(flushed, want) {
		t.Errorf("flushed: %q, want %q", flushed, want)
	}
	syncDir = func(*os.File) error { return errors.New("no space") }
	if err := r.Write(dir); err == nil || !strings.Contains(err.Error(), "flush the links in") {
		t.Errorf("a directory that cannot be flushed: %v", err)
	}
}

// where returns the nodes of all slots, by job and slot.
func where(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, j := range loadAt(t, dir).Jobs {
		for _, slot := range j.Slots {
			all[fmt.Sprintf("%s/%d", j.Name, slot.Number)] = slot.Node.Name
		}
	}
	return all
}

func racksOf(t testing.TB, dir, job string) (racks []string) {
	t.Helper()
	for _, slot := range loadAt(t, dir).Job(job).Slots {
		racks = append(racks, slot.Node.Parent.Name)
	}
	slices.Sort(racks)
	return racks
}

// TestAFreshJobIsWhereItsRuleSays: if nothing is placed, the result is equal to that of the policy alone.
func TestAFreshJobIsWhereItsRuleSays(t *testing.T) {
	for _, text := range []string{"spread(rack)", "spread(host)", "across(rack, 2, 2)", "take 0",
		"use r0; select 1 host; take 1; emit; use r1; select -1 host; take 1", "local-first(r2, 1, s)"} {
		dir, f := t.TempDir(), cluster(5, 5, 5, 5)
		for i := range 20 {
			f[fmt.Sprintf("jobs/j%d.yaml", i)] = fmt.Sprintf("replicas: %d\npolicy: %q\n", 1+i%4, text)
		}
		f.write(t, dir)
		s := loadAt(t, dir)
		placed(t, dir, Options{})
		m := Map(s, nil, &s.IDs)
		program, err := crush.Compile(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range loadAt(t, dir).Jobs {
			r, err := Resolve(s, text)
			if err != nil {
				t.Fatal(err)
			}
			p, err := hostless(r.Policy, m)
			if err != nil {
				t.Fatal(err)
			}
			c, err := policy.Compile(p, m)
			if err != nil {
				t.Fatal(err)
			}
			want := c.Place(program.NewMapper(), policy.Request{X: Input(j.Name), Want: j.Want}, nil)
			var got []crush.ID
			for _, slot := range j.Slots {
				got = append(got, crush.ID(slot.Node.ID))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s of %d: %v, want %v", text, j.Want, got, want)
			}
		}
	}
}

func TestASecondRunChangesNothing(t *testing.T) {
	dir, f := t.TempDir(), cluster(3, 3, 3)
	f["jobs/_.yaml"] = "uses: {cpu: 1}\n"
	for i := range 10 {
		f[fmt.Sprintf("jobs/j%d.yaml", i)] = fmt.Sprintf("replicas: %d\npolicy: spread(rack)\nbalance: %d\n",
			1+i%4, 1+i%3)
	}
	f["jobs/all.yaml"] = "policy: every\n"
	f["jobs/one.yaml"] = "policy: pin(n4)\n"
	f.write(t, dir)
	if r := placed(t, dir, Options{}); len(r.Changes) == 0 || r.Moves != 0 {
		t.Fatalf("got %+v", r)
	}
	if r := placed(t, dir, Options{}); len(r.Changes) != 0 || r.IDs != nil {
		t.Errorf("the second run changes %+v", r)
	}
	if at := where(t, dir); at["one/0"] != "n4" || at["all/8"] == "" {
		t.Errorf("got %v", at)
	}
}

func TestWhatMayStayStays(t *testing.T) {
	for _, c := range []struct {
		name   string
		change files
		remove []string
		moves  func(before map[string]string, slot string) bool // whether a slot must move; all others must not
	}{
		{"a node that is out loses its slots, and no other does",
			files{"nodes/s/r0/n1.yaml": "id: 1\nstate: out\n"}, nil,
			func(b map[string]string, slot string) bool { return b[slot] == "n1" }},
		{"a node to be drained too", files{"nodes/s/r0/n1.yaml": "id: 1\nstate: drain\n"}, nil,
			func(b map[string]string, slot string) bool { return b[slot] == "n1" }},
		{"a node under maintenance keeps its slots", files{"nodes/s/r0/n1.yaml": "id: 1\nstate: maintenance\n"}, nil,
			func(map[string]string, string) bool { return false }},
		{"a node that is gone", nil, []string{"nodes/s/r0/n1.yaml"},
			func(b map[string]string, slot string) bool { return b[slot] == "n1" }},
		{"a new node takes nothing", files{"nodes/s/r1/new.yaml": "id: 99\n"}, nil,
			func(map[string]string, string) bool { return false }},
		{"another weight moves nothing", files{"nodes/s/r1/n4.yaml": "id: 4\nweight: 9\n"}, nil,
			func(map[string]string, string) bool { return false }},
		{"a node that is full of less", files{"nodes/s/r0/n1.yaml": "id: 1\ncapacity: {cpu: 0}\n"}, nil,
			func(b map[string]string, slot string) bool { return b[slot] == "n1" }},
		{"a fact that is avoided", files{"nodes/s/r0/n1.yaml": "id: 1\nfacts: [slow]\n"}, nil,
			func(b map[string]string, slot string) bool { return b[slot] == "n1" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, f := t.TempDir(), cluster(4, 4, 4)
			f["jobs/_.yaml"] = "uses: {cpu: 0.5}\navoid: [slow]\n"
			for i := range 30 {
				f[fmt.Sprintf("jobs/j%d.yaml", i)] = "replicas: 3\npolicy: spread(rack)\n"
			}
			f.write(t, dir)
			placed(t, dir, Options{})
			before := where(t, dir)
			c.change.write(t, dir)
			for _, name := range c.remove {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			placed(t, dir, Options{})
			after := where(t, dir)
			if len(after) != len(before) {
				t.Errorf("%d slots were %d", len(after), len(before))
			}
			for slot, n := range after {
				if (n != before[slot]) != c.moves(before, slot) {
					t.Errorf("%s was on %s and is on %s", slot, before[slot], n)
				}
			}
			for i := range 30 {
				if got := racksOf(t, dir, fmt.Sprintf("j%d", i)); !slices.Equal(got, []string{"r0", "r1", "r2"}) {
					t.Errorf("j%d is in %v", i, got)
				}
			}
		})
	}
}

func rename(t *testing.T, dir, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		t.Fatal(err)
	}
}

func TestANodeThatMovesBetweenRacksStaysItself(t *testing.T) {
	dir, f := t.TempDir(), cluster(2, 2)
	f["jobs/a.yaml"] = "policy: pin(n0)\n"
	f.write(t, dir)
	placed(t, dir, Options{})
	rename(t, dir, "nodes/s/r0/n0.yaml", "nodes/s/r1/n0.yaml")
	r := placed(t, dir, Options{})
	if len(r.Changes) != 1 || r.Moves != 0 || r.Changes[0].To != "n0" {
		t.Errorf("got %+v", r)
	}
	if to, err := os.Readlink(filepath.Join(dir, "alloc/a/0")); err != nil || to != "../../nodes/s/r1/n0.yaml" {
		t.Errorf("the link leads to %s, %v", to, err)
	}
}

// TestAJobInThePlaceOfAnother: the directory with one job's slots has the path of a slot of the next job, and vice
// versa.
func TestAJobInThePlaceOfAnother(t *testing.T) {
	dir, f := t.TempDir(), cluster(2, 2)
	for _, name := range []string{"jobs/a/0.yaml", "jobs/a.yaml", "jobs/a/0.yaml"} {
		if err := os.RemoveAll(filepath.Join(dir, "jobs")); err != nil {
			t.Fatal(err)
		}
		f.write(t, dir)
		files{name: "replicas: 1\n"}.write(t, dir)
		placed(t, dir, Options{})
		if at := where(t, dir); len(at) != 1 {
			t.Errorf("%s: %v", name, at)
		}
	}
}

// TestTheRulesDomainsHold: slots that come into one rack because a node moves are spread again.
func TestTheRulesDomainsHold(t *testing.T) {
	dir, f := t.TempDir(), cluster(2, 2, 2)
	f["jobs/a.yaml"] = "replicas: 3\npolicy: spread(rack)\n"
	f.write(t, dir)
	placed(t, dir, Options{})
	s := loadAt(t, dir)
	moved, other := s.Job("a").Slots[1].Node, s.Job("a").Slots[0].Node.Parent
	rename(t, dir, moved.Path, other.Path+"/"+moved.Name+".yaml")
	if r := placed(t, dir, Options{}); r.Moves != 1 {
		t.Errorf("got %+v", r)
	}
	if got := racksOf(t, dir, "a"); !slices.Equal(got, []string{"r0", "r1", "r2"}) {
		t.Errorf("the racks are %v", got)
	}
	if r := placed(t, dir, Options{}); len(r.Changes) != 0 {
		t.Errorf("then it changes %+v", r)
	}
}

func TestRebalancingTwiceChangesNothing(t *testing.T) {
	dir, f := t.TempDir(), cluster(4, 4)
	for i := range 20 {
		f[fmt.Sprintf("jobs/j%d.yaml", i)] = "replicas: 2\npolicy: spread(rack)\nuses: {cpu: 1}\n"
	}
	f.write(t, dir)
	placed(t, dir, Options{})
	files{"nodes/s/r1/new.yaml": "id: 50\nweight: 3\n"}.write(t, dir)
	if r := placed(t, dir, Options{}); len(r.Changes) != 0 {
		t.Errorf("a new node moves %+v", r.Changes)
	}
	r := placed(t, dir, Options{Rebalance: true})
	if r.Moves == 0 || r.Moves > 20 {
		t.Errorf("%d of %d slots move to the new node", r.Moves, r.Slots)
	}
	for _, o := range []Options{{Rebalance: true}, {}} {
		if r := placed(t, dir, o); len(r.Changes) != 0 {
			t.Errorf("again, %+v", r.Changes)
		}
	}
}

func TestTooFewNodes(t *testing.T) {
	for _, c := range []struct{ name, job, want string }{
		{"fewer than it needs", "replicas: 5", "jobs/a.yaml: the job needs 5 nodes at least, and 4 can be had"},
		{"of a fact that nobody has", "require: [gpu]", "4 not of the facts require gpu"},
		{"of more than anybody has", "uses: {cpu: 11}", "4 without enough cpu"},
		{"of something that nobody counts", "uses: {gpu: 1}", "4 without enough gpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, f := t.TempDir(), cluster(2, 2)
			f["jobs/a.yaml"], f["jobs/fits.yaml"] = c.job+"\n", "replicas: 1\n"
			f.write(t, dir)
			_, err := Decide(loadAt(t, dir), Options{})
			if !errors.Is(err, croft.NoCapacity) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	dir, f := t.TempDir(), cluster(2, 2)
	f["jobs/a.yaml"] = "replicas: {want: 6, min: 3}\n"
	f.write(t, dir)
	if r := placed(t, dir, Options{}); len(r.Changes) != 4 || len(r.Warnings) != 1 {
		t.Errorf("between least and wanted: %+v", r)
	}
}

// TestAPolicyThatSaysHostWhereNoDirectoryIsOneIsWarnedOf: types depend on depth, so the author may consider a directory
// a host.
func TestAPolicyThatSaysHostWhereNoDirectoryIsOneIsWarnedOf(t *testing.T) {
	for _, c := range []struct {
		name, job, nodes string
		warned           bool
	}{
		{"each node counts as a host, and a directory has two", "policy: spread(host)", "", true},
		{"in a policy's own words", "policy: select 0 host; take 1", "", true},
		{"another type", "policy: spread(rack)", "", false},
		{"a preset whose own text says host", "policy: pair(rack)", "", false},
		{"the policy of jobs that give none", "", "", false},
		{"the directory is a host", "policy: spread(host)", "type: host\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, f := t.TempDir(), cluster(2, 2)
			f["jobs/a.yaml"] = "replicas: 2\n" + c.job + "\n"
			if c.nodes != "" {
				for path := range f {
					if strings.Count(path, "/") == 3 && strings.HasSuffix(path, "/_.yaml") {
						f[path] += c.nodes
					}
				}
			}
			f.write(t, dir)
			s := loadAt(t, dir)
			list, err := Check(s)
			if err != nil || (len(list) == 1) != c.warned {
				t.Fatalf("%v, %v", list, err)
			}
			r := placed(t, dir, Options{})
			if len(r.Warnings) != len(list) {
				t.Errorf("place warns of %q, lint of %v", r.Warnings, list)
			}
			if c.warned && (!strings.Contains(list[0].Text, "has several nodes") || list[0].At.Line != 2) {
				t.Errorf("it says %s", list[0])
			}
		})
	}
}

func TestPrioritiesGoFirst(t *testing.T) {
	dir, f := t.TempDir(), cluster(1, 1)
	f["jobs/_.yaml"] = "uses: {cpu: 10}\nreplicas: {want: 1, min: 0}\n"
	f["jobs/a.yaml"], f["jobs/b.yaml"], f["jobs/c.yaml"] = "", "", "priority: 5\n"
	f.write(t, dir)
	placed(t, dir, Options{})
	if at := where(t, dir); at["c/0"] == "" || at["a/0"] == "" || at["b/0"] != "" {
		t.Errorf("got %v", at)
	}
}

func TestBalance(t *testing.T) {
	spread := func(balance int) (least, most int) {
		dir, f := t.TempDir(), cluster(5, 5, 5)
		for i := range 100 {
			f[fmt.Sprintf("jobs/j%d.yaml", i)] = fmt.Sprintf("balance: %d\n", balance)
		}
		f.write(t, dir)
		placed(t, dir, Options{})
		on := map[string]int{}
		for _, n := range where(t, dir) {
			on[n]++
		}
		least = 100
		for i := range 15 {
			n := on[fmt.Sprintf("n%d", i)]
			least, most = min(least, n), max(most, n)
		}
		return least, most
	}
	least, most := spread(1)
	leastOf4, mostOf4 := spread(4)
	t.Logf("100 jobs on 15 nodes: %d to %d, the least loaded of 4 candidates %d to %d", least, most, leastOf4, mostOf4)
	if mostOf4-leastOf4 >= most-least || mostOf4-leastOf4 > 4 {
		t.Errorf("%d to %d without balance, %d to %d with it", least, most, leastOf4, mostOf4)
	}
}

func TestFilteredTreesKeepTheirIDs(t *testing.T) {
	dir, f := t.TempDir(), cluster(3, 3)
	f["nodes/s/r0/n1.yaml"], f["nodes/s/r1/n4.yaml"] = "id: 1\nfacts: [ssd]\n", "id: 4\nfacts: {ssd: true}\n"
	f["jobs/a.yaml"] = "require: [ssd]\nreplicas: 2\n"
	f.write(t, dir)
	if r := placed(t, dir, Options{}); r.IDs == nil {
		t.Error("no ids were given")
	}
	at := where(t, dir)
	if got := min(at["a/0"], at["a/1"]) + max(at["a/0"], at["a/1"]); got != "n1n4" {
		t.Errorf("got %v", got)
	}
	ids := loadAt(t, dir).IDs
	if len(ids.Filters["require ssd"]) != 4 || ids.NextBucket != -9 {
		t.Errorf("the ids are %+v", ids)
	}
}

// TestRandomClusters checks invariants: a second run and another order of the files change nothing; no job has two
// slots on one node; no node exceeds its capacity; only slots of nodes that are out move.
func TestRandomClusters(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	policies := []string{"spread(host)", "spread(rack)", "take 0", "across(rack, 2, 1)", "across(rack, 1, 2)",
		"use r0; take 1; emit; select -1 rack; take 1", "select 1 rack; take 1", "local-first(r1, 1, s)", "every"}
	for range 40 {
		dir, f := t.TempDir(), cluster(1+random.IntN(4), 1+random.IntN(4), 1+random.IntN(4))
		jobs := 1 + random.IntN(12)
		for i := range jobs {
			text := fmt.Sprintf("policy: %q\npriority: %d\nbalance: %d\nuses: {cpu: %d}\n",
				policies[random.IntN(len(policies))], random.IntN(3), 1+random.IntN(3), random.IntN(5))
			text += []string{"", "", "ports: ['80:80']\n", "ports: ['10.0.0.${slot}:80:80', '81:81']\n",
				"ports: ['9${node.id}:1', '8${slot}:1']\n"}[random.IntN(5)]
			if !strings.Contains(text, "every") {
				text += fmt.Sprintf("replicas: {want: %d, min: 0}\n", random.IntN(5))
			}
			f[fmt.Sprintf("jobs/j%d.yaml", i)] = text
		}
		f.write(t, dir)
		for step := range 6 {
			before := where(t, dir)
			s := loadAt(t, dir)
			shuffled := *s
			shuffled.Jobs = slices.Clone(s.Jobs)
			random.Shuffle(len(shuffled.Jobs), func(i, j int) {
				shuffled.Jobs[i], shuffled.Jobs[j] = shuffled.Jobs[j], shuffled.Jobs[i]
			})
			r, err := Decide(s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Decide(&shuffled, Options{}); err != nil || !reflect.DeepEqual(r.Changes, again.Changes) {
				t.Fatalf("in another order, %+v instead of %+v (%v)", again, r, err)
			}
			if err := r.Write(dir); err != nil {
				t.Fatal(err)
			}
			if again := placed(t, dir, Options{}); len(again.Changes) > 0 {
				t.Fatalf("step %d: the second run changes %+v after %+v", step, again.Changes, r.Changes)
			}
			checkPlaced(t, loadAt(t, dir), before, r)
			turn(t, random, dir)
		}
	}
}

// turn changes the state of a random node, or moves the node to another rack.
func turn(t *testing.T, random *rand.Rand, dir string) {
	s := loadAt(t, dir)
	n := s.Leaves[random.IntN(len(s.Leaves))]
	if random.IntN(4) == 0 {
		rename(t, dir, n.Path, fmt.Sprintf("nodes/s/r%d/%s.yaml", random.IntN(3), n.Name))
		return
	}
	text := fmt.Sprintf("id: %d\nstate: %s\n", n.ID, []string{"up", "up", "out", "maintenance"}[random.IntN(4)])
	files{n.Path: text}.write(t, dir)
}

func checkPlaced(t *testing.T, s *state.State, before map[string]string, r *Result) {
	t.Helper()
	used := map[*state.Node]int64{}
	for _, j := range s.Jobs {
		on := map[*state.Node]bool{}
		for _, slot := range j.Slots {
			if on[slot.Node] {
				t.Errorf("%s has two slots on %s", j.Name, slot.Node.Name)
			}
			on[slot.Node] = true
			used[slot.Node] += j.Uses["cpu"]
			if slot.Node.State == state.Out {
				t.Errorf("%s has %s, which is out", j.Name, slot.Node.Name)
			}
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for n, cpu := range used {
		if cpu > n.Capacity["cpu"] {
			t.Errorf("%s has %d of %d cpu", n.Name, cpu, n.Capacity["cpu"])
		}
	}
	for _, c := range r.Changes {
		byRule := strings.HasPrefix(c.Reason, "the rule")
		if n := s.Node(c.From); n != nil && n.State == state.Up && c.To != "" && c.To != c.From && !byRule {
			t.Errorf("%+v moved from a node that is up", c)
		}
		if before[fmt.Sprintf("%s/%d", c.Job, c.Slot)] != c.From {
			t.Errorf("%+v: it was on %s", c, before[fmt.Sprintf("%s/%d", c.Job, c.Slot)])
		}
	}
}

func TestANodeWhoseFileIsRemovedStaysInTheRoster(t *testing.T) {
	files := files{
		"cluster.yaml": "id: '0123456789abcdef0123456789abcdef'\nruntime: process\nstate_dir: /s\n",
		"nodes/_.yaml": "id: -1\n", "nodes/a.yaml": "id: 0\naddress: a.example\nuser: ops\n",
		"nodes/b.yaml": "id: 1\n", "nodes/spare.yaml": "id: 2\nweight: 0.001\n",
		"jobs/db.yaml": "replicas: 2\nimage: {rootfs: /srv}\ncommand: [/db]\nrequire: []\n",
	}
	dir := t.TempDir()
	files.write(t, dir)
	placed := func() *state.State {
		t.Helper()
		s, err := state.Load(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Decide(s, Options{})
		if err == nil {
			err = r.Write(dir)
		}
		if err == nil {
			s, err = state.Load(t.Context(), dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	names := func(s *state.State) (list []string) {
		for _, n := range s.Left() {
			list = append(list, n.Name)
		}
		return list
	}
	s := placed()
	if got := names(s); len(got) > 0 {
		t.Errorf("all have files, and left are %v", got)
	}
	text, _ := os.ReadFile(filepath.Join(dir, state.RosterFile))
	if err := os.Remove(filepath.Join(dir, "nodes/a.yaml")); err != nil {
		t.Fatal(err)
	}
	s = placed()
	want := unit.Node{Name: "a", Address: "a.example", User: "ops", StateDir: "/s", State: state.Left,
		Units: []unit.Unit{}}
	if l := s.Left(); !reflect.DeepEqual(l, []unit.Node{want}) {
		t.Errorf("left are %+v, want %+v; the file was %s", l, want, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "nodes/renamed.yaml"), []byte(files["nodes/a.yaml"]), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := names(placed()); len(got) > 0 {
		t.Errorf("the node was renamed, and left are %v", got)
	}
}

// TestALinkToARemovedNodeIsARecordOfIt: a program without a roster placed the cluster.
func TestALinkToARemovedNodeIsARecordOfIt(t *testing.T) {
	s := &state.State{Orphans: []state.Slot{{Job: "db", Target: "nodes/r1/web1.yaml"}}}
	if text := s.RosterText(nil); !strings.Contains(text, "\n\"web1\": {id: 0}\n") {
		t.Errorf("the roster is %q", text)
	}
}
