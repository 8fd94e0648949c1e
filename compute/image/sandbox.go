package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"croft"
	"croft/internal/plain"
	"croft/internal/wording"
)

// sandbox is a place in which a program reads a file that may attack it. The program has no network, no devices, no
// processes but its own, a user ID that no account has and no other sandbox has at the time, no capabilities, a list of
// permitted system calls, and of the host's files only /usr, in which it cannot write.
type sandbox struct {
	in, out string        // its only other files, seen as /in, for reading, and /out; out exists
	most    int64         // bytes of each file that it writes
	memory  int64         // bytes of address space
	time    time.Duration // of the wall clock
	machine *machine      // nil: the program starts no virtual machine
}

// machine is what a program needs in a sandbox to start a virtual machine of libguestfs, connected by a socket.
type machine struct {
	appliance string // directory with the system of the virtual machine, seen as /appliance, for reading
	scratch   string // directory for temporary files, seen as /scratch
}

// arguments returns the options of bwrap.
func (m *machine) arguments() []string {
	return []string{"--dev", "/dev", "--proc", "/proc", "--symlink", "usr/sbin", "/sbin", "--perms", "1777", "--tmpfs",
		"/tmp", "--ro-bind", m.appliance, "/appliance", "--bind", m.scratch, "/scratch",
		"--setenv", "TMPDIR", "/scratch", "--setenv", "HOME", "/scratch", "--setenv", "LIBGUESTFS_PATH", "/appliance",
		"--setenv", "LIBGUESTFS_BACKEND", "direct", "--setenv", "LIBGUESTFS_BACKEND_SETTINGS", "force_tcg"}
}

// machineCalls are the further system calls that a program needs for that. Sockets are only those of the Unix family.
var machineCalls = strings.Fields(`accept4 bind chmod connect getpeername getsockname kill listen memfd_create mkdir
	recvmsg rename rmdir sendmsg setsockopt socketpair unlink unlinkat utimensat`)

// Users of sandboxes are above the ranges that Linux distributions and systemd assign.
const (
	firstSandboxUser = 0x70000000
	sandboxUsers     = 1 << 24
)

// run runs a program in the sandbox. Invalid: it did not succeed within the limits. Unavailable: it could not be
// started.
func (s sandbox) run(ctx context.Context, program ...string) error {
	if os.Geteuid() != 0 {
		return croft.Errorf(croft.Unavailable, "the sandbox for images needs an agent that runs as root")
	}
	filter, err := systemCallFilter(s.machine != nil)
	if err != nil {
		return err
	}
	defer filter.Close()
	user := firstSandboxUser + rand.N(sandboxUsers)
	files := []string{s.out}
	if s.in != "" {
		files = append(files, s.in)
	}
	if s.machine != nil {
		files = append(files, s.machine.scratch)
	}
	give := func(to int) (err error) {
		for _, f := range files {
			err = errors.Join(err, os.Chown(f, to, -1))
		}
		return err
	}
	if err := give(user); err != nil {
		return fmt.Errorf("give files to the sandbox: %w", err)
	}
	defer func() { _ = give(0) }() // they may be removed
	limited, cancel := context.WithTimeout(ctx, s.time)
	defer cancel()
	id := strconv.Itoa(user)
	args := []string{"--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH", "/usr/bin", "--setenv", "LC_ALL", "C",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64"}
	if s.in != "" {
		args = append(args, "--ro-bind", s.in, "/in")
	}
	if s.machine != nil {
		args = append(args, s.machine.arguments()...)
	}
	args = append(args, "--bind", s.out, "/out", "--chdir", "/",
		"--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP",
		"--seccomp", "3", "--",
		"prlimit", "--as="+strconv.FormatInt(s.memory, 10), "--fsize="+strconv.FormatInt(s.most, 10), "--core=0",
		"--nofile=64", "--nproc=32", "--cpu="+strconv.Itoa(int(s.time.Seconds())), "--",
		"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
		"--no-new-privs", "--")
	cmd := exec.CommandContext(limited, "bwrap", append(args, program...)...)
	said := bounded{most: 4 << 10}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &said, &said, []*os.File{filter}
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{"PATH=" + os.Getenv("PATH")}, "/", 10*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	runtime.LockOSThread() // bwrap ends with the thread that started it
	err = cmd.Run()
	runtime.UnlockOSThread()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return croft.Errorf(croft.Unavailable, "bwrap is missing on the host: install bubblewrap")
	case limited.Err() != nil:
		return croft.Errorf(croft.Invalid, "it was not complete after %s", wording.Duration(s.time))
	}
	text := strings.TrimSpace(plain.Cut(said.String(), plain.Longest))
	switch {
	case strings.Contains(text, "No space left"):
		return croft.Errorf(croft.NoCapacity, "no space is left for it")
	case strings.HasPrefix(text, "bwrap: "), strings.HasPrefix(text, "setpriv: "), strings.HasPrefix(text, "prlimit: "):
		return croft.Errorf(croft.Unavailable, "the sandbox for images does not start: %s", text)
	}
	return croft.Errorf(croft.Invalid, "%s (%w)", text, err)
}

