// Package fencing switches hosts off by the fence agents of Debian's package fence-agents: programs that reach a
// machine's management controller (IPMI, Redfish), or the hypervisor that runs it. A file says which agent a host has,
// and with which options. A host counts as off only if its agent reports that afterwards.
package fencing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/hosts"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
	"croft/internal/plain"
	"croft/internal/wording"
)

// Agents are the fence agents in a file. The file is read for each use.
type Agents struct {
	File       string        // absolute; others than its owner may not read it
	OffTime    time.Duration // longest time to switch a host off; 90 s by default
	StatusTime time.Duration // longest time to report the state; 30 s by default
}

var _ hosts.Power = (*Agents)(nil)

// Knows implements hosts.Power.
func (a *Agents) Knows(h croft.Host) error {
	_, err := a.optionsOf(h)
	return err
}

// Off implements hosts.Power. The result of switching the host off does not matter, only the state that the agent
// reports afterwards.
func (a *Agents) Off(ctx context.Context, h croft.Host) error {
	o, err := a.optionsOf(h)
	if err != nil {
		return err
	}
	off := o.run(ctx, "off", cmp.Or(a.OffTime, 90*time.Second))
	status := o.run(ctx, "status", cmp.Or(a.StatusTime, 30*time.Second))
	switch {
	case ctx.Err() != nil:
		return croft.Errorf(croft.Unavailable, "it is unknown whether it is off, since the request has ended: %w", ctx.Err())
	case status.code == isOff:
		return nil
	case status.code == isOn:
		return croft.Errorf(croft.Conflict, "it is on, as its fence agent %s reports after `off` (%s): switch it off yourself, "+
			"and confirm that with --confirm-off", o.agent, off)
	}
	return croft.Errorf(croft.Unavailable, "it is unknown whether it is off: its fence agent %s answers to `off`: %s; and then "+
		"to `status`: %s", o.agent, off, status)
}

// IsOn asks the fence agent of a host for the state of its power, which does not change. Invalid: the file has a fault,
// or says nothing about the host. Unavailable: the agent reports neither on nor off.
func (a *Agents) IsOn(ctx context.Context, h croft.Host) (bool, error) {
	o, err := a.optionsOf(h)
	if err != nil {
		return false, err
	}
	status := o.run(ctx, "status", cmp.Or(a.StatusTime, 30*time.Second))
	switch status.code {
	case isOn, isOff:
		return status.code == isOn, nil
	}
	return false, croft.Errorf(croft.Unavailable, "its fence agent %s answers to `status`: %s", o.agent, status)
}

// The exit codes of the action status.
const (
	isOn  = 0
	isOff = 2
)

// options are the agent of a host, and what it reads on its standard input.
type options struct {
	agent   string // path of the program
	lines   map[string]string
	secrets *strings.Replacer
}

var (
	// option matches names of options. Others could start a line of their own on the input of the agent.
	option = lazyregexp.New(`^[a-z0-9_-]+$`)
	agent  = lazyregexp.New(`^fence_[a-z0-9_]+$`)
	secret = lazyregexp.New(`pass|secret|token|key|community`)
)

// optionsOf returns how a host is switched off. Invalid: the file has a fault, or says nothing about the host.
func (a *Agents) optionsOf(h croft.Host) (options, error) {
	invalid := func(format string, args ...any) (options, error) {
		return options{}, croft.Errorf(croft.Invalid, "fence agents in "+a.File+": "+format, args...)
	}
	info, err := os.Stat(a.File)
	if err != nil {
		return invalid("%w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return invalid("others may read its passwords: chmod go= %s", a.File)
	}
	text, err := os.ReadFile(a.File)
	if err != nil {
		return invalid("%w", err)
	}
	var all map[string]map[string]string
	if err := yaml.Unmarshal(text, &all); err != nil {
		return invalid("%w", err)
	}
	lines, found := all[string(h.ID)]
	if !found && h.Name != "" {
		lines, found = all[h.Name]
	}
	if !found {
		return invalid("it says nothing about host %s%s; with --confirm-off, switch it off yourself", cmp.Or(h.Name,
			string(h.ID)), nearest.Hint(h.Name, slices.Sorted(maps.Keys(all))))
	}
	for name, value := range lines {
		if !option.MatchString(name) || name == "action" || strings.ContainsAny(value, "\n\r\x00") {
			return invalid("host %s has the option %q, which is no option of a fence agent with a value on one line", h.Name,
				name)
		}
	}
	o := options{lines: lines, secrets: secretsIn(lines)}
	if o.agent, err = find(lines["agent"]); err != nil {
		return invalid("host %s: %w", h.Name, err)
	}
	return o, nil
}

// secretsIn returns what removes the values of secret options from the output of an agent.
func secretsIn(lines map[string]string) *strings.Replacer {
	var all []string
	for name, value := range lines {
		if secret.MatchString(name) && value != "" {
			all = append(all, value, "***")
		}
	}
	return strings.NewReplacer(all...)
}

// find returns the path of an agent. Debian installs agents where PATH may not lead.
func find(name string) (string, error) {
	switch {
	case filepath.IsAbs(name):
		return name, nil
	case !agent.MatchString(name):
		return "", fmt.Errorf("agent is %q: name a program of the package fence-agents, such as fence_ipmilan, or the "+
			"absolute path of another one", name)
	}
	for _, dir := range append([]string{"/usr/sbin", "/sbin"}, filepath.SplitList(os.Getenv("PATH"))...) {
		if path := filepath.Join(dir, name); isProgram(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %s: install the package fence-agents", name)
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// answer is how a run of an agent ended.
type answer struct {
	code int // exit code; -1: it did not exit by itself
	says string
}

func (a answer) String() string { return a.says }

// run runs the agent without a shell, in a process group that ends with it. Its options are not in its arguments, which
// every user of the machine can read. Its environment has only PATH and HOME, because ours may contain secrets.
func (o options) run(ctx context.Context, action string, longest time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var input strings.Builder
	fmt.Fprintf(&input, "action=%s\n", action)
	for _, name := range slices.Sorted(maps.Keys(o.lines)) {
		if name != "agent" {
			fmt.Fprintf(&input, "%s=%s\n", name, o.lines[name])
		}
	}
	cmd := exec.CommandContext(ctx, o.agent)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LC_ALL=C"}
	cmd.Stdin = strings.NewReader(input.String())
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a process outside the group may keep its output open
	err := cmd.Run()
	text := plain.Line(strings.TrimSpace(o.secrets.Replace(said.String())))
	if len(text) > saysMost {
		text = text[len(text)-saysMost:]
	}
	text = cmp.Or(text, "nothing")
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return answer{-1, fmt.Sprintf("nothing within %s, so it was ended", wording.Duration(longest))}
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return answer{0, text}
	case exited:
		return answer{exit.ExitCode(), text}
	}
	return answer{-1, err.Error()}
}

// saysMost is the maximum number of bytes of an agent's output in an error.
const saysMost = 500
