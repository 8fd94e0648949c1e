// Package adopt describes existing workloads as jobs of a grid: containers of podman and docker and domains of libvirt
// on a machine, and instances of a croft cloud. It only reads.
package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/grid/machine"
	"croft/grid/unit"
	"croft/internal/lazyregexp"
)

// A Found is a workload that exists on a machine and belongs to no grid.
type Found struct {
	Runtime string    `json:"runtime"` // podman, docker or vm
	Name    string    `json:"name"`    // its name in the runtime
	Running bool      `json:"running"`
	Unit    unit.Unit `json:"unit"`          // without cluster, job and slot
	Not     []string  `json:"not,omitempty"` // properties that a job file cannot express
}

// Runtimes lists the runtimes that List can query.
var Runtimes = []string{"podman", "docker", "vm"}

// List lists the workloads of one runtime on a machine that belong to no grid, sorted by name. The list is empty if the
// runtime is not installed there. Errors: Unavailable if the runtime does not answer, Invalid if it is not one of
// Runtimes.
func List(ctx context.Context, m machine.Machine, runtime string) ([]Found, error) {
	var list []Found
	var err error
	switch runtime {
	case "podman", "docker":
		list, err = containers(ctx, m, runtime)
	case "vm":
		list, err = domains(ctx, m)
	default:
		return nil, croft.Errorf(croft.Invalid, "adopt from %q: only %s are known", runtime, strings.Join(Runtimes,
			", "))
	}
	slices.SortFunc(list, func(a, b Found) int { return strings.Compare(a.Name, b.Name) })
	if err != nil {
		err = fmt.Errorf("list what %s runs: %w", runtime, err)
	}
	return list, err
}

// ask runs a script on a machine. It returns no output and no error if the program is not installed there.
func ask(ctx context.Context, m machine.Machine, program, script string) (string, error) {
	script = "croft_ask() {\ncommand -v " + program + " > /dev/null 2>&1 || return 0\n" + script +
		"\n}\ncroft_ask < /dev/null\n"
	out, err := machine.Output(ctx, m, strings.NewReader(script), "sh", "-s")
	if _, ended := errors.AsType[*machine.Exit](err); ended {
		return "", croft.Errorf(croft.Unavailable, "%w", err)
	}
	return out, err
}

// inspected is the part of `container inspect` of podman and docker that a job file can express, or that must be
// reported as not expressible.
type inspected struct {
	Name  string
	State struct{ Running bool }
	Image string // the digest of the image
	// ImageName is podman's reference of the image; docker reports the reference in Config.Image.
	ImageName string
	Rootfs    string
	Config    struct {
		Image       string
		Env         []string
		Cmd         []string
		Entrypoint  json.RawMessage // a list of strings, or one string from older versions of podman
		User        string
		Labels      map[string]string
		Tty         bool
		StopTimeout *int
	}
	HostConfig struct {
		NetworkMode  string
		PortBindings map[string][]struct{ HostIP, HostPort string }
		Privileged   bool
		NanoCpus     int64
		Memory       int64
		CapAdd       []string
		Devices      []json.RawMessage
		AutoRemove   bool
		PidMode      string
	}
	Mounts []struct {
		Type, Name, Source, Destination string
		RW                              bool
	}
}

func containers(ctx context.Context, m machine.Machine, program string) ([]Found, error) {
	// container inspect merges the image's command and variables into the container's own, so the job repeats
	// them.
	out, err := ask(ctx, m, program, `ids=$(`+program+` ps --all --quiet --no-trunc) || return
[ -z "$ids" ] || `+program+` container inspect $ids`)
	if err != nil || strings.TrimSpace(out) == "" {
		return nil, err
	}
	var all []inspected
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, croft.Errorf(croft.Unavailable, "its answer: %w", err)
	}
	var list []Found
	for _, c := range all {
		if c.Config.Labels["croft.grid.cluster"] == "" {
			list = append(list, c.found(program))
		}
	}
	return list, nil
}

