package mdserver

import (
	"bytes"
	_ "embed"

	"gopkg.in/yaml.v3"

	"croft/internal/hostkey"
	"croft/internal/userdata"
)

// reporter is a script that has cloud-init's own Python tell the server how the
// guest's set-up ended.
//
//go:embed reporter.sh
var reporter []byte

// ownParts are croft's own part in setting the guest up. They go beside the user's
// data, as vendor data where the source of metadata has a place for that, so that
// the user's word counts more.
func (g Guest) ownParts() []userdata.Part {
	parts := []userdata.Part{{Name: "croft-report", Data: reporter}}
	if config := g.hostKeyConfig(); config != nil {
		parts = append(parts, userdata.Part{Name: "croft-host-key", Data: config})
	}
	return parts
}

// hostKeyConfig has cloud-init give the SSH server its key, which is then the only
// one: whoever connects cannot be offered another that nobody can verify.
func (g Guest) hostKeyConfig() []byte {
	public, err := hostkey.Public(g.HostKey)
	if err != nil {
		return nil // of a time before there were host keys, or not from croft
	}
	text,
		err := marshal(map[string]map[string]string{"ssh_keys": {"ed25519_private": g.HostKey,
		"ed25519_public": public}})
	if err != nil {
		return nil // strings can be written
	}
	return append([]byte("#cloud-config\n"), text...)
}

// The host key for guests without cloud-init: as it is, on the server and on disks.
const (
	hostKeyFile = "host-key"
	croftDir    = "croft"
)

// croftFiles are those that only guests which know croft ask for.
func (g Guest) croftFiles() []node {
	if g.HostKey == "" {
		return nil
	}
	return []node{dir("v1", file(hostKeyFile, g.HostKey))}
}

// vendorLayer is what the host's operator adds, if anything.
func (g Guest) vendorLayer() []userdata.Part {
	if len(g.Vendor) == 0 {
		return nil
	}
	return []userdata.Part{{Name: "vendor-data", Data: g.Vendor}}
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