// bounded keeps the beginning of the data that is written to it.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	_, err := b.Buffer.Write(p[:min(len(p), b.most-b.Len())])
	return len(p), err
}

// permittedCalls are the system calls of programs in a sandbox: files, memory, threads and time. Names that the
// machine's architecture does not have are left out.
var permittedCalls = strings.Fields(`
	access brk capget capset clock_getres clock_gettime clock_nanosleep close close_range copy_file_range dup dup2 dup3
	epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd2 execve exit exit_group faccessat faccessat2 fadvise64
	fallocate fcntl fdatasync flock fstat fstatfs fsync ftruncate futex get_robust_list getcwd getdents64 getegid
	geteuid getgid getgroups getpgrp getpid getppid getrandom getresgid getresuid getrlimit gettid gettimeofday getuid
	ioctl lseek lstat madvise membarrier mmap mprotect mremap munmap nanosleep newfstatat open openat pipe pipe2 poll
	ppoll prctl pread64 preadv preadv2 prlimit64 pselect6 pwrite64 pwritev pwritev2 read readlink readlinkat readv
	restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigtimedwait sched_getaffinity
	sched_yield set_robust_list set_tid_address setgid setgroups setresgid setresuid setrlimit setuid sigaltstack
	signalfd4 stat statfs statx sysinfo tgkill timerfd_create timerfd_settime umask uname vfork wait4 write writev
	arch_prctl`)

// systemCallFilter returns the filter as a file, as bwrap reads it. machine: the program starts a virtual machine.
func systemCallFilter(machine bool) (*os.File, error) {
	known, err := callsHere(permittedCalls)
	if err != nil {
		return nil, err
	}
	const spaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	policy := seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: []seccomp.SyscallGroup{
		{Action: seccomp.ActionAllow, Names: known, NamesWithCondtions: []seccomp.NameWithConditions{{Name: "clone",
			Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsNotSet, Value: spaces}}}}},
		// Its flags are in memory, which a filter cannot read. The C library uses clone instead.
		{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: []string{"clone3"}},
	}}
	if machine {
		more, err := callsHere(machineCalls)
		if err != nil {
			return nil, err
		}
		policy.Syscalls = append(policy.Syscalls, seccomp.SyscallGroup{Action: seccomp.ActionAllow, Names: more,
			NamesWithCondtions: []seccomp.NameWithConditions{{Name: "socket", Conditions: seccomp.ArgumentConditions{
				{Argument: 0, Operation: seccomp.Equal, Value: unix.AF_UNIX}}}}})
	}
	program, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("make the filter of system calls: %w", err)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("make the filter of system calls: %w", err)
	}
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the filter of system calls: %w", err)
	}
	f := os.NewFile(uintptr(fd), "filter")
	for _, one := range raw {
		if err := binary.Write(f, binary.NativeEndian, one); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	_, err = f.Seek(0, 0)
	return f, err
}

// callsHere returns the system calls that the architecture of this machine has.
func callsHere(names []string) (known []string, _ error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "the sandbox for images: %w", err)
	}
	for _, name := range names {
		if _, is := machine.SyscallNames[name]; is {
			known = append(known, name)
		}
	}
	return known, nil
}
