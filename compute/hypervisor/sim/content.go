package sim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"croft"
	"croft/compute"
)

// diskFile is the content of a simulated disk's file: the name of the layer below, and the data that was written since
// the file was made, which replaces all data below.
type diskFile struct {
	below string // empty: it has none
	data  []byte // nil: nothing was written to it
}

// The beginnings of parts of a file. A file without them has the name of the layer below, if that is absolute, or data.
var (
	named   = []byte("\x00below ")
	written = []byte("\x00content\n")
)

func readFile(path string) (f diskFile, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	rest, has := bytes.CutPrefix(text, named)
	if has {
		name, data, _ := bytes.Cut(rest, []byte("\n"))
		f.below, rest = string(name), data
	}
	switch data, is := bytes.CutPrefix(rest, written); {
	case is:
		f.data = append([]byte{}, data...)
	case !has && filepath.IsAbs(string(rest)):
		f.below = string(rest)
	case len(rest) > 0:
		f.data = rest
	}
	return f, nil
}

// write replaces a file atomically.
func (f diskFile) write(path string) error {
	text := []byte(f.below)
	if f.data != nil && f.below != "" {
		text = fmt.Appendf(nil, "%s%s\n", named, f.below)
	}
	if f.data != nil {
		text = append(append(text, written...), f.data...)
	}
	return replace(path, text)
}

// content returns the data of a disk, given its files, the topmost first; nil: nothing was written since it was made.
func content(layers []compute.Layer) ([]byte, error) {
	for _, l := range layers {
		if l.Shared {
			return nil, nil // the image, whose data simulated guests do not have
		}
		f, err := readFile(l.Path)
		if err != nil || f.data != nil {
			return f.data, err
		}
	}
	return nil, nil
}

// merge writes the data of a layer, if it has any, into the layer below.
func merge(layer, below string) error {
	from, err := readFile(layer)
	if err != nil {
		return err
	}
	to, err := readFile(below)
	if err != nil || from.data == nil {
		return err
	}
	to.data = from.data
	return to.write(below)
}

// rename names another layer below a file, which keeps its data.
func rename(file, below string) error {
	f, err := readFile(file)
	if err != nil {
		return err
	}
	f.below = below
	return f.write(file)
}

// Write makes a running guest write data to all its disks at one moment, and returns these disks. Conflict: the guest
// does not run. NotFound.
func (h *Hypervisor) Write(id croft.InstanceID, data string) (disks []croft.VolumeID, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err == nil && g.Power != compute.PowerOn {
		err = croft.Errorf(croft.Conflict, "the guest does not run")
	}
	if err != nil {
		return nil, err
	}
	return g.write(data)
}

// write writes data to all disks. The caller holds the hypervisor's mutex.
func (g *guest) write(data string) (disks []croft.VolumeID, err error) {
	for _, disk := range g.disks() {
		top := g.layers(disk)[0].Path
		f, err := readFile(top)
		if err != nil {
			return disks, fmt.Errorf("write to a simulated disk: %w", err)
		}
		f.data = []byte(data)
		if err := f.write(top); err != nil {
			return disks, fmt.Errorf("write to a simulated disk: %w", err)
		}
		disks = append(disks, disk)
	}
	return disks, nil
}

// disks returns the disks of a guest.
func (g *guest) disks() (all []croft.VolumeID) {
	if len(g.Machine.Disk) > 0 {
		all = append(all, compute.RootDisk)
	}
	for _, v := range g.Machine.Volumes {
		all = append(all, v.ID)
	}
	return all
}

// Disks returns the data of a guest's disks. NotFound.
func (h *Hypervisor) Disks(_ context.Context, id croft.InstanceID) (map[croft.VolumeID]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil {
		return nil, err
	}
	all := map[croft.VolumeID]string{}
	for _, disk := range g.disks() {
		data, err := content(g.layers(disk))
		if err != nil {
			return nil, fmt.Errorf("read a simulated disk: %w", err)
		}
		all[disk] = string(data)
	}
	return all, nil
}

// Open returns the topmost files of the disks that a guest's process has open, by volume; none: it is off, or there is
// no such guest.
func (h *Hypervisor) Open(id croft.InstanceID) map[croft.VolumeID]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil || g.Power == compute.PowerOff {
		return nil
	}
	open := map[croft.VolumeID]string{}
	for _, disk := range g.disks() {
		open[disk] = g.layers(disk)[0].Path
	}
	return open
}

// Below returns the data of the disk below an overlay of a guest. Unlike that of the disk itself, it does not change.
// NotFound: it does not have the overlay.
func (h *Hypervisor) Below(id croft.InstanceID, disk croft.VolumeID, overlay string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil {
		return "", err
	}
	layers := g.layers(disk)
	at := slices.IndexFunc(layers, func(l compute.Layer) bool { return filepath.Base(l.Path) == overlay })
	if at < 0 {
		return "", croft.Errorf(croft.NotFound, "the guest has no overlay %s", overlay)
	}
	data, err := content(layers[at+1:])
	return string(data), err
}

// VolumeContent returns the data of a volume that no guest uses, given its file. What its former guest wrote after a
// snapshot is in a file above it until the snapshot, which was lost with that guest, is removed.
func VolumeContent(file string) (string, error) {
	overlays, err := filepath.Glob(filepath.Join(filepath.Dir(file), "disk.*.qcow2"))
	if err != nil {
		return "", err
	}
	above := map[string]string{}
	for _, overlay := range overlays {
		f, err := readFile(overlay)
		if err != nil {
			return "", err
		}
		above[f.below] = overlay
	}
	data, err := FileContent(file)
	for file = above[file]; file != "" && err == nil; file = above[file] {
		var written string
		if written, err = FileContent(file); written != "" {
			data = written
		}
	}
	return data, err
}

// FileContent returns the data in a file of a simulated disk that no guest uses.
func FileContent(path string) (string, error) {
	f, err := readFile(path)
	return string(f.data), err
}
