package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Classification of failures: a test's own failed checks may be due to the machine, all other failures never are.
func TestJudgement(t *testing.T) {
	for _, c := range []struct {
		name, events string
		failures     []failure
		hard         []string
	}{
		{"a test counts once, by its top-level name", `
{"Action":"run","Package":"a","Test":"TestBad"}
{"Action":"run","Package":"a","Test":"TestBad/one"}
{"Action":"run","Package":"a","Test":"TestBad/two"}
{"Action":"fail","Package":"a","Test":"TestBad/one"}
{"Action":"fail","Package":"a","Test":"TestBad/two"}
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"skip","Package":"a","Test":"TestNone"}
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Output":"exit status 1\n"}
{"Action":"fail","Package":"a"}
`, []failure{{"a", "TestBad"}}, nil},
		{"scripts count one by one", `
{"Action":"run","Package":"a","Test":"TestScripts"}
{"Action":"pass","Package":"a","Test":"TestScripts/good"}
{"Action":"fail","Package":"a","Test":"TestScripts/one"}
{"Action":"output","Package":"a","Test":"TestScripts/one","Output":"        [exit status 2]\n"}
{"Action":"fail","Package":"a","Test":"TestScripts/two"}
{"Action":"fail","Package":"a","Test":"TestScripts"}
{"Action":"fail","Package":"a"}
`, []failure{{"a", "TestScripts/one"}, {"a", "TestScripts/two"}}, nil},
		{"scripts that did not begin are all that failed", `
{"Action":"fail","Package":"a","Test":"TestScripts"}
{"Action":"fail","Package":"a"}
`, []failure{{"a", "TestScripts"}}, nil},
		{"a data race is a fault", `
{"Action":"output","Package":"a","Test":"TestOther","Output":"WARNING: DATA RACE\n"}
{"Action":"pass","Package":"a","Test":"TestOther"}
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"fail","Package":"a"}
`, nil, []string{"a: WARNING: DATA RACE"}},
		{"so is one of ours in the log of a process", `
{"Action":"output","Package":"a","Test":"TestBad","Output":"    ==================\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"    WARNING: DATA RACE\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"          croft/pool.(*Manager).run()\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"    ==================\n"}
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"fail","Package":"a"}
`, nil, []string{"a: WARNING: DATA RACE"}},
		{"one between functions of another module alone is not ours", `
{"Action":"output","Package":"a","Test":"TestBad","Output":"    ==================\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"    WARNING: DATA RACE\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"      go.etcd.io/etcd/server/v3@v3.7.3/etcdserver/server.go:2406\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"    ==================\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"    croft/pool: said later\n"}
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"fail","Package":"a"}
`, []failure{{"a", "TestBad"}}, nil},
		{"so is a panic", `
{"Action":"output","Package":"a","Test":"TestBad","Output":"panic: no [recovered]\n"}
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"fail","Package":"a"}
`, nil, []string{"a: panic: no [recovered]"}},
		{"so is a run over its time", `
{"Action":"output","Package":"a","Test":"TestBad","Output":"panic: test timed out after 30m0s\n"}
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"fail","Package":"a"}
`, nil, []string{"a: panic: test timed out after 30m0s"}},
		{"so is a goroutine that is left", `
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Output":"goleak: Errors on successful test run: found unexpected goroutines:\n"}
{"Action":"fail","Package":"a"}
`, nil, []string{"a: goleak: Errors on successful test run: found unexpected goroutines:"}},
		{"so is a program that is killed", `
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"output","Package":"a","Output":"signal: killed\n"}
{"Action":"fail","Package":"a"}
`, nil, []string{"a: signal: killed"}},
		{"so is a test that does not end", `
{"Action":"run","Package":"a","Test":"TestBad"}
{"Action":"fail","Package":"a"}
`, nil, []string{"a: TestBad did not end"}},
		{"so is a package that fails without a test", `
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"fail","Package":"a"}
`, nil, []string{"a: failed although no test did"}},
		{"so is code that does not build", `
{"ImportPath":"a","Action":"build-fail"}
{"Action":"output","Package":"a","Output":"FAIL\ta [build failed]\n"}
{"Action":"fail","Package":"a"}
`, nil, []string{"a: does not build", "a: FAIL\ta [build failed]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newReport(&bytes.Buffer{}).stream()
			if err := s.read(strings.NewReader(strings.TrimPrefix(c.events, "\n"))); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.failures, s.failures, cmp.AllowUnexported(failure{})); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.hard, s.hard); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestATestRunsAloneWithTheFlagsOfItsStream(t *testing.T) {
	got := alone(strings.Fields("nice -n 5 go test -race -json -short -p=3 -skip=^TestScripts$ croft croft/a ./b"),
		failure{"croft/a", "TestScripts/one.two"})
	want := strings.Fields(`go test -race -json -short -p=3 -count=1 -run=^(TestScripts)$/^(one\.two)$ croft/a`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRun runs go test on a module whose tests fail as specified: "always", or "once", at their first run.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		tests map[string]string // how each test fails
		ok    bool
		want  []string // in this order
		never string
	}{
		{"what passes is not run again", map[string]string{"A": "never"}, true,
			[]string{"ok  \t", "in all"}, "again"},
		{"what passes alone is unsteady, and its failure is shown",
			map[string]string{"A": "once", "B": "never"}, true,
			[]string{"fails once", "--- FAIL: TestA", "the 2 longest", "==> m TestA failed; again, alone:", "ok  \t",
				"unsteady: failed beside other work, passed alone:\n  m TestA\n"}, "broken"},
		{"what fails alone as well is broken", map[string]string{"A": "once", "B": "always"}, false,
			[]string{"==> m TestB failed; again, alone:", "fails always", "unsteady", "m TestA",
				"broken: failed beside other work, failed alone:\n  m TestB\n"}, ""},
		{"some may be unsteady", map[string]string{"A": "once", "B": "once", "C": "once"}, true,
			[]string{"m TestA\n  m TestB\n  m TestC\n"}, "broken"},
		{"six are too many", map[string]string{"A": "once", "B": "once", "C": "once", "D": "once", "E": "once",
			"F": "once"}, false, []string{"no test is run again, since 6 failed, more than 5"}, "alone:"},
		{"a panic is not tried again", map[string]string{"A": "panic"}, false,
			[]string{"no test is run again, since not only tests failed:\n  m: panic:"}, "alone:"},
		{"a skip is no pass", map[string]string{"A": "skip"}, false, []string{"broken"}, "unsteady"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			ok := run(t.Context(), &out, [][]string{{"go", "test", "-C=" + module(t, c.tests), "-json", "."}}, 10)
			if ok != c.ok {
				t.Errorf("passed: %v, want %v", ok, c.ok)
			}
			rest := out.String()
			for _, want := range c.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("no %q where it belongs in:\n%s", want, &out)
				}
				rest = after
			}
			if c.never != "" && strings.Contains(out.String(), c.never) {
				t.Errorf("%q in:\n%s", c.never, &out)
			}
		})
	}
}

