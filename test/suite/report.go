package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is one line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// report collects the events of several go test commands and prints each package when it ends.
type report struct {
	out io.Writer

	mu      sync.Mutex
	ended   []test
	sampled []string // tests that tried only some of their cases
}

// stream is the output of one go test; another may run other tests of the same package.
type stream struct {
	*report
	packages map[string]*pkg // in progress
	failures []failure       // of packages that have ended
	hard     []string        // failures that a busy machine cannot cause
	took     time.Duration   // of its command
	busy     time.Duration   // of processors, by the command and its waited-for children
}

// failure names a test that failed by its own check: a test by its top-level name, or a script of TestScripts.
type failure struct{ pkg, name string }

func (f failure) String() string { return f.pkg + " " + f.name }

// pkg is a package in progress.
type pkg struct {
	text  strings.Builder // output of no particular test
	sign  string          // the first sign of a fault in the output of any test
	race  string          // the head of a report of the race detector that has not ended yet
	tests map[string]*test
	order []*test
}

// test is a test or a subtest.
type test struct {
	pkg, name string
	text      strings.Builder
	result    string        // pass, skip or fail; empty: running
	elapsed   time.Duration // including its subtests
	subtests  time.Duration
}

func newReport(out io.Writer) *report {
	return &report{out: out}
}

func (r *report) stream() *stream {
	return &stream{report: r, packages: map[string]*pkg{}}
}

// read reads the output of one go test until it ends. Lines that are not events are passed on.
func (s *stream) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *stream) line(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprintf(s.out, "%s", line)
		return
	}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(s.out, e.Output)
	case e.Action == "build-fail":
		s.hard = append(s.hard, e.ImportPath+": does not build")
	case e.Test != "":
		s.ofTest(e)
	case e.Package != "":
		s.ofPackage(e)
	}
}

func (s *stream) pkg(path string) *pkg {
	p := s.packages[path]
	if p == nil {
		p = &pkg{tests: map[string]*test{}}
		s.packages[path] = p
	}
	return p
}

func (s *stream) ofTest(e event) {
	p := s.pkg(e.Package)
	t := p.tests[e.Test]
	if t == nil {
		t = &test{pkg: e.Package, name: e.Test}
		p.tests[e.Test] = t
		p.order = append(p.order, t)
	}
	switch e.Action {
	case "output":
		t.text.WriteString(e.Output)
		p.look(e.Output)
		if _, what, ok := strings.Cut(e.Output, "sampled: "); ok { // by croft/internal/testing/sample
			s.sampled = append(s.sampled, t.pkg+" "+t.name+": "+strings.TrimSpace(what))
		}
	case "pass", "skip", "fail":
		t.result = e.Action
		t.elapsed = time.Duration(e.Elapsed * float64(time.Second))
		if i := strings.LastIndex(e.Test, "/"); i > 0 && p.tests[e.Test[:i]] != nil {
			p.tests[e.Test[:i]].subtests += t.elapsed
		}
		if t.good() {
			t.text.Reset()
		}
	}
}

func (s *stream) ofPackage(e event) {
	p := s.pkg(e.Package)
	switch e.Action {
	case "output":
		if e.Output != "PASS\n" {
			p.text.WriteString(e.Output)
			p.look(e.Output)
		}
	case "pass", "skip", "fail":
		if e.Action == "fail" {
			s.judge(e.Package, p)
			for _, t := range p.order {
				if !t.good() { // failed, or did not end
					fmt.Fprint(s.out, t.text.String())
				}
			}
		}
		fmt.Fprint(s.out, p.text.String())
		for _, t := range p.order {
			s.ended = append(s.ended, *t)
		}
		delete(s.packages, e.Package)
	}
}

func (t *test) good() bool { return t.result == "pass" || t.result == "skip" }

// signs are texts that go test, the runtime and goleak print when a test program is at fault, independently of the
// machine's load.
var signs = []string{
	"race detected", "panic:", "fatal error:", "test timed out", "unexpected goroutines", "goleak:",
	"[build failed]", "[setup failed]", "\nsignal:", "\nexit status 2", // scripts indent theirs
}

// look records the first sign of such a fault. A data race is a fault unless its report names only code of other
// modules, which a test may have copied from the log of a process. In that case the test that failed because of it is
// judged like any other.
func (p *pkg) look(output string) {
	for _, sign := range signs {
		if p.sign == "" && strings.Contains("\n"+output, sign) {
			p.sign = strings.TrimSpace(output)
		}
	}
	switch {
	case strings.Contains(output, "DATA RACE"):
		p.race = cmp.Or(p.race, strings.TrimSpace(output))
	case p.race != "" && strings.Contains(output, "croft/"):
		p.sign = cmp.Or(p.sign, p.race)
	case strings.Contains(output, "=================="):
		p.race = ""
	}
}

// judge sorts the failures of a package.
func (s *stream) judge(path string, p *pkg) {
	var failures []failure
	p.sign = cmp.Or(p.sign, p.race) // its report was cut off
	for _, t := range p.order {
		if t.good() {
			continue
		}
		if t.result == "" && p.sign == "" {
			p.sign = t.name + " did not end"
		}
		top, script, sub := strings.Cut(t.name, "/")
		f := failure{path, top}
		if top == "TestScripts" && sub { // scripts are independent of each other
			f.name += "/" + script
			failures = slices.DeleteFunc(failures, func(f failure) bool { return f.name == top })
		}
		if !slices.Contains(failures, f) {
			failures = append(failures, f)
		}
	}
	switch {
	case p.sign != "":
		s.hard = append(s.hard, path+": "+p.sign)
	case len(failures) == 0:
		s.hard = append(s.hard, path+": failed although no test did")
	default:
		s.failures = append(s.failures, failures...)
	}
}

// listLongest prints the tests that took longest, not counting subtests.
func (r *report) listLongest(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := func(t test) time.Duration { return t.elapsed - t.subtests }
	slices.SortStableFunc(r.ended, func(a, b test) int { return cmp.Compare(own(b), own(a)) })
	n = min(n, len(r.ended))
	fmt.Fprintf(r.out, "\nthe %d longest of %d tests:\n", n, len(r.ended))
	for _, t := range r.ended[:n] {
		fmt.Fprintf(r.out, "%7.1fs  %s  %s\n", own(t).Seconds(), t.pkg, t.name)
	}
}

// listSampled prints which tests tried some of their cases only.
func (r *report) listSampled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.sampled)
	list(r.out, "sampled: tried some of their cases", r.sampled)
}
