package runtime

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/compute/hypervisor/libvirt/domainxml"
	"croft/compute/machine"
	"croft/grid/hardpoint"
	"croft/grid/unit"
	"croft/internal/nocloud"
	"croft/internal/userdata"
)

// diskFormat is a placeholder in the domain's XML for the format of the image, which the node detects.
const diskFormat = "@format@"

// machineMark is the mark of a unit in the metadata of its domain.
type machineMark struct {
	XMLName   xml.Name `xml:"unit"`
	Namespace string   `xml:"xmlns,attr"`
	Mark      string   `xml:"mark,attr"`
}

// machineValues adds the values of the runtime vm, such as the domain's XML and its seed disk. They are empty for a
// unit that is not a virtual machine.
func machineValues(v hardpoint.Values, u unit.Unit) error {
	disks := u.Options["disks"]
	if disks == "" {
		disks = "/var/lib/libvirt/images"
	}
	for _, name := range []string{"vm.image", "vm.xml", "vm.size"} {
		v[name] = ""
	}
	v["vm.disks"], v["vm.seed"] = disks, hardpoint.Secret("")
	if u.VM == nil {
		return nil
	}
	if err := checkMachine(u, disks); err != nil {
		return err
	}
	// The instance ID depends on the slot and the unit's hash: to the guest, a slot is the same machine until its unit
	// changes.
	id := croft.InstanceID(uuid.NewSHA1(uuid.NameSpaceURL, []byte("croft:grid:"+u.Name()+":"+u.Hash())).String())
	text, err := domainOf(u, id, disks, v["mark"].(string))
	if err != nil {
		return err
	}
	seed, err := seedOf(u, id)
	if err != nil {
		return err
	}
	v["vm.image"], v["vm.xml"], v["vm.seed"], v["vm.size"] = u.VM.Image, text, seed, fmt.Sprint(u.VM.Disk)
	return nil
}

func checkMachine(u unit.Unit, disks string) error {
	m := u.VM
	switch {
	case m.VCPUs < 1 || m.Memory < 1<<20 || m.Disk < 0:
		return croft.Errorf(croft.Invalid,
			"vm: %d vcpus, %d bytes of memory and %d of disk are no machine: 1 vcpu and "+
				"1 MiB of memory are the least", m.VCPUs, m.Memory, m.Disk)
	case !strings.HasPrefix(m.Image, "/"):
		return croft.Errorf(croft.Invalid,
			"vm: image %q: the absolute path of a qcow2 or raw file of the node is wanted", m.Image)
	case m.VirtType != "" && m.VirtType != domainxml.VirtKVM && m.VirtType != domainxml.VirtQEMU:
		return croft.Errorf(croft.Invalid, "vm: virt_type %q is neither kvm nor qemu", m.VirtType)
	case !strings.HasPrefix(disks, "/"):
		return croft.Errorf(croft.Invalid, "options: disks: %q is no absolute path", disks)
	}
	return nil
}

func domainOf(u unit.Unit, id croft.InstanceID, disks, mark string) (string, error) {
	element, err := xml.Marshal(machineMark{Namespace: "https://croft/grid/1", Mark: mark})
	if err != nil {
		return "", err
	}
	virt := u.VM.VirtType
	if virt == "" {
		virt = domainxml.VirtKVM
	}
	m := machine.Machine{
		ID: id, Name: fmt.Sprintf("%s %d", u.Job, u.Slot), VCPUs: int64(u.VM.VCPUs), MemoryMiB: (u.VM.Memory +
			1<<20 - 1) >> 20,
		Disk: []machine.Layer{{Path: disks + "/" + u.Name() + ".qcow2", Format: "qcow2"},
			{Path: u.VM.Image, Format: diskFormat, Shared: true}},
		Seed: disks + "/" + u.Name() + "-seed.iso", Source: croft.MetadataNoCloud,
		Console: disks + "/" + u.Name() + "-console.log",
	}
	if u.VM.Network != "none" {
		network := u.VM.Network
		if network == "" {
			network = "default"
		}
		m.NICs = []machine.NIC{{MAC: id.MAC(0).String(), Network: network}}
		if bridge, ok := strings.CutPrefix(network, "bridge:"); ok {
			m.NICs[0].Network, m.NICs[0].Bridge = "", bridge
		}
	}
	return domainxml.Definition{Name: u.Name(), Metadata: string(element), Virt: virt}.Marshal(m)
}

// seedOf returns the seed disk, compressed and in base64. cloud-init of the guest reads the guest's name, the user-data
// and the unit's files from it.
func seedOf(u unit.Unit, id croft.InstanceID) (hardpoint.Secret, error) {
	vendor, err := vendorData(u)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &b)
	packed := gzip.NewWriter(text)
	name := nocloud.Hostname(strings.ReplaceAll(strings.TrimPrefix(u.Name(), "f-"), ".", "-"), id)
	meta, err := nocloud.Marshal(nocloud.Meta{InstanceID: string(id), Hostname: name, Zone: nocloud.Zone})
	if err != nil {
		return "", err
	}
	if err := nocloud.WriteDisk(packed, nocloud.Label, []nocloud.File{
		{Name: "meta-data", Body: meta},
		{Name: "user-data", Body: []byte(u.VM.UserData)},
		{Name: "vendor-data", Body: userdata.Join(append(vendor, nocloud.Reporter())...)},
	}); err != nil {
		return "", fmt.Errorf("write the metadata disk of %s: %w", u.Name(), err)
	}
	if err := packed.Close(); err != nil {
		return "", err
	}
	if err := text.Close(); err != nil {
		return "", err
	}
	return hardpoint.Secret(b.String()), nil
}

// vendorData returns a cloud-config with which cloud-init writes the unit's files; nil if the unit has no files.
func vendorData(u unit.Unit) ([]userdata.Part, error) {
	type file struct {
		Path        string `yaml:"path"`
		Permissions string `yaml:"permissions"`
		Encoding    string `yaml:"encoding"`
		Content     string `yaml:"content"`
	}
	var files []file
	for _, f := range u.Files {
		if f.ModeUnset {
			f.Mode = 0o600 // cloud-init makes root of the guest the owner
		}
		files = append(files, file{f.Path, fmt.Sprintf("%04o", f.Mode&0o7777), "b64",
			base64.StdEncoding.EncodeToString([]byte(f.Content))})
	}
	if files == nil {
		return nil, nil
	}
	text, err := yaml.Marshal(map[string][]file{"write_files": files})
	return []userdata.Part{{Name: "vendor-data", Data: append([]byte("#cloud-config\n"), text...)}}, err
}