// found describes a container as a unit.
func (c *inspected) found(program string) Found {
	f := Found{Runtime: program, Name: strings.TrimPrefix(c.Name, "/"), Running: c.State.Running}
	u := &f.Unit
	u.Runtime = program
	u.Image.Registry = c.ImageName
	if u.Image.Registry == "" {
		u.Image.Registry = c.Config.Image
	}
	if c.Rootfs != "" {
		u.Image = unit.Image{Rootfs: c.Rootfs}
	}
	u.Command, u.User = c.Config.Cmd, c.Config.User
	f.entrypoint(c.Config.Entrypoint)
	u.Env = environment(c.Config.Env)
	if c.HostConfig.NanoCpus > 0 {
		u.CPU = float64(c.HostConfig.NanoCpus) / 1e9
	}
	u.Memory = c.HostConfig.Memory
	c.network(&f)
	for _, m := range c.Mounts {
		from := m.Source
		if m.Type == "volume" {
			f.not("the volume %s is mounted by the directory that it has now, %s", m.Name, m.Source)
		} else if m.Type != "bind" {
			f.not("the mount of type %s at %s", m.Type, m.Destination)
			continue
		}
		u.Mounts = append(u.Mounts, unit.Mount{From: from, To: m.Destination, ReadOnly: !m.RW})
	}
	if c.Config.StopTimeout != nil && *c.Config.StopTimeout > 0 {
		u.Options = map[string]string{"stop_seconds": strconv.Itoa(*c.Config.StopTimeout)}
	}
	for what, is := range map[string]bool{
		"that it is privileged": c.HostConfig.Privileged, "its devices": len(c.HostConfig.Devices) > 0,
		"its further capabilities " + strings.Join(c.HostConfig.CapAdd, " "): len(c.HostConfig.CapAdd) > 0,
		"its terminal": c.Config.Tty, "that it is removed when it ends": c.HostConfig.AutoRemove,
		"the PID namespace " + c.HostConfig.PidMode: c.HostConfig.PidMode == "host",
	} {
		if is {
			f.not("%s (variables: create of hardpoints/runtime/%s.yaml can add arguments)", what, program)
		}
	}
	slices.Sort(f.Not)
	return f
}

func (f *Found) not(format string, args ...any) { f.Not = append(f.Not, fmt.Sprintf(format, args...)) }

// entrypoint notes a container's entry point as not expressible: a job always uses the entry point of its image.
func (f *Found) entrypoint(raw json.RawMessage) {
	var words []string
	var text string
	if json.Unmarshal(raw, &words) != nil && json.Unmarshal(raw, &text) == nil && text != "" {
		words = strings.Fields(text)
	}
	if len(words) > 0 {
		f.not("the entry point %q, if it is not the image's own", strings.Join(words, " "))
	}
}

// own lists the environment variables that runtimes set themselves.
var own = map[string]bool{"PATH": true, "HOSTNAME": true, "HOME": true, "TERM": true, "container": true}

func environment(list []string) map[string]string {
	var env map[string]string
	for _, entry := range list {
		if key, value, ok := strings.Cut(entry, "="); ok && !own[key] {
			if env == nil {
				env = map[string]string{}
			}
			env[key] = value
		}
	}
	return env
}

func (c *inspected) network(f *Found) {
	u := &f.Unit
	switch mode := c.HostConfig.NetworkMode; mode {
	case "", "default", "bridge", "podman":
		u.Network = "bridge"
	case "host", "none":
		u.Network = mode
	default:
		u.Network = "bridge"
		if strings.HasPrefix(mode, "container:") || strings.HasPrefix(mode, "ns:") {
			f.not("the network of another container, %s", mode)
			break
		}
		if u.Options == nil {
			u.Options = map[string]string{}
		}
		u.Options["network"] = mode
	}
	for at, bindings := range c.HostConfig.PortBindings {
		number, protocol, _ := strings.Cut(at, "/")
		inside, err := strconv.Atoi(number)
		for _, b := range bindings {
			outside, errOut := strconv.Atoi(b.HostPort)
			if err != nil || errOut != nil {
				f.not("the port %s, because the node's port changes at each start", at)
				continue
			}
			address := b.HostIP
			if address == "0.0.0.0" {
				address = ""
			}
			u.Ports = append(u.Ports, unit.Port{Address: address, Node: outside, Unit: inside, Protocol: protocol})
		}
	}
	slices.SortFunc(u.Ports, func(a, b unit.Port) int { return a.Node - b.Node })
}

var unfit = lazyregexp.New(`[^a-z0-9._-]+`)

// JobName returns a valid job name derived from the workload's name, at most 60 bytes long.
func (f Found) JobName() string {
	name := strings.Trim(unfit.Get().ReplaceAllString(strings.ToLower(f.Name), "-"), "-._")
	if name == "" {
		name = f.Runtime
	}
	return name[:min(len(name), 60)]
}

// Path returns the path of the job's file below the cluster's directory, for a workload found on a node.
func (f Found) Path(node string) string {
	return path.Join("jobs", "adopted", node, f.JobName()+".yaml")
}
