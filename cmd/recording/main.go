// Command recording runs the shell commands of a script, one per line, as if typed at a terminal, and draws the
// terminal's output as one SVG, whose lines appear in order and, except for long waits, at their original pace.
// Viewers without animation show everything.
//
//	go run ./cmd/recording -o docs/recording.svg docs/recording.sh
//
// Lines that begin with # are skipped; a command after ! must fail, and any other one succeed, so that no
// recording shows unexpected results.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// columns is the width of the terminal that commands see.
const columns = 112

func main() {
	out := flag.String("o", "", "write the SVG to this `file`")
	title := flag.String("title", "croft", "what the window is called")
	flag.Parse()
	if *out == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: recording -o FILE.svg SCRIPT")
		os.Exit(2)
	}
	if err := record(*out, *title, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(failed.ExitCode())
		}
		os.Exit(1)
	}
}

func record(out, title, script string) error {
	text, err := os.ReadFile(script)
	if err != nil {
		return err
	}
	var s screen
	for command := range strings.Lines(string(text)) {
		command = strings.TrimSpace(command)
		if command == "" || strings.HasPrefix(command, "#") {
			continue
		}
		command, fails := strings.CutPrefix(command, "! ")
		s.prompt(command)
		err := run(&s, command)
		if failed, ok := errors.AsType[*exec.ExitError](err); ok && fails && failed.Exited() {
			continue
		}
		if err == nil && fails {
			err = errors.New("it did not fail")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
	}
	return os.WriteFile(out, s.svg(title), 0o644)
}

// run executes a command at its own pseudo-terminal, made by script(1), and passes its lines to the screen as
// they arrive.
func run(s *screen, command string) error {
	cmd := exec.Command("script", "-qefc", fmt.Sprintf("stty cols %d rows 40; %s", columns, command), "/dev/null")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	began := time.Now()
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		s.line(lines.Text(), time.Since(began))
		began = time.Now()
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		fmt.Fprintln(os.Stderr, s.plainText())
		return err
	}
	return nil
}
