package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running server.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	log   *bytes.Buffer // its output; read it only after ended is closed
}

// start runs a program in a new process group, which ends with this process.
func start(name string, env []string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{}), log: &bytes.Buffer{}}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.cmd.Wait() // the exit status does not matter: users notice that it ended
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process and all its children.
func (p *process) stop() {
	if p == nil {
		return
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// await calls ready until it returns nil.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended:\n%s", p.name, p.log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", p.name, err)
		case <-tick.C:
		}
	}
}

// answersAt returns a check that a URL answers 200.
func answersAt(url string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	}
}

// cpu returns the processor time used by the process and its children.
func (p *process) cpu() (total time.Duration) {
	group := strconv.Itoa(p.cmd.Process.Pid)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // ended meanwhile
		}
		// After the name in parentheses: state, parent, group, ... utime and stime.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 13 || fields[2] != group {
			continue
		}
		for _, ticks := range fields[11:13] {
			n, _ := strconv.ParseInt(ticks, 10, 64)
			total += time.Duration(n) * time.Second / 100
		}
	}
	return total
}

// resident returns the anonymous memory of the process, without files.
func (p *process) resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("the kernel does not tell RssAnon")
}
