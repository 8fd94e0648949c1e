package hosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
)

// roleEnv starts the test binary as another process: its value is the role as JSON.
const roleEnv = "CROFT_TEST_ROLE"

// A role is the job of such a process: one of the two.
type role struct {
	Host   *hostRole   `json:",omitempty"`
	Member *memberRole `json:",omitempty"`
}

// hostRole is the first process of a host's namespaces: when it ends, all processes there end.
type hostRole struct {
	Dir   string   // the host's private part of the file system
	Agent []string // the agent's command
}

// memberRole is one member of the etcd cluster.
type memberRole struct {
	Name, Dir, Client, Peer, Cluster string
}

// play runs a process's role from start to end.
func play(text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	if r.Member != nil {
		return r.Member.run()
	}
	return r.Host.run()
}

// restartSignal makes a host kill its agent, and start another one; its guests run on. restarted is then in the log.
const (
	restartSignal = syscall.SIGUSR1
	restarted     = "the agent was killed, and is started again"
)

// private are the directories in which libvirt and its children keep one host's state.
var private = []string{"/run", "/var/lib/libvirt", "/var/log/libvirt", "/var/cache/libvirt", "/etc/libvirt"}

// removal ends the guests through libvirt, which removes the cgroup directories that would outlive the namespace.
const removal = `for name in $(virsh -q list --name); do virsh -q destroy "$name"; done`

// run waits for a byte on stdin, sent when the network exists, then starts libvirt and the agent. It ends with the
// agent, and so do the guests.
func (h *hostRole) run() error {
	if err := h.mount(); err != nil {
		return err
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the network: %w", err)
	}
	for _, daemon := range []string{"virtlogd", "libvirtd"} {
		if out, err := exec.Command(daemon, "-d").CombinedOutput(); err != nil {
			return fmt.Errorf("start %s: %w: %s", daemon, err, out)
		}
	}
	agent, err := begin(h.Agent...)
	if err != nil {
		return err
	}
	var now atomic.Pointer[os.Process]
	var again atomic.Bool
	now.Store(agent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, restartSignal)
	go func() {
		for s := range signals {
			if s == restartSignal {
				again.Store(true)
				s = syscall.SIGKILL
			}
			_ = now.Load().Signal(s)
		}
	}()
	ended := reap(agent.Pid)
	for again.Swap(false) {
		if agent, err = begin(h.Agent...); err != nil {
			return err
		}
		now.Store(agent)
		fmt.Println(restarted)
		ended = reap(agent.Pid)
	}
	remover, err := begin("/bin/sh", "-c", removal)
	if err == nil {
		err = reap(remover.Pid)
	}
	return errors.Join(ended, err)
}

// begin starts a program for reap to wait for.
func begin(command ...string) (*os.Process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return os.StartProcess(command[0], command, &os.ProcAttr{Files: []*os.File{null, os.Stdout, os.Stderr},
		Env: os.Environ()})
}

func (h *hostRole) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	for _, place := range private {
		if err := unix.Mount(filepath.Join(h.Dir, place), place, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount a %s of its own: %w", place, err)
		}
	}
	return unix.Mount("proc", "/proc", "proc", 0, "")
}

// reap collects ended processes, as the first process of a namespace must, until process pid ends.
func reap(pid int) error {
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case ended == pid && status.ExitStatus() == 0:
			return nil
		case ended == pid:
			return fmt.Errorf("process %d ended: exit code %d, signal %v", pid, status.ExitStatus(), status.Signal())
		}
	}
}

// run serves until killed.
func (m *memberRole) run() error {
	c := embed.NewConfig()
	c.Name, c.Dir = m.Name, m.Dir
	client, err1 := url.Parse(m.Client)
	peer, err2 := url.Parse(m.Peer)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	c.InitialCluster = m.Cluster
	c.MaxTxnOps = 8192
	c.LogLevel = "error"
	c.EnableGRPCGateway = false
	server, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	return <-server.Err()
}
