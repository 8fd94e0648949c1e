package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// mostUnsteady is the maximum number of failures in one run that may be due to a busy machine. More are due to the
// code.
const mostUnsteady = 5

// retry judges a run by its ended streams. It repeats failed tests, alone, if a busy machine may be the cause, and
// reports whether all tests have then passed.
func retry(ctx context.Context, out io.Writer, commands [][]string, streams []*stream) bool {
	var hard []string
	failed := 0
	for _, s := range streams {
		hard = append(hard, s.hard...)
		failed += len(s.failures)
	}
	switch {
	case len(hard) == 0 && failed == 0:
		return true
	case ctx.Err() != nil:
		return false
	case len(hard) > 0:
		fmt.Fprintf(out, "\nno test is run again, since not only tests failed:\n  %s\n", strings.Join(hard, "\n  "))
		return false
	case failed > mostUnsteady:
		fmt.Fprintf(out, "\nno test is run again, since %d failed, more than %d\n", failed, mostUnsteady)
		return false
	}
	var unsteady, broken []string
	for i, s := range streams {
		for _, f := range s.failures {
			fmt.Fprintf(out, "\n==> %s failed; again, alone:\n", f)
			if passesAlone(ctx, out, commands[i], f) {
				unsteady = append(unsteady, f.String())
			} else {
				broken = append(broken, f.String())
			}
		}
	}
	list(out, "unsteady: failed beside other work, passed alone", unsteady)
	list(out, "broken: failed beside other work, failed alone", broken)
	return len(broken) == 0
}

func list(out io.Writer, heading string, names []string) {
	if len(names) > 0 {
		fmt.Fprintf(out, "\n%s:\n  %s\n", heading, strings.Join(names, "\n  "))
	}
}

// passesAlone runs one test with the flags of its stream. A test that does not run, or is skipped, has not passed.
func passesAlone(ctx context.Context, out io.Writer, command []string, f failure) bool {
	s := newReport(out).stream()
	err := follow(ctx, s, alone(command, f))
	if err != nil {
		fmt.Fprintln(out, err)
	}
	return err == nil && s.passed(f)
}

// passed reports whether test f ran and passed, and nothing failed.
func (s *stream) passed(f failure) bool {
	return len(s.hard) == 0 && len(s.failures) == 0 && slices.ContainsFunc(s.ended, func(t test) bool {
		return t.pkg == f.pkg && t.name == f.name && t.result == "pass"
	})
}

// alone returns the command that runs one test: its stream's command, without flags that make it wait for others.
func alone(command []string, f failure) []string {
	command = command[max(slices.Index(command, "go"), 0):]
	var flags []string
	for i, arg := range command {
		name, _, _ := strings.Cut(arg, "=")
		if (i < 2 || strings.HasPrefix(arg, "-")) && name != "-run" && name != "-skip" && name != "-count" {
			flags = append(flags, arg)
		}
	}
	var pattern []string
	for name := range strings.SplitSeq(f.name, "/") {
		pattern = append(pattern, "^("+regexp.QuoteMeta(name)+")$")
	}
	return append(flags, "-count=1", "-run="+strings.Join(pattern, "/"), f.pkg)
}
