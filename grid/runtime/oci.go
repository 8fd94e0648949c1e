package runtime

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"croft"
	"croft/grid/hardpoint"
	"croft/grid/unit"
)

// ociConfig returns the config.json of the unit's bundle, for runtimes of the Open Container Initiative.
func ociConfig(u unit.Unit, root string) (string, error) {
	user, _ := ociUser(u) // the verb create refuses a user that is not numeric
	spec := specs.Spec{
		Version:  "1.0.2", // the newest that runc 1.1 knows
		Hostname: hostname(u),
		Root:     &specs.Root{Path: root},
		Process: &specs.Process{
			User: user, Args: u.Command, Cwd: "/",
			Env:             ociEnvironment(u),
			NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: capabilities, Effective: capabilities,
				Permitted: capabilities},
		},
		Mounts: ociMounts(u),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.MountNamespace}},
			MaskedPaths: []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug",
				"/sys/firmware"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			Resources:     ociResources(u),
		},
	}
	if u.Network == "none" {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	text, err := json.Marshal(spec)
	return string(text), err
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// capabilities lists the capabilities that podman gives to a container by default.
var capabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
	"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"}

func hostname(u unit.Unit) string {
	if u.Job == "" {
		return ""
	}
	return u.Name()
}

// secretsHere is a placeholder in config.json. The verb create replaces it, with the comma before it, by the variables
// with secrets.
const secretsHere = "croft: secrets"

func ociEnvironment(u unit.Unit) []string {
	list := append([]string{"PATH=" + searchPath}, environment(u)...)
	if len(u.SecretEnv) > 0 {
		list = append(list, secretsHere)
	}
	return list
}

// ociUser parses UID or UID:GID. A bundle does not support names. Invalid.
func ociUser(u unit.Unit) (specs.User, error) {
	var user specs.User
	if u.User == "" {
		return user, nil
	}
	uid, gid, both := strings.Cut(u.User, ":")
	id, err := strconv.ParseUint(uid, 10, 32)
	group := id
	if both && err == nil {
		group, err = strconv.ParseUint(gid, 10, 32)
	}
	if err != nil {
		return user, croft.Errorf(croft.Invalid, "user: %q: this runtime wants numbers, UID or UID:GID", u.User)
	}
	user.UID, user.GID = uint32(id), uint32(group)
	return user, nil
}

func ociMounts(u unit.Unit) []specs.Mount {
	list := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755",
			"size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec",
			"newinstance", "ptmxmode=0666", "mode=0620"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev",
			"mode=1777", "size=65536k"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "none", Source: "/sys", Options: []string{"rbind", "nosuid", "noexec", "nodev",
			"ro"}},
	}
	for _, m := range u.Mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		list = append(list, specs.Mount{Destination: m.To, Type: "bind", Source: m.From, Options: []string{"rbind",
			mode}})
	}
	for i, f := range u.Files {
		list = append(list, specs.Mount{Destination: f.Path, Type: "bind",
			Source: fmt.Sprintf("%s/files/%d", hardpoint.Deferred("dir"), i), Options: []string{"bind", "ro"}})
	}
	return list
}

func ociResources(u unit.Unit) *specs.LinuxResources {
	r := &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}}
	if u.Memory > 0 {
		r.Memory = &specs.LinuxMemory{Limit: &u.Memory}
	}
	if u.CPU > 0 {
		period := uint64(100_000) // microseconds
		quota := int64(u.CPU * float64(period))
		r.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
	return r
}
