package mutants_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"croft/test/mutants"
)

// The settings of a run.
const (
	budgetEnv   = "CROFT_MUTANTS"          // time limit, such as 10m
	packagesEnv = "CROFT_MUTANTS_PACKAGES" // packages to mutate, instead of rooms
	onlyEnv     = "CROFT_MUTANTS_ONLY"     // a regular expression of mutants' keys
	testsEnv    = "CROFT_MUTANTS_TESTS"    // more packages whose tests run, in addition to each package's own
)

// rooms are the packages in which a mistake can lose an instance, a machine, a job or a right; /... stands for the
// packages below.
const rooms = "./schedule ./hosts ./hosts/audit ./tenant ./etcdstore/... ./compute ./placementclient ./placement " +
	"./placement/ledger ./pool/... ./cluster/... ./grid/watch/... ./grid/revlock/... ./grid/apply/... ./grid/ipam/... " +
	"./grid/sshca/... ./control/federation/... ./control/feed ./internal/durable"

// leastShare is the minimum time for one package: compiling and measuring its tests takes a part of it.
const leastShare = 90 * time.Second

const file = "../../build/mutants.jsonl"

// TestNoMistakeGoesUnnoticed lists the mistakes that no test detects. Mistakes detected in an earlier run are not tried
// again while build/mutants.jsonl lists them.
func TestNoMistakeGoesUnnoticed(t *testing.T) {
	text := os.Getenv(budgetEnv)
	if text == "" {
		t.Skipf("set %s to how long mistakes may be tried, such as 10m", budgetEnv)
	}
	budget, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", budgetEnv, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(os.Getenv(packagesEnv))
	sampled := len(packages) == 0
	if sampled { // there are too many for one run: each run takes a random sample of packages, and of mistakes in them
		packages = expand(t, root, rooms)
		rand.Shuffle(len(packages), func(i, j int) { packages[i], packages[j] = packages[j], packages[i] })
	}
	accepted, known := acceptedOnes(t), remembered(t)
	notes := memory(t)
	defer notes.Close()
	for i, pkg := range packages {
		if ctx.Err() != nil {
			t.Logf("no time was left for %s", strings.Join(packages[i:], ", "))
			break
		}
		share, done := ctx, context.CancelFunc(func() {})
		if sampled {
			share, done = context.WithTimeout(ctx, max(leastShare, budget/time.Duration(len(packages))))
		}
		counts := map[string]int{}
		err := mutants.Run(share, mutants.Config{
			Root: root, Package: pkg, Tests: append(testsOf(t, root, pkg), strings.Fields(os.Getenv(testsEnv))...),
			Dir:  t.TempDir(),
			Only: os.Getenv(onlyEnv), Known: known, Say: t.Logf,
			Done: func(m mutants.Mutant, outcome string) {
				counts[outcome]++
				line, _ := json.Marshal(outcomeOf{m, outcome})
				fmt.Fprintf(notes, "%s\n", line)
				if why, ok := accepted[m.Key]; outcome != mutants.Killed && !ok {
					t.Errorf("%s, line %d: %s", m.Key, m.Line, outcome)
				} else if outcome == mutants.Killed && ok {
					t.Logf("accepted (%s), and is noticed: take it out of accepted.txt: %s", why, m.Key)
				}
			},
		})
		late := share.Err() != nil
		done()
		if err != nil && !late {
			t.Fatal(err)
		}
		t.Logf("%s: %v", pkg, counts)
	}
}

