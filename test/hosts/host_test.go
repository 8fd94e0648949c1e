package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// A host is a network, mount and process namespace with a libvirt and an agent.
type host struct {
	w       *world
	name    string
	address string // on the switch
	dir     string // its private part of the file system
	link    string // the switch's end of its cable
	token   string // to join with; empty: its settings name the cloud
	serves  bool   // it serves etcd and Placement too
	begins  bool   // it starts the cloud, with strict trust
	// certified: its API speaks TLS.
	certified bool
	process   *process
	stdin     io.WriteCloser
}

func (w *world) newHost(name string, n int) *host {
	w.t.Helper()
	h := &host{w: w, name: name, address: w.at(n), dir: filepath.Join(w.dir, name), link: w.bridge + name}
	for _, place := range private {
		if err := os.MkdirAll(filepath.Join(h.dir, place), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	// Its libvirt has the machine's settings and cached QEMU capabilities.
	for _, place := range []string{"/etc/libvirt", "/var/cache/libvirt"} {
		must(w.t, "cp", "-a", place+"/.", filepath.Join(h.dir, place))
	}
	must(w.t, "rm", "-rf", filepath.Join(h.dir, "/etc/libvirt/qemu"))
	return h
}

func (h *host) settings() string {
	own := fmt.Sprintf("state_dir: %s/state\nhost: {name: %s}\nlibvirt: {virt_type: qemu}\n", h.dir, h.name)
	if h.w.shared != "" {
		own += fmt.Sprintf("storage: {shared: {nfs1: {path: %q}}}\n", h.w.shared)
	}
	switch {
	case h.begins:
		return own +
			fmt.Sprintf(
				"trust: strict\netcd: {listen: \"%[1]s:2379\"}\nplacement: {listen: \"%[1]s:8778\"}\napi: {listen: \"%[1]s:8779\"}\n", h.address)
	case h.token != "":
		return own
	}
	return own +
		fmt.Sprintf("etcd: {endpoints: [\"%s\"]}\nplacement: {endpoint: \"http://%s\", token: %s}\napi: {listen: \"%s:8779\"}\n",
			strings.ReplaceAll(h.w.etcd, ",", `", "`), h.w.placement, token, h.address)
}

// agent returns the command that the host runs with its settings.
func (h *host) agent(settings string) []string {
	h.w.t.Helper()
	command := []string{filepath.Join(binaries, "croft"), "compute", "--settings", settings}
	if h.begins || h.token != "" {
		command[1] = "up"
	}
	if h.token != "" {
		secret := filepath.Join(h.dir, "token")
		if err := os.WriteFile(secret, []byte(h.token), 0o600); err != nil {
			h.w.t.Fatal(err)
		}
		command = append(command, "--join", "@"+secret)
	}
	if h.serves {
		command = append(command, "--etcd-member")
	}
	return command
}

// start creates the namespaces, connects the cable and starts libvirt and the agent.
func (h *host) start() {
	w := h.w
	w.t.Helper()
	file := filepath.Join(h.dir, "compute.yaml")
	if err := os.WriteFile(file, []byte(h.settings()), 0o644); err != nil {
		w.t.Fatal(err)
	}
	cmd := w.as(role{Host: &hostRole{Dir: h.dir, Agent: h.agent(file)}})
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
	}
	var err error
	if h.stdin, err = cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	h.process = w.begin("host-"+h.name, cmd)
	w.root.Cleanup(h.consoles)
	pid := fmt.Sprint(cmd.Process.Pid)
	_ = exec.Command("ip", "link", "del", h.link).Run() // the kernel may keep that of an earlier host for some time
	must(w.t, "ip", "link", "add", h.link, "type", "veth", "peer", "name", "eth0", "netns", pid)
	must(w.t, "ip", "link", "set", h.link, "master", w.bridge, "up")
	h.inside("ip", "link", "set", "lo", "up")
	h.inside("ip", "address", "add", h.address+"/24", "dev", "eth0")
	h.inside("ip", "link", "set", "eth0", "up")
	say(w.t, h.stdin)
}

// inside runs a program in the host's network.
func (h *host) inside(args ...string) string {
	h.w.t.Helper()
	return must(h.w.t, "nsenter", append([]string{"--net", "--target", fmt.Sprint(h.process.cmd.Process.Pid)},
		args...)...)
}

// cut disconnects the cable, and plug connects it again.
func (h *host) cut()  { must(h.w.t, "ip", "link", "set", h.link, "down") }
func (h *host) plug() { must(h.w.t, "ip", "link", "set", h.link, "up") }

func (h *host) waitUntilReady() {
	h.w.t.Helper()
	scheme := "http"
	if h.certified {
		scheme = "https"
	}
	h.process.waitUntilReady(scheme + "://" + h.address + ":8779/readyz")
}

// restartLibvirt kills libvirtd and starts it again.
func (h *host) restartLibvirt() {
	h.w.t.Helper()
	must(h.w.t, "nsenter", "--net", "--mount", "--pid", "--target", fmt.Sprint(h.process.cmd.Process.Pid), "sh", "-c",
		`pid=$(cat /run/libvirtd.pid) && kill -9 "$pid" && while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done &&
		libvirtd -d`)
}

// restartAgent kills the agent, and returns once another one is ready.
func (h *host) restartAgent() {
	h.w.t.Helper()
	restarts := func() int {
		log, err := os.ReadFile(h.process.log)
		if err != nil {
			h.w.t.Fatal(err)
		}
		return strings.Count(string(log), restarted)
	}
	before := restarts()
	if err := h.process.cmd.Process.Signal(restartSignal); err != nil {
		h.w.t.Fatal(err)
	}
	eventually(h.w.t, "the agent of "+h.name+" is killed", func(context.Context) error {
		if restarts() == before {
			return errors.New("no other one was started")
		}
		return nil
	})
	h.waitUntilReady()
}

// id returns the host's UUID from its state directory.
func (h *host) id() string {
	h.w.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, "state", "host-id"))
	if err != nil {
		h.w.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// virsh runs virsh on the host's libvirt.
func (h *host) virsh(args ...string) (string, error) {
	uri := "qemu+unix:///system?socket=" + filepath.Join(h.dir, "run/libvirt/libvirt-sock")
	out, err := exec.Command("virsh", append([]string{"--quiet", "--connect", uri}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// domains returns the host's running guests with their domain IDs, which change when a guest is restarted.
func (h *host) domains() map[string]string {
	h.w.t.Helper()
	names, err := h.virsh("list", "--name")
	if err != nil {
		h.w.t.Fatalf("list the domains of %s: %v: %s", h.name, err, names)
	}
	all := map[string]string{}
	for _, name := range strings.Fields(names) {
		id, err := h.virsh("domid", name)
		if err != nil {
			h.w.t.Fatalf("%s on %s: %v: %s", name, h.name, err, id)
		}
		all[strings.TrimPrefix(name, "croft-")] = id
	}
	return all
}

// consoles shows the guests' last output if the test fails.
func (h *host) consoles() {
	if !h.w.root.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(h.dir, "state/instances/*/console.log"))
	for _, log := range logs {
		text, _ := os.ReadFile(log)
		h.w.root.Logf("%s:\n%s", log, text[max(0, len(text)-2000):])
	}
}
