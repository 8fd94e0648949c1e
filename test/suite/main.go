// Command suite runs several `go test -json` commands concurrently and prints the output of plain go test: one line for
// a package that passes, and the output of the failed tests for a package that fails. At the end it lists the slowest
// tests, those that tried a sample of their cases, and the time of each command. Other commands, such as static checks,
// may run concurrently with the tests; if one fails, it ends the run.
//
// Tests share a machine here, so it also separates "broken" from "too slow under load": if at most five tests failed,
// each by its own checks, they run again one by one, and the run passes if all of them pass. They are listed as
// unsteady, with the output of both runs.
//
//	suite go test -json ./a ./b -- nice go test -json -p=1 ./c
//
// A flag and its value are one argument, and the packages come last.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	longest := flag.Int("longest", 10, "how many of the longest tests to list")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !run(ctx, os.Stdout, split(flag.Args()), *longest) {
		stop()
		os.Exit(1)
	}
}

// split splits arguments into commands at each "--".
func split(args []string) (commands [][]string) {
	var command []string
	for _, arg := range append(args, "--") {
		if arg != "--" {
			command = append(command, arg)
		} else if len(command) > 0 {
			commands, command = append(commands, command), nil
		}
	}
	return commands
}

// run runs the commands to their ends and reports whether all succeeded, or would have on an idle machine.
func run(ctx context.Context, out io.Writer, commands [][]string, longest int) bool {
	begun := time.Now()
	ctx, end := context.WithCancel(ctx)
	defer end()
	report := newReport(out)
	streams := make([]*stream, len(commands))
	errs := make([]error, len(commands))
	var work sync.WaitGroup
	for i, args := range commands {
		streams[i] = report.stream()
		work.Go(func() {
			if errs[i] = follow(ctx, streams[i], args); errs[i] != nil && !isGoTest(args) {
				end()
			}
		})
	}
	work.Wait()
	report.listLongest(longest)
	report.listSampled()
	fmt.Fprintf(out, "\nseconds, and seconds of processors without guests:\n")
	for i, s := range streams {
		fmt.Fprintf(out, "%7.0f  %7.0f  %s\n", s.took.Seconds(), s.busy.Seconds(), label(commands[i]))
	}
	fmt.Fprintf(out, "%s in all\n", time.Since(begun).Round(time.Second))
	for i, err := range errs {
		if err != nil {
			fmt.Fprintf(out, "%v: %v\n", commands[i][0], err)
		}
		if err != nil && (!failedTests(err) || len(streams[i].failures) == 0) {
			streams[i].hard = append(streams[i].hard, fmt.Sprintf("%v: %v", commands[i][0], err))
		}
	}
	return retry(ctx, out, commands, streams)
}

// label names a command by its first package, and the number of its other packages.
func label(command []string) string {
	if !isGoTest(command) {
		return strings.Join(command, " ")
	}
	packages := slices.DeleteFunc(slices.Clone(command[slices.Index(command, "test")+1:]),
		func(arg string) bool { return strings.HasPrefix(arg, "-") })
	if len(packages) < 2 {
		return strings.Join(packages, "")
	}
	return fmt.Sprintf("%s and %d more", packages[0], len(packages)-1)
}

func isGoTest(command []string) bool {
	i := slices.Index(command, "go")
	return i >= 0 && i+1 < len(command) && command[i+1] == "test"
}

// failedTests reports whether err means that go test ran and tests failed.
func failedTests(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == 1
}

// follow runs one command and passes its output to the stream. Its stderr is passed through.
func follow(ctx context.Context, s *stream, args []string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	begun, read := time.Now(), s.read(out)
	err = cmd.Wait()
	s.took, s.busy = time.Since(begun), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	return cmp.Or(err, read)
}
