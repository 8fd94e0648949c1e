package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	for _, c := range []struct{ name, events, want string }{
		{"of a package that passes its line alone is printed", `
{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestOne"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"--- PASS: TestOne (1.50s)\n"}
{"Action":"pass","Package":"a","Test":"TestOne","Elapsed":1.5}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t1.6s\n"}
{"Action":"pass","Package":"a","Elapsed":1.6}
`, `ok  	a	1.6s

the 1 longest of 1 tests:
    1.5s  a  TestOne
`},
		{"of one that fails so are the tests that failed or did not end", `
{"Action":"output","Package":"a","Test":"TestGood","Output":"--- PASS: TestGood (0.10s)\n"}
{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"a","Test":"TestBad","Output":"    a_test.go:1: broken\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"--- FAIL: TestBad (2.00s)\n"}
{"Action":"fail","Package":"a","Test":"TestBad","Elapsed":2}
{"Action":"output","Package":"a","Test":"TestEndless","Output":"panic: test timed out\n"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t3s\n"}
{"Action":"fail","Package":"a","Elapsed":3}
`, `    a_test.go:1: broken
--- FAIL: TestBad (2.00s)
panic: test timed out
FAIL	a	3s

the 2 longest of 3 tests:
    2.0s  a  TestBad
    0.1s  a  TestGood
`},
		{"a test counts without its subtests", `
{"Action":"run","Package":"a","Test":"TestAll"}
{"Action":"run","Package":"a","Test":"TestAll/one"}
{"Action":"pass","Package":"a","Test":"TestAll/one","Elapsed":3}
{"Action":"pass","Package":"a","Test":"TestAll","Elapsed":5}
{"Action":"output","Package":"a","Output":"ok  \ta\t5s\n"}
{"Action":"pass","Package":"a","Elapsed":5}
`, `ok  	a	5s

the 2 longest of 2 tests:
    3.0s  a  TestAll/one
    2.0s  a  TestAll
`},
		{"what the compiler says is printed", `
{"ImportPath":"a","Action":"build-output","Output":"a.go:1: syntax error\n"}
{"ImportPath":"a","Action":"build-fail"}
{"Action":"output","Package":"a","Output":"FAIL\ta [build failed]\n"}
{"Action":"fail","Package":"a","Elapsed":0}
not an event
`, `a.go:1: syntax error
FAIL	a [build failed]
not an event

the 0 longest of 0 tests:
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			s := r.stream()
			if err := s.read(strings.NewReader(strings.TrimPrefix(c.events, "\n"))); err != nil {
				t.Fatal(err)
			}
			r.listLongest(2)
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Error(diff)
			}
			if failed := strings.Contains(c.events, `"fail"`); (len(s.hard)+len(s.failures) > 0) != failed {
				t.Errorf("%q and %v failed, want any: %v", s.hard, s.failures, failed)
			}
		})
	}
}

func TestSamplesAreListed(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	for _, events := range []string{`{"Action":"run","Package":"b","Test":"TestOne"}
{"Action":"output","Package":"b","Test":"TestOne","Output":"    b_test.go:1: sampled: 1 of 3 cases\n"}
{"Action":"pass","Package":"b","Test":"TestOne","Elapsed":1.5}`,
		`{"Action":"output","Package":"a","Test":"TestTwo","Output":"    a_test.go:2: sampled: 2 of 4 cases\n"}`} {
		if err := r.stream().read(strings.NewReader(events)); err != nil {
			t.Fatal(err)
		}
	}
	r.listSampled()
	if diff := cmp.Diff(`
sampled: tried some of their cases:
  a TestTwo: 2 of 4 cases
  b TestOne: 1 of 3 cases
`, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestCommandsAreNamedByTheirPackages(t *testing.T) {
	for command, want := range map[string]string{
		"nice -n 5 go test -json -p=1 croft/a":   "croft/a",
		"go test -json -p=1 croft/a croft/b ./c": "croft/a and 2 more",
		"nice -n 5 scripts/check --once":         "nice -n 5 scripts/check --once",
	} {
		if got := label(strings.Fields(command)); got != want {
			t.Errorf("%q is called %q, want %q", command, got, want)
		}
	}
}

func TestCommandsAreCutAtTheDashes(t *testing.T) {
	got := split([]string{"a", "b", "--", "--", "c"})
	if diff := cmp.Diff([][]string{{"a", "b"}, {"c"}}, got); diff != "" {
		t.Error(diff)
	}
}
