package fencing_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/control/cloud/fencing"
)

const id = "0b6f1c9e-7c61-4d3c-9f0a-2f3f6f1f5a10"

// machine is an agent that keeps the power of a machine in a file, and fails as its option mode says.
const machine = `#!/bin/sh
while read -r line; do
	case $line in
	action=*) action=${line#action=} ;;
	mode=*) mode=${line#mode=} ;;
	power=*) power=${line#power=} ;;
	password=*) password=${line#password=} ;;
	esac
done
echo "$action $# $CROFT_TOKEN" >> "$power.log"
case $action.$mode in
off.hangs|status.mute) sleep 600 & echo $! >> "$power.child"; wait ;;
off.lies) echo "Success: Powered OFF"; exit 0 ;;
off.slow) echo off > "$power"; exit 1 ;;
off.*) echo off > "$power" ;;
status.lost) echo "Unable to connect as admin with $password"; exit 1 ;;
status.*) [ "$(cat "$power")" = off ] && exit 2 ;;
esac
exit 0
`

// site writes a file of agents, and returns it with the file that has the power of the machine.
func site(t *testing.T, host, options string) (a *fencing.Agents, power string) {
	t.Helper()
	dir := t.TempDir()
	power = filepath.Join(dir, "power")
	program, file := filepath.Join(dir, "fence_machine"), filepath.Join(dir, "fence.yaml")
	for name, text := range map[string]string{power: "on\n", program: machine,
		file: fmt.Sprintf("%s: {agent: %q, power: %q, %s}\n", host, program, power, options)} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return &fencing.Agents{File: file, StatusTime: time.Second, OffTime: time.Second}, power
}

func TestAHostIsOffOnlyIfItsAgentReportsThatAfterwards(t *testing.T) {
	t.Setenv("CROFT_TOKEN", "ours")
	for name, c := range map[string]struct {
		options string
		kind    croft.Kind
		says    string
	}{
		"it works":                        {"mode: works", "", ""},
		"off fails, and the host is off":  {"mode: slow", "", ""},
		"it lies":                         {"mode: lies", croft.Conflict, "it is on, as its fence agent"},
		"off hangs":                       {"mode: hangs", croft.Conflict, "nothing within 1s"},
		"status hangs":                    {"mode: mute", croft.Unavailable, "it is unknown whether it is off"},
		"status fails with the secret":    {"mode: lost, password: geheim1", croft.Unavailable, "as admin with ***"},
		"an option has two lines":         {`user: "a\naction=on"`, croft.Invalid, `the option "user"`},
		"the action is set":               {"action: on", croft.Invalid, `the option "action"`},
		"values are numbers and booleans": {"mode: works, port: 5, lanplus: true", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, power := site(t, "host1", c.options)
			err := a.Off(t.Context(), croft.Host{ID: id, Name: "host1"})
			if croft.KindOf(err) != c.kind || (err == nil) != (c.kind == "") ||
				err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %q: %v, want %q: %s", croft.KindOf(err), err, c.kind, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Errorf("the error has the password: %v", err)
			}
			log, _ := os.ReadFile(power + ".log") // refused options run nothing
			if want := "off 0 \nstatus 0 \n"; c.kind != croft.Invalid && string(log) != want {
				t.Errorf("it was run with %q, want %q: without arguments and without our secrets", log, want)
			} else if c.kind == croft.Invalid && len(log) > 0 {
				t.Errorf("it was run with a faulty file: %q", log)
			}
		})
	}
}

func TestTheStateOfAHostIsAskedForWithoutAChange(t *testing.T) {
	for name, c := range map[string]struct {
		options, power string
		on             bool
		kind           croft.Kind
	}{
		"on":      {"mode: works", "on", true, ""},
		"off":     {"mode: works", "off", false, ""},
		"unknown": {"mode: lost, password: geheim1", "on", false, croft.Unavailable},
		"hangs":   {"mode: mute", "on", false, croft.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			a, power := site(t, "host1", c.options)
			if err := os.WriteFile(power, []byte(c.power), 0o600); err != nil {
				t.Fatal(err)
			}
			on, err := a.IsOn(t.Context(), croft.Host{ID: id, Name: "host1"})
			if on != c.on || croft.KindOf(err) != c.kind || (err == nil) != (c.kind == "") {
				t.Errorf("got %t, %v", on, err)
			}
			if now, _ := os.ReadFile(power); string(now) != c.power {
				t.Errorf("its power is %q now", now)
			}
		})
	}
}

func TestWhatTheFileOfAgentsMayNotSay(t *testing.T) {
	host := croft.Host{ID: id, Name: "host1"}
	a, _ := site(t, "host2", "mode: works")
	if err := a.Off(t.Context(), host); croft.KindOf(err) != croft.Invalid ||
		!strings.Contains(err.Error(), "it says nothing about host host1; did you mean") {
		t.Errorf("another host: %v", err)
	}
	if err := os.Chmod(a.File, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := a.Off(t.Context(), host); croft.KindOf(err) != croft.Invalid ||
		!strings.Contains(err.Error(), "others may read its passwords") {
		t.Errorf("others may read it: %v", err)
	}
	for name, text := range map[string]string{"no agent": "host1: {ip: x}",
		"a path":        "host1: {agent: sbin/fence_dummy}",
		"no such agent": "host1: {agent: fence_nothing}", "no YAML": "host1: {", "a list": "host1: {agent: [a]}",
		"twice": "host1: {agent: fence_dummy}\nhost1: {agent: fence_dummy}"} {
		a := &fencing.Agents{File: filepath.Join(t.TempDir(), "fence.yaml")}
		if err := os.WriteFile(a.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.Off(t.Context(), host); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A name that another host has too says nothing about a host: see hosts.Fleet.
func TestAHostWithoutANameIsFoundByItsUUIDAlone(t *testing.T) {
	a, _ := site(t, id, "mode: works")
	if err := a.Off(t.Context(), croft.Host{ID: id}); err != nil {
		t.Error(err)
	}
	a, _ = site(t, "host1", "mode: works")
	if err := a.Off(t.Context(), croft.Host{ID: id}); croft.KindOf(err) != croft.Invalid {
		t.Errorf("without a name: %v", err)
	}
}

func TestAnAgentThatHangsLeavesNoProcess(t *testing.T) {
	a, power := site(t, "host1", "mode: hangs")
	if err := a.Off(t.Context(), croft.Host{ID: id, Name: "host1"}); croft.KindOf(err) != croft.Conflict {
		t.Error(err)
	}
	child, err := os.ReadFile(power + ".child")
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(child)), "stat"))
	if err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("its child still runs: %s", stat)
	}
}

func TestAgentsOfDebianAreUsed(t *testing.T) {
	dir := t.TempDir()
	power, file := filepath.Join(dir, "power"), filepath.Join(dir, "fence.yaml")
	text := fmt.Sprintf("host1: {agent: fence_dummy, type: file, status_file: %s}\n", power)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(power, []byte("on"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&fencing.Agents{File: file}).Off(t.Context(), croft.Host{ID: id, Name: "host1"}); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(power); err != nil || !strings.Contains(string(now), "off") {
		t.Errorf("the machine is %q, %v", now, err)
	}
	text = "host1: {agent: fence_virsh, ip: 127.0.0.1, ipport: 1, username: root, password: x, plug: v, login_timeout: 2}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	err := (&fencing.Agents{File: file}).Off(t.Context(), croft.Host{ID: id, Name: "host1"})
	if croft.KindOf(err) != croft.Unavailable {
		t.Errorf("fence_virsh without a server: %v", err)
	}
}
