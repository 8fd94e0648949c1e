package adopt

import (
	"cmp"
	"net/url"
	"path"
	"strings"

	"croft"
	"croft/grid/unit"
)

// images is the directory on the node in which a job expects an image that the operator must still copy there.
const images = "/var/lib/libvirt/images"

// Instance describes an instance of a croft cloud as a job that runs a virtual machine.
func Instance(st croft.Status) Found {
	inst := st.Instance
	spec := inst.Spec
	f := Found{Runtime: "vm", Name: cmp.Or(inst.Name, string(inst.ID))}
	f.Running = st.Observation != nil && st.Observation.State == croft.StateRunning
	vm := &unit.VM{VCPUs: max(1, int(spec.Resources[croft.VCPU])), Memory: spec.Resources[croft.MemoryMB] << 20,
		Disk: spec.Resources[croft.DiskGB] << 30, Network: "default", VirtType: "kvm"}
	f.Unit.Runtime, f.Unit.VM = "vm", vm
	if st.Host != nil && st.Host.VirtType == "qemu" {
		vm.VirtType = "qemu"
	}
	f.imageOf(spec.Image)
	if len(spec.Networks) > 0 {
		vm.Network = spec.Networks[0]
		f.not("the network %s, because its name on the host is not known: name a network of libvirt there, or "+
			"bridge:NAME", vm.Network)
		for _, further := range spec.Networks[1:] {
			f.not("the further network %s", further)
		}
	}
	for _, c := range []struct {
		is   bool
		what string
	}{
		{len(spec.UserData) > 0, "its user-data: put it into a file, and name that in vm.user_data"},
		{len(spec.Keys) > 0, "the keys that may log in, and the host key: put them into the user-data"},
		{len(spec.Affinities) > 0, "its groups: a policy such as spread(rack) keeps slots of one job apart"},
		{len(spec.In)+len(spec.Near)+len(spec.Where)+len(spec.WhereNot) > 0,
			"where it may be: a policy and require of the job say that"},
		{spec.Policy != nil, "the policy by which CRUSH chose its host"},
		{len(spec.Tags) > 0, "its tags"},
		{spec.Restart == croft.RestartAlways || spec.Restart == croft.RestartNever,
			"that it is started again " + string(spec.Restart) + " when it went off"},
		{!inst.Expires.IsZero(), "that it expires"},
	} {
		if c.is {
			f.not("%s", c.what)
		}
	}
	f.not("its disk, addresses and UUID, and the metadata server: the job makes a new machine, with a new disk above the " +
		"image")
	return f
}

// imageOf sets the image to a file on the node: the path in ref if it is an absolute path or file URL, else a file
// below images.
func (f *Found) imageOf(ref string) {
	at, _, _ := strings.Cut(ref, "#")
	if u, err := url.Parse(at); err == nil && u.Scheme != "" {
		at = u.Path
		if u.Scheme != "file" {
			at = ""
		}
	}
	if f.Unit.VM.Image = at; path.IsAbs(at) {
		return
	}
	name, _, _ := strings.Cut(ref, "#")
	name, _, _ = strings.Cut(name, "?")
	if name = path.Base(name); name == "." || name == "/" {
		name = "image"
	}
	f.Unit.VM.Image = path.Join(images, name)
	f.not("the source of its image, %s: put the image on the node as %s", ref, f.Unit.VM.Image)
}