func module(t *testing.T, tests map[string]string) string {
	dir := t.TempDir()
	code := `package m

import (
	"os"
	"testing"
)

func fail(t *testing.T, how string) {
	file := "ran" + t.Name()
	_, err := os.Stat(file)
	os.WriteFile(file, nil, 0o600)
	switch {
	case how == "panic":
		panic("at the disco")
	case how == "skip" && err == nil:
		t.Skip("not today")
	case how == "always", how != "never" && err != nil:
		t.Errorf("fails %s", how)
	}
}
`
	for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
		if how, ok := tests[name]; ok {
			code += "\nfunc Test" + name + "(t *testing.T) { fail(t, \"" + how + "\") }\n"
		}
	}
	for name, content := range map[string]string{"go.mod": "module m\n\ngo 1.26\n", "m_test.go": code} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A go test that runs no test at all, or cannot run, always fails the run.
func TestACommandThatFailsWithoutATestFailsTheRun(t *testing.T) {
	var out bytes.Buffer
	if run(t.Context(), &out, [][]string{{"go", "test", "-json", "./none"}}, 10) {
		t.Errorf("passed: %s", &out)
	}
	if failedTests(errors.New("no")) || failedTests(exec.Command("sh", "-c", "exit 2").Run()) {
		t.Error("a command that fails for a reason of its own passes for one whose tests failed")
	}
}

func TestACommandOfAnotherKindThatFailsEndsTheRun(t *testing.T) {
	var out bytes.Buffer
	if run(t.Context(), &out, [][]string{{"sh", "-c", "echo not as gofmt has it; exit 1"}, {"sleep", "3600"}}, 10) {
		t.Errorf("passed: %s", &out)
	}
	if !strings.Contains(out.String(), "not as gofmt has it\n") || strings.Contains(out.String(), "again") {
		t.Errorf("it says:\n%s", &out)
	}
}
