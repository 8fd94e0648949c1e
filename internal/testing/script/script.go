// Package script has commands for the scripts of several programs, as package testscript runs them.
package script

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"croft"
)

// Exits returns the command "exits CODE COMMAND...", which requires a command to end with a code. A wrong use of a
// program must be reported once, by a line that starts with the program's name.
func Exits(program string) func(ts *testscript.TestScript, neg bool, args []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: exits CODE COMMAND...")
		}
		want, err := strconv.Atoi(args[0])
		ts.Check(err)
		err = ts.Exec(args[1], args[2:]...)
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		} else {
			ts.Check(err)
		}
		if got != want {
			ts.Fatalf("%q ended with %d, want %d\nstdout: %sstderr: %s", args[1:], got, want, ts.ReadFile("stdout"),
				ts.ReadFile("stderr"))
		}
		if said := strings.Count(ts.ReadFile("stderr"), program+": "); want == croft.ExitUsage && said != 1 {
			ts.Fatalf("%q told what is wrong %d times, want once:\n%s", args[1:], said, ts.ReadFile("stderr"))
		}
	}
}
