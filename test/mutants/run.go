package mutants

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config selects the mutants to try.
type Config struct {
	Root    string   // of the module
	Package string   // to mutate, such as ./etcdstore
	Tests   []string // packages whose tests run; the package's own by default
	Only    string   // regular expression of mutants' keys; all by default
	Dir     string   // for binaries
	Say     func(format string, args ...any)
	Known   map[string]string // outcomes of an earlier run, by key: killed ones are not tried again
	Done    func(Mutant, string)
}

const (
	sideBySide = 2                      // mistakes tried concurrently: most tests wait more than they compute
	quick      = 300 * time.Millisecond // faster tests run first
)

// The outcomes of a mutant.
const (
	Killed    = "killed"
	Survived  = "survived"
	Unreached = "unreached" // no test reaches it
)

// A suite is the test binary of one package, with all mistakes compiled in.
type suite struct {
	binary, dir string
	tests       []test
}

// A test is one test of a suite.
type test struct {
	name    string
	took    time.Duration // as it reports itself
	reaches map[int]bool
}

// Run tries each mutant until ctx ends, and reports each outcome by c.Done.
func Run(ctx context.Context, c Config) error {
	if len(c.Tests) == 0 {
		c.Tests = []string{c.Package}
	}
	all, suites, err := c.build(ctx)
	if err != nil {
		return err
	}
	only, err := regexp.Compile(c.Only)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m Mutant) bool { return !only.MatchString(m.Key) || c.Known[m.Key] == Killed })
	c.Say("%s: %d mistakes to try", c.Package, len(all))
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) // when time runs out, a random sample
	for i := range suites {
		if err := suites[i].measure(ctx, c); err != nil {
			return err
		}
	}
	// The quick tests find most mistakes, so they run on all of them first. Mistakes for which ctx leaves no time are
	// not reported.
	var work errgroup.Group
	work.SetLimit(sideBySide)
	var mu sync.Mutex // guards left, and serializes c.Done
	left := all
	for _, slow := range []bool{false, true} {
		these := left
		left = nil
		for _, m := range these {
			work.Go(func() error {
				outcome := try(ctx, suites, m, slow)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case ctx.Err() != nil:
				case outcome == Killed || slow:
					c.Done(m, outcome)
				default:
					left = append(left, m)
				}
				return nil
			})
		}
		_ = work.Wait() // the functions return nil
	}
	return nil
}

// build compiles the suites, leaving out mistakes that do not compile.
func (c Config) build(ctx context.Context) ([]Mutant, []suite, error) {
	skip := map[string]map[int]bool{}
	for range 20 {
		all, overlay, err := c.overlay(skip)
		if err != nil {
			return nil, nil, err
		}
		suites, said, err := c.compile(ctx, overlay)
		if err == nil {
			return all, suites, nil
		}
		if !note(skip, said) {
			return nil, nil, fmt.Errorf("%w\n%s", err, said)
		}
	}
	return nil, nil, errors.New("mutants: it does not compile, whatever is left out")
}

var complaint = regexp.MustCompile(`(?m)^(?:\./)?(\S+\.go):(\d+):\d+:`)

// note adds lines that do not compile to skip; false: all were in it already.
func note(skip map[string]map[int]bool, said string) (more bool) {
	for _, found := range complaint.FindAllStringSubmatch(said, -1) {
		file := filepath.Base(found[1])
		line, _ := strconv.Atoi(found[2])
		if skip[file] == nil {
			skip[file] = map[int]bool{}
		}
		more = more || !skip[file][line]
		skip[file][line] = true
	}
	return more
}

