// Package unit has the nouns that the rooms of the grid share: what is to run on a node, with every value expanded. It
// is what planning compares, applying orders and runtimes start.
package unit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
)

// A Unit is what one slot of a job runs on its node.
type Unit struct {
	Cluster string `json:"cluster"` // the cluster's id: 32 hexadecimal digits
	Job     string `json:"job"`     // the job's path below jobs/, such as web/front@7
	Slot    int    `json:"slot"`    // from 0
	Runtime string `json:"runtime"` // the hard point that runs it

	Image   Image             `json:"image,omitzero"`
	Command []string          `json:"command,omitempty"` // none: the image's own
	Env     map[string]string `json:"env,omitempty"`
	// SecretEnv are the variables whose values have secrets, sorted by name. No name is in Env too.
	SecretEnv []SecretVar `json:"secret_env,omitempty"`
	User      string      `json:"user,omitempty"` // inside of it; none: the image's own
	Files     []File      `json:"files,omitempty"`
	Mounts    []Mount     `json:"mounts,omitempty"`
	Ports     []Port      `json:"ports,omitempty"`
	Network   string      `json:"network,omitempty"` // host, bridge or none; none given: host
	Address   string      `json:"address,omitempty"` // of its own, if the job has one
	// Interface of the node gets the address while the unit runs, where it has the node's network.
	Interface string            `json:"interface,omitempty"`
	CPU       float64           `json:"cpu,omitempty"`     // processors at most; 0: no limit
	Memory    int64             `json:"memory,omitempty"`  // bytes at most; 0: no limit
	VM        *VM               `json:"vm,omitempty"`      // for the runtime vm alone
	Options   map[string]string `json:"options,omitempty"` // for the runtime's own use

	// Pooled: the address comes from a pool. Without Interface, the one that leads to it gets it. It is no part of the
	// hash, so that units of former versions stay.
	Pooled bool `json:"pooled,omitempty"`

	// How applying treats it; no part of what runs, and of its hash.
	Exclusive bool  `json:"-"` // never two at once: the old one has ended before the new one starts
	Ready     Check `json:"-"`
	Confirm   int   `json:"-"` // seconds in which the operator's machine confirms a change; 0: none is asked for
}

// Image is what a unit's root directory comes from: exactly one of the first three.
type Image struct {
	Rootfs   string `json:"rootfs,omitempty"`   // a directory of the node
	Archive  string `json:"archive,omitempty"`  // a tar file of the repository; sent where its digest is absent
	Registry string `json:"registry,omitempty"` // a reference that the runtime fetches
	Digest   string `json:"digest,omitempty"`   // of the archive: sha256:<64 hexadecimal digits>
}

// A File is written on the node and shown to the unit at Path.
type File struct {
	Path    string `json:"path"` // absolute, as the unit sees it
	Mode    uint32 `json:"mode"` // permission bits
	Content string `json:"content,omitempty"`
	Digest  string `json:"digest"`           // SHA-256 of the content, in hexadecimal; a secret's is keyed
	Secret  bool   `json:"secret,omitempty"` // the content is never shown, stored here or passed as an argument
	Kept    bool   `json:"-"`                // only the node has the content: of a secret that has changed since
	// ModeUnset: the job gives a secret no mode, so it is for the unit's user alone where that is known. It is no part
	// of the hash: Mode is what it always was, so that no unit is replaced for it.
	ModeUnset bool `json:"mode_unset,omitempty"`
}

// A SecretVar is a variable of the environment whose value is a secret, or has one inside.
type SecretVar struct {
	Name    string `json:"name"`
	Content string `json:"-"`      // the value; never shown, stored here or passed as an argument
	Digest  string `json:"digest"` // keyed, of the sealed text
	Kept    bool   `json:"-"`      // only the node has the content: of a secret that has changed since
}

// A Mount shows a directory of the node to the unit.
type Mount struct {
	From     string `json:"from"` // absolute, on the node
	To       string `json:"to"`   // absolute, in the unit
	ReadOnly bool   `json:"readonly,omitempty"`
}

// A Port of the unit is reached at a port of the node.
type Port struct {
	Address  string `json:"address,omitempty"` // of the node; none: all
	Node     int    `json:"node"`              // 1 to 65535
	Unit     int    `json:"unit"`              // 1 to 65535
	Protocol string `json:"protocol"`          // tcp or udp
}

// String is the port of the node with its protocol: 80/tcp, or 10.0.0.1:80/tcp.
func (p Port) String() string {
	number := strconv.Itoa(p.Node)
	if p.Address != "" {
		number = net.JoinHostPort(p.Address, number)
	}
	return number + "/" + p.Protocol
}

