package schedule

import (
	"strconv"
	"strings"

	"croft"
)

// Attachments are the volumes of a request.
type Attachments struct {
	Volumes []string        // existing ones, by name
	Disks   []croft.NewDisk // to create
	Mounts  []croft.Mount
	names   []string // of both
}

// AddVolume adds an existing volume: NAME[:PATH[:FILESYSTEM]]. With a path, cloud-init mounts it there. Invalid.
func (a *Attachments) AddVolume(text string) error {
	name, err := a.add(text)
	if err == nil {
		a.Volumes = append(a.Volumes, name)
	}
	return err
}

// AddDisk adds a volume to create: SIZE[:NAME[:PATH[:FILESYSTEM]]]. Invalid.
func (a *Attachments) AddDisk(text string) error {
	size, volume, named := strings.Cut(text, ":")
	name, err := a.add(volume)
	if err != nil {
		return err
	}
	d := croft.NewDisk{Name: name}
	if d.SizeGB, err = ParseVolumeSize(size); err == nil && named {
		err = CheckName(name)
	}
	if err == nil {
		a.Disks = append(a.Disks, d)
	}
	return err
}

// add notes the name of a volume, and where it is mounted, unless that is wrong.
func (a *Attachments) add(text string) (name string, err error) {
	names, mounts := a.names, a.Mounts
	defer func() {
		if err != nil {
			a.names, a.Mounts = names, mounts
		}
	}()
	name, where, mounted := strings.Cut(text, ":")
	path, filesystem, formatted := strings.Cut(where, ":")
	a.names = append(a.names, name)
	switch {
	case mounted && name == "":
		return name, croft.Errorf(croft.Invalid, "name the volume that is to be mounted")
	case formatted && filesystem == "":
		return name, croft.Errorf(croft.Invalid, "the file system is empty: use one of %s, or leave the last colon out",
			strings.Join(croft.Filesystems, ", "))
	case mounted:
		a.Mounts = append(a.Mounts, croft.Mount{Volume: name, Path: path, Filesystem: filesystem})
	}
	return name, croft.CheckMounts(a.Mounts, a.names)
}

// ParseVolumeSize parses a size in GiB, such as 20, 20G, 20gib or 1T. Invalid.
func ParseVolumeSize(text string) (int64, error) {
	number, factor := strings.TrimSuffix(strings.ToUpper(text), "IB"), int64(1)
	if short, is := strings.CutSuffix(number, "T"); is {
		number, factor = short, 1024
	} else {
		number = strings.TrimSuffix(number, "G")
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > croft.MaxVolumeGB {
		return 0, croft.Errorf(croft.Invalid, "%q is not a size of a volume: write whole GiB, such as 20G, up to %dG", text,
			croft.MaxVolumeGB)
	}
	return n * factor, croft.CheckVolumeSize(n * factor)
}
