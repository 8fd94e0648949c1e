package mdserver

import (
	"cmp"
	"fmt"
	"strings"

	"croft/internal/acquaint"
	"croft/internal/guestname"
	"croft/internal/hostkey"
	"croft/internal/nocloud"
	"croft/internal/userdata"
)

// ownParts returns croft's own parts of the guest's set-up. They are separate from the user's data, as vendor data if
// the metadata source supports it, so that the user's data takes precedence.
func (g Guest) ownParts() []userdata.Part {
	parts := []userdata.Part{nocloud.BootReporter()}
	if config := g.hostKeyConfig(); config != nil {
		parts = append(parts, userdata.Part{Name: "croft-host-key", Data: config})
	}
	parts = append(parts, g.searchParts()...)
	parts = append(parts, g.mountParts()...)
	if g.ClusterKey != "" {
		peers := "#cloud-boothook\n" + acquaint.Script(acquaint.Metadata)
		parts = append(parts, userdata.Part{Name: "croft-peers", Data: []byte(peers)},
			userdata.Part{Name: "croft-acquainted", Data: []byte(acquaint.Wait())})
	}
	return parts
}

// searchParts lets a guest with systemd-resolved find the other instances of its project by their names alone. Other
// guests use the full names.
func (g Guest) searchParts() []userdata.Part {
	domain, ok := guestname.Search(g.Project)
	if !ok {
		return nil
	}
	script := strings.ReplaceAll(searchScript, "DOMAIN", domain) // letters, digits, dots and dashes
	return []userdata.Part{{Name: "croft-search", Data: []byte("#cloud-boothook\n" + script)}}
}

const searchScript = `#!/bin/sh
file=/etc/systemd/resolved.conf.d/croft.conf
command -v resolvectl >/dev/null 2>&1 || exit 0
grep -qs '^Domains=DOMAIN$' $file && exit 0
mkdir -p ${file%/*} && printf '[Resolve]\nDomains=DOMAIN\n' >$file && systemctl --no-block try-restart systemd-resolved
exit 0
`

// hostKeyConfig makes cloud-init install the SSH server's key as the only one, so that clients are never
// offered an unverifiable key.
func (g Guest) hostKeyConfig() []byte {
	public, err := hostkey.Public(g.HostKey)
	if err != nil {
		return nil // created before host keys existed, or by another program
	}
	text, err := nocloud.Marshal(map[string]map[string]string{"ssh_keys": {"ed25519_private": g.HostKey,
		"ed25519_public": public}})
	if err != nil {
		return nil // strings can always be encoded
	}
	return append([]byte("#cloud-config\n"), text...)
}

// Path of the host key for guests without cloud-init: the key is unmodified, on the server and on disks.
const (
	hostKeyFile = "host-key"
	croftDir    = "croft"
)

// croftFiles returns the files for guests that support croft.
func (g Guest) croftFiles() []node {
	files := g.peerFiles()
	if g.HostKey != "" {
		files = append(files, file(hostKeyFile, g.HostKey))
	}
	if len(files) == 0 {
		return nil
	}
	return []node{dir("v1", files...)}
}

// peerFiles returns the files for a member of a cluster: the key that all members share, and the list of members with
// address, name, role and public key of the SSH server, one per line. There is no list until the members have
// addresses.
func (g Guest) peerFiles() []node {
	public, err := hostkey.Public(g.ClusterKey)
	if g.ClusterKey == "" || err != nil {
		return nil
	}
	files := []node{file("cluster-key", g.ClusterKey), file("cluster-key.pub", public+"\n")}
	if len(g.Peers) == 0 {
		return files
	}
	var list strings.Builder
	for _, p := range g.Peers {
		fmt.Fprintln(&list, strings.Join([]string{p.Address, p.Name, cmp.Or(p.Role, "-"), p.HostKey}, " "))
	}
	return append(files, file("peers", list.String()))
}

// vendorLayer returns the operator's addition, if any.
func (g Guest) vendorLayer() []userdata.Part {
	if len(g.Vendor) == 0 {
		return nil
	}
	return []userdata.Part{{Name: "vendor-data", Data: g.Vendor}}
}