// expand lists the packages of patterns, without those that exist only for tests.
func expand(t *testing.T, root, patterns string) (all []string) {
	t.Helper()
	for _, pattern := range strings.Fields(patterns) {
		top, below := strings.CutSuffix(pattern, "/...")
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil || !d.IsDir():
				return err
			case d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test"):
				return filepath.SkipDir
			}
			relative, err := filepath.Rel(root, path)
			if sources, _ := filepath.Glob(filepath.Join(path, "*.go")); len(sources) > 0 && err == nil {
				all = append(all, "./"+filepath.ToSlash(relative))
			}
			if !below && err == nil {
				return filepath.SkipAll
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// testsOf returns the package whose tests cover a package: the package itself, or the nearest one above it that has
// tests.
func testsOf(t *testing.T, root, pkg string) []string {
	t.Helper()
	for at := pkg; at != "."; at = path.Dir(at) {
		tests, err := filepath.Glob(filepath.Join(root, at, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if len(tests) > 0 {
			return []string{"./" + strings.TrimPrefix(at, "./")}
		}
	}
	t.Fatalf("neither %s nor a package above it has tests", pkg)
	return nil
}

// The rooms must not silently lose a package that was moved.
func TestTheRoomsAreThere(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := expand(t, root, rooms)
	for _, want := range []string{"./pool", "./pool/vm", "./etcdstore", "./etcdstore/clusters", "./cluster/manager",
		"./grid/watch", "./grid/revlock", "./grid/apply", "./grid/ipam", "./grid/sshca", "./control/federation",
		"./control/feed"} {
		if !slices.Contains(all, want) {
			t.Errorf("no mistakes are made in %s", want)
		}
	}
	for _, pkg := range all {
		testsOf(t, root, pkg)
	}
}

type outcomeOf struct {
	mutants.Mutant
	Outcome string `json:"outcome"`
}

// remembered returns the outcomes of earlier runs.
func remembered(t *testing.T) map[string]string {
	known := map[string]string{}
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var o outcomeOf
		if json.Unmarshal([]byte(line), &o) == nil {
			known[o.Key] = o.Outcome
		}
	}
	return known
}

func memory(t *testing.T) *os.File {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func acceptedOnes(t *testing.T) map[string]string {
	f, err := os.Open("accepted.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]string{}
	for scan := bufio.NewScanner(f); scan.Scan(); {
		line := scan.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, why, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(why) == "" {
			t.Errorf("accepted.txt gives no reason for %s", key)
		}
		all[key] = why
	}
	return all
}

// Mutated files are valid Go, and each kind of mistake occurs.
func TestMutate(t *testing.T) {
	source := `package p

func f(a, b int, x, y bool) error {
	if err := g(); err != nil {
		return err
	}
	if err := h(a); err != nil {
		return err
	}
	if a < b && x || !y {
		k()
	}
	if x {
		return errors.Join(err, f.Sync())
	}
	etcd.Txn(ctx).If(unchanged(k, a), absent(k)).Then(append(list, clientv3.OpPut(k, v))...)
	return nil
}
`
	text, all, err := mutants.Mutate("p/p.go", []byte(source), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := mutants.Mutate("p/p.go", []byte(text), 1, nil); err != nil {
		t.Errorf("it is no Go: %v\n%s", err, text)
	}
	var keys []string
	for _, m := range all {
		keys = append(keys, strings.TrimPrefix(m.Key, "p/p.go f: "))
	}
	for _, want := range []string{
		"err != nil -> ignored", "err != nil -> ignored #2", "err := g() -> left out",
		"err := g() and err := h(a) -> swapped", "a < b -> negated", "a < b -> <=",
		"a < b in a < b && x -> dropped", "!y in a < b && x || !y -> dropped", "k() -> left out", "x -> not",
		"f.Sync() -> left out",
		"unchanged(k, a) -> dropped from the transaction", "absent(k) -> dropped from the transaction",
		"clientv3.OpPut(k, v) -> dropped from the transaction",
	} {
		if !slices.Contains(keys, want) {
			t.Errorf("no mistake %q among\n%s", want, strings.Join(keys, "\n"))
		}
	}
	if strings.Index(text, "h(a)") < strings.Index(text, "g()") {
		t.Errorf("the original comes second, so that lines move:\n%s", text)
	}
}