// overlay writes the mutated files of the package, and the overlay file that lists them for go build.
func (c Config) overlay(skip map[string]map[int]bool) (all []Mutant, file string, err error) {
	dir := filepath.Join(c.Root, c.Package)
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, "", err
	}
	replace := map[string]string{}
	pkg := ""
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, "", err
		}
		relative := filepath.ToSlash(filepath.Join(c.Package, filepath.Base(name)))
		text, some, err := Mutate(relative, source, len(all)+1, skip[filepath.Base(name)])
		if err != nil {
			return nil, "", err
		}
		all = append(all, some...)
		changed := filepath.Join(c.Dir, filepath.Base(name))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return nil, "", err
		}
		replace[name] = changed
		parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.PackageClauseOnly)
		if err != nil {
			return nil, "", err
		}
		pkg = parsed.Name.Name
	}
	helper := filepath.Join(c.Dir, "mutants_switches.go")
	if err := os.WriteFile(helper, fmt.Appendf(nil, switches, pkg, len(all)+1), 0o600); err != nil {
		return nil, "", err
	}
	replace[filepath.Join(dir, "mutants_switches.go")] = helper
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	file = filepath.Join(c.Dir, "overlay.json")
	return all, file, os.WriteFile(file, text, 0o600)
}

func (c Config) compile(ctx context.Context, overlay string) (suites []suite, said string, err error) {
	for i, pkg := range c.Tests {
		binary := filepath.Join(c.Dir, fmt.Sprintf("%d.test", i))
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags=-e", "-tags", "libvirt_dlopen",
			"-overlay", overlay, "-o", binary, pkg)
		cmd.Dir = c.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, string(out), fmt.Errorf("compile the tests of %s: %w", pkg, err)
		}
		suites = append(suites, suite{binary: binary, dir: filepath.Join(c.Root, pkg)})
	}
	return suites, "", nil
}

// measure runs each test without mistakes, to find its duration and the mistakes that it reaches.
func (s *suite) measure(ctx context.Context, c Config) error {
	list := exec.CommandContext(ctx, s.binary, "-test.list", "^Test")
	list.Dir = s.dir
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the tests of %s: %w", s.dir, err)
	}
	var work errgroup.Group
	work.SetLimit(sideBySide)
	var mu sync.Mutex // guards s.tests
	for line := range strings.Lines(string(out)) {
		name := strings.TrimSpace(line)
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		work.Go(func() error {
			hits := filepath.Join(c.Dir, "hits of "+name)
			_ = os.Remove(hits) // from the suite before, which may have a test of this name too
			said, err := s.run(ctx, []string{name}, 10*time.Minute, "CROFT_MUTANT_HITS="+hits)
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				c.Say("%s fails without any mistake, and is left out: %v\n%s", name, err, tail(said))
				return nil
			}
			t := test{name: name, took: reported(said), reaches: map[int]bool{}}
			text, _ := os.ReadFile(hits)
			for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
				id, _ := strconv.Atoi(scan.Text())
				t.reaches[id] = true
			}
			if len(t.reaches) > 0 {
				s.tests = append(s.tests, t)
			}
			return nil
		})
	}
	return work.Wait()
}

var took = regexp.MustCompile(`(?m)^--- PASS: \S+ \(([0-9.]+s)\)`)

// reported returns the duration of a test without the start of its process.
func reported(said []byte) (d time.Duration) {
	if found := took.FindSubmatch(said); found != nil {
		d, _ = time.ParseDuration(string(found[1]))
	}
	return d
}

func tail(text []byte) []byte { return text[max(0, len(text)-1500):] }

// try enables one mistake and runs the quick or the slow tests that reach it.
func try(ctx context.Context, suites []suite, m Mutant, slow bool) (outcome string) {
	outcome = Unreached
	for _, s := range suites {
		var names []string
		limit := 10 * time.Second
		for _, t := range s.tests {
			if !t.reaches[m.ID] {
				continue
			}
			outcome = Survived
			if (t.took >= quick) == slow {
				names = append(names, t.name)
				limit += 5 * t.took
			}
		}
		if len(names) == 0 || ctx.Err() != nil {
			continue
		}
		if _, err := s.run(ctx, names, limit, fmt.Sprint("CROFT_MUTANT=", m.ID)); err != nil && ctx.Err() == nil {
			return Killed
		}
	}
	return outcome
}

// run runs some tests of a suite.
func (s *suite) run(ctx context.Context, names []string, limit time.Duration, env ...string) (said []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, "-test.v", "-test.short", "-test.failfast", "-test.count=1", "-test.run",
		"^("+strings.Join(names, "|")+")$")
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), env...)
	cmd.WaitDelay = time.Second // for processes that it started
	return cmd.CombinedOutput()
}
