package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/shirou/gopsutil/v3/process"

	"croft"
)

// child is a process started by the benchmark.
type child struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ready *bufio.Reader // one line once it takes requests, if it was asked to report that
	usage *process.Process
	peak  float64 // of its memory, in MiB
}

// readyFD is the environment variable that makes a process write a line to file descriptor 3 once it takes requests.
const readyFD = "CROFT_READY_FD"

// tellReady writes that line, if the benchmark started this process.
func tellReady() {
	if os.Getenv(readyFD) == "" {
		return
	}
	pipe := os.NewFile(3, "ready")
	_, _ = pipe.WriteString("ready\n") // without a reader, no process waits for it
	_ = pipe.Close()
}

// spawn starts a program in an environment without settings, so that the result does not depend on this machine's. With
// tells, the child reports when it is ready.
func spawn(dir, name string, tells bool, program string, args ...string) (*child, error) {
	c := &child{name: name, log: filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".log")}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, fmt.Errorf("make a log: %w", err)
	}
	defer log.Close()
	c.cmd = exec.Command(program, args...)
	c.cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CROFT_") {
			c.cmd.Env = append(c.cmd.Env, v)
		}
	}
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if tells {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
		defer w.Close()
		c.cmd.ExtraFiles, c.cmd.Env, c.ready = []*os.File{w}, append(c.cmd.Env, readyFD+"=3"), bufio.NewReader(r)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if c.usage, err = process.NewProcess(int32(c.cmd.Process.Pid)); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", name, err), c.end())
	}
	return c, nil
}

// lastLine returns the last line of a log, without the program's name.
func lastLine(log string) string {
	text, err := os.ReadFile(log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || lines[len(lines)-1] == "" {
		return "it ended at once; see " + log
	}
	return strings.TrimPrefix(lines[len(lines)-1], "croft: ")
}

// awaitReady returns when the child reports that it is ready.
func (c *child) awaitReady(ctx context.Context) error {
	said := make(chan string, 1)
	go func() {
		line, _ := c.ready.ReadString('\n') // returns when the child ends at the latest
		said <- line
	}()
	select {
	case line := <-said:
		if line != "ready\n" {
			return croft.Errorf(croft.Unavailable, "start %s: %s", c.name, lastLine(c.log))
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end asks the child to end and waits until it has.
func (c *child) end() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	err := c.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return nil // ignored: no more results are needed from it
	}
	return err
}

// memory returns the resident memory of the child, in MiB.
func (c *child) memory() float64 {
	info, err := c.usage.MemoryInfo()
	if err != nil {
		return 0
	}
	now := float64(info.RSS) / (1 << 20)
	c.peak = max(c.peak, now)
	return now
}

// cpu returns the processor time of the child, in seconds.
func (c *child) cpu() float64 {
	t, err := c.usage.Times()
	if err != nil {
		return 0
	}
	return t.User + t.System
}

// awaitURL returns once the URL answers 200.
func awaitURL(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if get(ctx, url, nil) == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return croft.Errorf(croft.Unavailable, "%s does not answer", url)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// get reads a page that answers 200.
func get(ctx context.Context, url string, read func(*http.Response) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	if read == nil {
		return nil
	}
	return read(answer)
}

// scrape reads metrics by name: the sums of counters and gauges, and the counts of histograms.
func scrape(ctx context.Context, url string) (map[string]float64, error) {
	all := map[string]float64{}
	err := get(ctx, url, func(answer *http.Response) error {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(answer.Body)
		for name, family := range families {
			for _, m := range family.Metric {
				all[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				all[name+"_count"] += float64(m.GetHistogram().GetSampleCount())
				all[name+"_sum"] += m.GetHistogram().GetSampleSum()
			}
		}
		return err
	})
	return all, err
}

// fleet holds the processes of a benchmark.
type fleet struct {
	dir, guests     string
	etcd, placement string // URLs
	api             string // likewise; empty: not served
	tokens          []string
	children        []*child
}

func (f *fleet) end() error {
	var errs []error
	var mu sync.Mutex
	var ending sync.WaitGroup
	stop := func(some []*child) {
		for _, c := range some {
			ending.Go(func() {
				err := c.end()
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		ending.Wait()
	}
	if len(f.children) > 0 {
		stop(f.children[1:]) // agents first: they need the control process to end
		stop(f.children[:1])
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir), os.RemoveAll(f.guests))...)
}
