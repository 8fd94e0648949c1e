// Package unit has the types that the packages of the grid share: the units that run on a node, with every value
// expanded. Planning compares units, applying orders them, and runtimes start them.
package unit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"croft/internal/lazyregexp"
)

// A Unit is the running part of one slot of a job, on its node.
type Unit struct {
	Cluster string `json:"cluster"` // the cluster's id: 32 hexadecimal digits
	Job     string `json:"job"`     // the job's path below jobs/, such as web/front@7
	Slot    int    `json:"slot"`    // 0 or more
	Runtime string `json:"runtime"` // the name of the hard point that runs it

	Image   Image             `json:"image,omitzero"`
	Command []string          `json:"command,omitempty"` // empty: the image's own command
	Env     map[string]string `json:"env,omitempty"`
	// SecretEnv are the variables whose values contain secrets, sorted by name. No name is in Env too.
	SecretEnv []SecretVar `json:"secret_env,omitempty"`
	User      string      `json:"user,omitempty"` // inside the unit; empty: the image's own user
	Files     []File      `json:"files,omitempty"`
	Mounts    []Mount     `json:"mounts,omitempty"`
	Ports     []Port      `json:"ports,omitempty"`
	Network   string      `json:"network,omitempty"` // host, bridge or none; empty: host
	Address   string      `json:"address,omitempty"` // the unit's own address, if the job has one
	// Interface is the interface of the node that gets the address while the unit runs, if the unit uses the node's
	// network.
	Interface string            `json:"interface,omitempty"`
	CPU       float64           `json:"cpu,omitempty"`     // limit in processors; 0: no limit
	Memory    int64             `json:"memory,omitempty"`  // limit in bytes; 0: no limit
	VM        *VM               `json:"vm,omitempty"`      // only for the runtime vm
	Options   map[string]string `json:"options,omitempty"` // for the runtime's own use

	// Pooled: the address comes from a pool. Without Interface, the interface that leads to the address gets it. Pooled
	// is not part of the hash, so that an upgrade replaces no unit.
	Pooled bool `json:"pooled,omitempty"`

	// How apply treats the unit. These fields are not part of its hash.
	Exclusive bool  `json:"-"` // never two at once: the old unit has ended before the new one starts
	Ready     Check `json:"-"`
	// seconds within which the operator's machine must confirm a change; 0: no confirmation
	Confirm int `json:"-"`
}

// Image is the source of a unit's root directory: exactly one of the first three fields.
type Image struct {
	Rootfs   string `json:"rootfs,omitempty"`   // a directory of the node
	Archive  string `json:"archive,omitempty"`  // a tar file of the repository; sent to nodes that lack its digest
	Registry string `json:"registry,omitempty"` // an image reference that the runtime fetches
	Digest   string `json:"digest,omitempty"`   // of the archive: sha256:<64 hexadecimal digits>
}

// A File is written on the node and mounted into the unit at Path.
type File struct {
	Path    string `json:"path"` // absolute, as the unit sees it
	Mode    uint32 `json:"mode"` // permission bits
	Content string `json:"content,omitempty"`
	Digest  string `json:"digest"`           // SHA-256 of the content, in hexadecimal; for a secret, an HMAC
	Secret  bool   `json:"secret,omitempty"` // the content is never shown, stored in records or passed as an argument
	Kept    bool   `json:"-"`                // only the node has the content, because the secret has changed since
	// ModeUnset: the job gives a secret no mode, so only the unit's user may read it, if that user is known. It is not
	// part of the hash, and Mode keeps its old default, so that an upgrade replaces no unit.
	ModeUnset bool `json:"mode_unset,omitempty"`
}

// A SecretVar is an environment variable whose value is a secret or contains one.
type SecretVar struct {
	Name    string `json:"name"`
	Content string `json:"-"`      // the value; never shown, stored in records or passed as an argument
	Digest  string `json:"digest"` // HMAC of the sealed text
	Kept    bool   `json:"-"`      // only the node has the content, because the secret has changed since
}

// A Mount mounts a directory of the node into the unit.
type Mount struct {
	From     string `json:"from"` // absolute, on the node
	To       string `json:"to"`   // absolute, in the unit
	ReadOnly bool   `json:"readonly,omitempty"`
}

