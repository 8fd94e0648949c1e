// Command suite runs several `go test -json` commands side by side and prints what plain go test would print: one line
// for a package that passes, and of one that fails the output of the tests that did. At the end it lists the tests
// that took longest.
//
//	suite go test -json ./a ./b -- go test -json -p 1 ./c
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	longest := flag.Int("longest", 10, "how many of the longest tests to list")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !run(ctx, split(flag.Args()), *longest) {
		stop()
		os.Exit(1)
	}
}

// split cuts arguments into commands at each "--".
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

// run runs the commands to their ends and reports whether all succeeded.
func run(ctx context.Context, commands [][]string, longest int) bool {
	begun := time.Now()
	report := newReport(os.Stdout)
	failed := make([]error, len(commands))
	var work sync.WaitGroup
	for i, args := range commands {
		work.Go(func() { failed[i] = follow(ctx, report, args) })
	}
	work.Wait()
	report.listLongest(longest)
	fmt.Printf("%s in all\n", time.Since(begun).Round(time.Second))
	ok := !report.failed
	for i, err := range failed {
		if err != nil {
			fmt.Printf("%v: %v\n", commands[i][0], err)
			ok = false
		}
	}
	return ok
}

// follow runs one command and hands what it prints to the report. Its stderr is passed on as it is.
func follow(ctx context.Context, report *report, args []string) error {
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
	read := report.read(out)
	if err := cmd.Wait(); err != nil {
		return err
	}
	return read
}