// Overlaps says whether a node cannot give both ports. A port without an address takes it of all addresses, and one of
// 0.0.0.0 or :: takes it of all of that family.
func (p Port) Overlaps(q Port) bool {
	if p.Node != q.Node || p.Protocol != q.Protocol {
		return false
	}
	a, errA := netip.ParseAddr(p.Address)
	b, errB := netip.ParseAddr(q.Address)
	a, b = a.Unmap(), b.Unmap()
	return errA != nil || errB != nil || a == b || a.Is4() == b.Is4() && (a.IsUnspecified() || b.IsUnspecified())
}

// NodePorts are the ports of the node that the unit takes there: none, if it is on no network.
func (u Unit) NodePorts() []Port {
	if u.Network == "none" {
		return nil
	}
	return u.Ports
}

// VM is the virtual machine of a unit of the runtime vm, on the libvirt of its node.
type VM struct {
	VCPUs    int    `json:"vcpus"`
	Memory   int64  `json:"memory"`              // bytes
	Disk     int64  `json:"disk"`                // bytes
	Image    string `json:"image"`               // a qcow2 or raw file of the node
	Network  string `json:"network"`             // of libvirt
	VirtType string `json:"virt_type"`           // kvm or qemu
	UserData string `json:"user_data,omitempty"` // for cloud-init
}

// A Check says whether something works: exactly one of its ways. The zero Check asks nothing.
type Check struct {
	Command []string `json:"command,omitempty"` // on the node; exit code 0 is yes
	Here    []string `json:"here,omitempty"`    // on the operator's machine; exit code 0 is yes
	URL     string   `json:"url,omitempty"`     // asked from the operator's machine: a status of 2xx is yes
	Query   string   `json:"query,omitempty"`   // a Prometheus query at URL: one sample that is not 0 is yes
	Timeout int      `json:"timeout,omitempty"` // seconds until yes; 0: 60
	Stay    bool     `json:"stay,omitempty"`    // of ready: a unit that does not get ready is not replaced by the former one
}

// Name is the unit's name on its node, at most 63 characters for jobs whose names are short enough: f-, 8 digits of the
// cluster's id, the job with / and @ as dots, and the slot. Names that would be longer end in a part of their digest.
func (u Unit) Name() string {
	name := []byte(fmt.Sprintf("f-%.8s-%s-%d", u.Cluster, u.Job, u.Slot))
	for i, c := range name {
		if c == '/' || c == '@' {
			name[i] = '.'
		}
	}
	plain := string(name)
	if len(plain) > 63 {
		sum := sha256.Sum256([]byte(u.Job))
		plain = fmt.Sprintf("%.40s-%s-%d", plain, hex.EncodeToString(sum[:6]), u.Slot)
	}
	return plain
}

// Hash is the SHA-256 of the unit's canonical JSON, in hexadecimal: two units with one hash run the same. The content
// of files and of secret variables counts by their digests.
func (u Unit) Hash() string {
	u.Files, u.Pooled = append([]File(nil), u.Files...), false
	for i := range u.Files {
		u.Files[i].Content, u.Files[i].ModeUnset = "", false
	}
	text, err := json.Marshal(u)
	if err != nil {
		panic(err) // every field has a form
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// MovesAfterItsEnd reports whether a move of the unit stops it before it starts elsewhere: where it may run once, or
// has an address that no two nodes may have.
func (u Unit) MovesAfterItsEnd() bool { return u.Exclusive || u.Pooled }

// Kept reports whether only the node has some secret of the unit.
func (u Unit) Kept() bool {
	return slices.ContainsFunc(u.Files, func(f File) bool { return f.Kept }) || u.KeptEnv()
}

// KeptEnv reports whether only the node has the value of some variable.
func (u Unit) KeptEnv() bool {
	return slices.ContainsFunc(u.SecretEnv, func(v SecretVar) bool { return v.Kept })
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsVariable reports whether every shell takes a name for that of a variable.
func IsVariable(name string) bool { return variable.MatchString(name) }

// A Node is one machine of the grid and everything that is to run there.
type Node struct {
	Name     string `json:"name"` // unique in the cluster
	ID       int    `json:"id"`   // its id in the CRUSH map; locks are taken in this order
	Local    bool   `json:"local,omitempty"`
	Address  string `json:"address,omitempty"`  // host or host:port, or a Host of the ssh configuration
	User     string `json:"user,omitempty"`     // none: the ssh configuration's
	HostKey  string `json:"host_key,omitempty"` // SHA256:..., pinned; none: known_hosts decides
	StateDir string `json:"state_dir,omitempty"`
	State    string `json:"state"`              // up, out, drain, maintenance, or left: its file was removed
	Units    []Unit `json:"units"`              // sorted by job and slot
	Firewall string `json:"firewall,omitempty"` // the nftables table of the node, as text; empty: none is kept
}
