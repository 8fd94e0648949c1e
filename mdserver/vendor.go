package mdserver

import (
	_ "embed"

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
	return []userdata.Part{{Name: "croft-report", Data: reporter}}
}

// vendorLayer is what the host's operator adds, if anything.
func (g Guest) vendorLayer() []userdata.Part {
	if len(g.Vendor) == 0 {
		return nil
	}
	return []userdata.Part{{Name: "vendor-data", Data: g.Vendor}}
}

// vendorData wraps parts as OpenStack does: what is below the key cloud-init, that
// takes as it takes user-data.
func vendorData(parts []userdata.Part) []byte {
	if len(parts) == 0 {
		return []byte("{}")
	}
	return encode(map[string]string{"cloud-init": string(userdata.Join(parts...))})
}
