// Package kvm finds out whether this host's KVM runs guests, by running one. A /dev/kvm that exists and opens
// proves little: nested and paravirtual hosts have it and stop a normal guest in its boot loader.
package kvm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"croft/internal/durable"
)

//go:generate sh -c "as --64 -o boot.o guest/boot.S && ld -m elf_x86_64 -Ttext 0x7c00 --oformat binary -o guest/boot.bin boot.o && chmod 644 guest/boot.bin; rm -f boot.o"

// device is the KVM device node.
const device = "/dev/kvm"

// timeLimit is the timeout of the probe's guest; it needs microseconds.
const timeLimit = 3 * time.Second

// Result is the outcome of a probe.
type Result struct {
	Usable bool   `json:"usable"`
	Reason string `json:"reason"` // one clause, for people: why KVM is or is not usable
}

// Probe reports whether KVM runs a normal guest here. It returns within a few seconds whatever the kernel does.
func Probe(ctx context.Context) Result {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return Result{Reason: fmt.Sprintf("%s does not open: %v", device, underlying(err))}
	}
	defer f.Close()
	if cpu, err := os.Open("/proc/cpuinfo"); err == nil {
		defer cpu.Close()
		if !virtualizes(bufio.NewScanner(cpu)) {
			return Result{Reason: device + " opens, but the processor shows neither vmx nor svm"}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	if err := proof(ctx, f.Fd()); err != nil {
		return Result{Reason: fmt.Sprintf("%s opens, but a guest does not run: %v", device, err)}
	}
	return Result{Usable: true, Reason: "a guest ran"}
}

// ProbeOnce is Probe with its result cached in file until the kernel, its boot, or the device's owner or mode
// changes. An unusable file only costs another probe.
func ProbeOnce(ctx context.Context, file string) Result {
	key, err := bootKey()
	if err != nil {
		return Probe(ctx)
	}
	var kept struct {
		Key string `json:"key"`
		Result
	}
	if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &kept) == nil && kept.Key == key {
		return kept.Result
	}
	kept.Key, kept.Result = key, Probe(ctx)
	if ctx.Err() == nil {
		_ = keep(file, kept) // on an error the next start probes again
	}
	return kept.Result
}

// keep stores the result in a file for the next start.
func keep(file string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return durable.Write(file, append(b, '\n'), 0o600)
}

// bootKey identifies the conditions that a result is valid for: this boot of this kernel with the device as it is.
func bootKey() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "", err
	}
	owner := "absent"
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err == nil {
		owner = fmt.Sprintf("%d:%d:%o", st.Uid, st.Gid, st.Mode)
	}
	return fmt.Sprintf("%s %s %s", bytes.TrimSpace(boot), unix.ByteSliceToString(uts.Release[:]), owner), nil
}

// virtualizes reports whether /proc/cpuinfo shows vmx or svm, or no flags line at all, as on other architectures.
func virtualizes(cpuinfo *bufio.Scanner) bool {
	cpuinfo.Buffer(nil, 1<<20)
	for cpuinfo.Scan() {
		name, flags, _ := strings.Cut(cpuinfo.Text(), ":")
		if strings.TrimSpace(name) == "flags" {
			have := strings.Fields(flags)
			return slices.Contains(have, "vmx") || slices.Contains(have, "svm")
		}
	}
	return true
}

// underlying drops the path and operation, which the caller's message already contains.
func underlying(err error) error {
	if pe, ok := err.(*os.PathError); ok {
		return pe.Err
	}
	return err
}