// A Port maps a port of the node to a port of the unit.
type Port struct {
	Address  string `json:"address,omitempty"` // of the node; empty: all addresses
	Node     int    `json:"node"`              // 1 to 65535
	Unit     int    `json:"unit"`              // 1 to 65535
	Protocol string `json:"protocol"`          // tcp or udp
}

// String returns the port of the node with its protocol: 80/tcp, or 10.0.0.1:80/tcp.
func (p Port) String() string {
	number := strconv.Itoa(p.Node)
	if p.Address != "" {
		number = net.JoinHostPort(p.Address, number)
	}
	return number + "/" + p.Protocol
}

// Overlaps reports whether both ports cannot be used on one node. A port without an address uses all addresses, and
// 0.0.0.0 or :: uses all addresses of its family.
func (p Port) Overlaps(q Port) bool {
	if p.Node != q.Node || p.Protocol != q.Protocol {
		return false
	}
	a, errA := netip.ParseAddr(p.Address)
	b, errB := netip.ParseAddr(q.Address)
	a, b = a.Unmap(), b.Unmap()
	return errA != nil || errB != nil || a == b || a.Is4() == b.Is4() && (a.IsUnspecified() || b.IsUnspecified())
}

// NodePorts returns the ports of the node that the unit uses: none if it has no network.
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
	Network  string `json:"network"`             // the name of a network of libvirt
	VirtType string `json:"virt_type"`           // kvm or qemu
	UserData string `json:"user_data,omitempty"` // for cloud-init
}

// A Check tests whether something works, in exactly one way. The zero Check tests nothing.
type Check struct {
	Command []string `json:"command,omitempty"` // run on the node; success is exit code 0
	Here    []string `json:"here,omitempty"`    // run on the operator's machine; success is exit code 0
	URL     string   `json:"url,omitempty"`     // requested from the operator's machine; success is a status of 2xx
	Query   string   `json:"query,omitempty"`   // a Prometheus query at URL; success is one sample that is not 0
	Timeout int      `json:"timeout,omitempty"` // seconds until success; 0: 60
	// for ready: if the new unit does not become ready, it is kept instead of the old one
	Stay bool `json:"stay,omitempty"`
}

// Name returns the unit's name on its node: f-, 8 digits of the cluster's id, the job's name with dots in place of /
// and @, and the slot. It has at most 63 characters: a longer name is cut and ends in a part of its digest.
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

// Hash returns the SHA-256 of the unit's canonical JSON, in hexadecimal: two units with the same hash run the same. The
// contents of files and of secret variables enter it by their digests.
func (u Unit) Hash() string {
	u.Files, u.Pooled = append([]File(nil), u.Files...), false
	for i := range u.Files {
		u.Files[i].Content, u.Files[i].ModeUnset = "", false
	}
	text, err := json.Marshal(u)
	if err != nil {
		panic(err) // every field can be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// MovesAfterItsEnd reports whether the unit must be stopped before it starts on another node: because it is exclusive,
// or has an address that two nodes cannot have at once.
func (u Unit) MovesAfterItsEnd() bool { return u.Exclusive || u.Pooled }

// Kept reports whether only the node has one of the unit's secrets.
func (u Unit) Kept() bool {
	return slices.ContainsFunc(u.Files, func(f File) bool { return f.Kept }) || u.KeptEnv()
}

// KeptEnv reports whether only the node has the value of a variable.
func (u Unit) KeptEnv() bool {
	return slices.ContainsFunc(u.SecretEnv, func(v SecretVar) bool { return v.Kept })
}

var variable = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsVariable reports whether a name is a valid variable name in every shell.
func IsVariable(name string) bool { return variable.MatchString(name) }

// A Node is one machine of the grid, with the units that are to run on it.
type Node struct {
	Name     string `json:"name"` // unique in the cluster
	ID       int    `json:"id"`   // in the CRUSH map; locks are taken in this order
	Local    bool   `json:"local,omitempty"`
	Address  string `json:"address,omitempty"`  // host or host:port, or a Host of the SSH configuration
	User     string `json:"user,omitempty"`     // empty: the user of the SSH configuration
	HostKey  string `json:"host_key,omitempty"` // SHA256:..., pinned; empty: known_hosts decides
	StateDir string `json:"state_dir,omitempty"`
	State    string `json:"state"`              // up, out, drain, maintenance, or left: its file was removed
	Units    []Unit `json:"units"`              // sorted by job and slot
	Firewall string `json:"firewall,omitempty"` // the nftables table of the node, as text; empty: croft keeps none
}
