package adopt

import (
	"bytes"
	"fmt"
	"strconv"

	"gopkg.in/yaml.v3"

	"croft/grid/unit"
)

// job is a job's file. The keys are in the order in which people read them.
type job struct {
	Runtime  string            `yaml:"runtime"`
	Image    map[string]string `yaml:"image,omitempty"`
	Command  []string          `yaml:"command,omitempty"`
	Env      map[string]string `yaml:"env,omitempty"`
	User     string            `yaml:"user,omitempty"`
	Mounts   []string          `yaml:"mounts,omitempty"`
	Ports    []string          `yaml:"ports,omitempty"`
	Network  string            `yaml:"network,omitempty"`
	Limits   map[string]any    `yaml:"limits,omitempty"`
	VM       map[string]any    `yaml:"vm,omitempty"`
	Options  map[string]string `yaml:"options,omitempty"`
	Replicas int               `yaml:"replicas"`
	Policy   string            `yaml:"policy"`
}

// File returns the text of a job file that pins the workload to a node. It doubles every $, since variables are
// expanded in job files.
func (f Found) File(node string) ([]byte, error) {
	u := f.Unit
	j := job{Runtime: u.Runtime, Command: plainAll(u.Command), User: plain(u.User), Network: u.Network, Replicas: 1,
		Policy: "pin(" + node + ")"}
	switch {
	case u.Image.Rootfs != "":
		j.Image = map[string]string{"rootfs": plain(u.Image.Rootfs)}
	case u.Image.Registry != "":
		j.Image = map[string]string{"registry": plain(u.Image.Registry)}
	}
	j.Env, j.Options = plainMap(u.Env), plainMap(u.Options)
	for _, m := range u.Mounts {
		text := plain(m.From) + ":" + plain(m.To)
		if m.ReadOnly {
			text += ":ro"
		}
		j.Mounts = append(j.Mounts, text)
	}
	for _, p := range u.Ports {
		j.Ports = append(j.Ports, port(p))
	}
	j.limits(u)
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Adopted: %s of %s on %s.\n", f.Name, f.Runtime, node)
	for _, not := range f.Not {
		fmt.Fprintf(&b, "# Not expressed: %s.\n", not)
	}
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(j); err != nil {
		return nil, fmt.Errorf("write the job of %s: %w", f.Name, err)
	}
	return b.Bytes(), nil
}

func (j *job) limits(u unit.Unit) {
	if u.CPU > 0 || u.Memory > 0 {
		j.Limits = map[string]any{}
	}
	if u.CPU > 0 {
		j.Limits["cpu"] = u.CPU
	}
	if u.Memory > 0 {
		j.Limits["memory"] = u.Memory
	}
	if m := u.VM; m != nil {
		j.VM = map[string]any{"vcpus": m.VCPUs, "memory": m.Memory, "disk": m.Disk, "image": plain(m.Image),
			"network": plain(m.Network), "virt_type": m.VirtType}
	}
}

func port(p unit.Port) string {
	text := strconv.Itoa(p.Node) + ":" + strconv.Itoa(p.Unit)
	if p.Address != "" {
		text = p.Address + ":" + text
	}
	if p.Protocol == "udp" {
		text += "/udp"
	}
	return text
}

func plain(text string) string {
	return string(bytes.ReplaceAll([]byte(text), []byte("$"), []byte("$$")))
}

func plainAll(list []string) []string {
	var all []string
	for _, text := range list {
		all = append(all, plain(text))
	}
	return all
}

func plainMap(m map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range m {
		all[key] = plain(value)
	}
	return all
}
