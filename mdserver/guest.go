package mdserver

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"croft"
)

// Guests knows whose an address is.
type Guests interface {
	// Guest returns the instance that holds addr now. NotFound: it is nobody's.
	// It returns when ctx ends.
	Guest(ctx context.Context, addr netip.Addr) (Guest, error)
}

// Guest is what an instance may learn about itself.
type Guest struct {
	ID        croft.InstanceID
	Project   croft.Project
	Name      string
	Zone      string          // the location of its host; shown as the availability zone
	Image     string          // the reference it was made from
	Resources croft.Resources // shown as the instance type
	Keys      []string        // lines of authorized_keys
	UserData  []byte
	Tags      map[string]string
	IMDS      croft.IMDS         // what the server asks of readers; optional where empty
	Vendor    []byte             // what the host's operator adds to every guest's set-up; text
	HostKey   string             // private key of its SSH server, in PEM; its own where empty
	Address   netip.Addr         // the zero address where it is not known yet
	MACs      []net.HardwareAddr // of its network interfaces, in order

	// Ports are the host's interfaces at which the guest's are, by MAC. The server
	// answers on a bridge those alone who ask by their own.
	Ports map[string]string
}

// FromOrder is the guest that an order describes. Zone, Vendor, Address and Ports are
// not in an order; the caller fills them where it knows them.
func FromOrder(o croft.Order) Guest {
	return Guest{
		ID:        o.Instance,
		Project:   o.Project,
		Name:      o.Name,
		Image:     o.Spec.Image,
		Resources: o.Spec.Resources,
		Keys:      o.Spec.Keys,
		UserData:  o.Spec.UserData,
		Tags:      o.Spec.Tags,
		IMDS:      o.Spec.IMDS,
		HostKey:   o.Spec.HostKey,
		MACs:      []net.HardwareAddr{o.Instance.MAC(0)},
	}
}

// MACs are those of the interfaces that an order's instance has on a host that
// gives so many to instances which name no networks.
func MACs(o croft.Order, usual int) []net.HardwareAddr {
	n := max(usual, 1)
	if len(o.Spec.Networks) > 0 {
		n = len(o.Spec.Networks)
		if slices.Contains(o.Spec.Networks, croft.DefaultNetworks) {
			n += max(usual, 1) - 1
		}
	}
	var all []net.HardwareAddr
	for i := range n {
		all = append(all, o.Instance.MAC(i))
	}
	return all
}

// Hostname is the instance's name as a DNS label (RFC 1123): what is not a letter,
// digit or dash becomes a dash. A name of which nothing is left gives vm- and the
// beginning of the UUID.
func (g Guest) Hostname() string {
	label := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, g.Name)
	label = strings.Trim(label, "-")
	label = strings.Trim(label[:min(len(label), 63)], "-")
	return cmp.Or(label, "vm-"+string(g.ID[:min(len(g.ID), 8)]))
}

// zone is never empty: there are programs that read it and expect a word.
func (g Guest) zone() string { return cmp.Or(g.Zone, "default") }

// region is the outermost step of the location.
func (g Guest) region() string {
	first, _, _ := strings.Cut(g.zone(), "/")
	return first
}

// imageName is the file name of the image reference, without its checksum and
// without what an address may carry of passwords and parameters.
func (g Guest) imageName() string {
	ref, _, _ := strings.Cut(g.Image, "#")
	ref, _, _ = strings.Cut(ref, "?")
	return path.Base(cmp.Or(ref, "unknown"))
}

// size puts the resources in one word, such as 1vcpu-256mb-1gb.
func (g Guest) size() string {
	return fmt.Sprintf("%dvcpu-%dmb-%dgb",
		g.Resources[croft.VCPU], g.Resources[croft.MemoryMB], g.Resources[croft.DiskGB])
}

// publicKey is a key by its name.
type publicKey struct{ name, line string }

// publicKeys names the keys by their comments, keyN where one has none, and makes
// equal names different, since clients use them as keys of a map. What an
// authorized_keys file may hold besides is left out: blank lines, comments, and
// a key for the second time.
func (g Guest) publicKeys() []publicKey {
	var keys []publicKey
	taken := map[string]bool{}
	for _, line := range g.Keys {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || slices.ContainsFunc(keys, func(k publicKey) bool { return k.line == line }) {
			continue
		}
		first := keyName(line, len(keys))
		name := first
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s-%d", first, n)
		}
		taken[name] = true
		keys = append(keys, publicKey{name, line})
	}
	return keys
}

func keyName(line string, n int) string {
	_, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || strings.TrimSpace(comment) == "" {
		return fmt.Sprintf("key%d", n)
	}
	return strings.TrimSpace(comment)
}
