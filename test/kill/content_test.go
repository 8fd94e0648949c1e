package kill

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"croft"
	"croft/compute"
	"croft/compute/backup"
	"croft/compute/hypervisor/sim"
)

// unclaimed is the difference that an operator mends after a host was forgotten that had volumes.
const unclaimed = "claims %v of %s, and has %d GiB"

// checkDisks compares volumes, snapshots, images and backups with files, claims, and what commands said.
func (w *world) checkDisks(l *look, complain func(id, format string, args ...any)) {
	named := map[string]croft.Volume{} // by kind and name
	for _, v := range l.volumes {
		if v.Snapshot == nil {
			named["volume "+v.Name] = v
		} else {
			named["snapshot "+v.Name] = v
		}
		w.checkVolume(l, v, func(format string, args ...any) { complain(string(v.ID), format, args...) })
	}
	for key, host := range l.attached {
		if _, exists := l.volumes[host+"/"+last(key)]; !exists {
			complain(last(key), "it is attached by %s, and has no record", key)
		}
	}
	w.checkNames(l, named, complain)
	w.checkFiles(l, complain)
	w.disks.mu.Lock()
	defer w.disks.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(l.records)) {
		if f := w.disks.all[id]; f != nil {
			w.checkContent(l, l.records[id], f, func(format string, args ...any) { complain(id, format, args...) })
		}
	}
	for _, v := range l.volumes {
		f := w.disks.all[string(v.ID)]
		if v.Snapshot != nil || v.MadeGB == 0 {
			continue
		}
		text, err := w.volumeContent(l, v)
		if err != nil || f != nil && !f.may.has(text) {
			complain(string(v.ID), "volume %s has %q, and may have %v: %v", v.Name, text, f, err)
		}
	}
}

// checkVolume checks the record of a volume or a snapshot.
func (w *world) checkVolume(l *look, v croft.Volume, complain func(string, ...any)) {
	what := "volume " + v.Name
	if v.Snapshot != nil {
		what = "snapshot " + v.Name
		if v.Snapshot.Lost { // it is on a host where its instance was lost, and may have been taken or not
			return
		}
	}
	if _, attached := l.attached[string(v.Instance)+"/"+string(v.ID)]; !attached && v.Snapshot == nil {
		v.Instance, v.Detaching = "", false // its instance ended, with the key
	}
	if got := l.amounts[provider(v)+"/"+string(v.ID)]; !maps.Equal(got, croft.Resources{croft.DiskGB: v.SizeGB}) {
		complain(unclaimed+", "+what, got, provider(v), v.SizeGB)
	}
	if v.Detaching || v.Removing || v.Session != "" || v.MadeGB == 0 || v.Snapshot == nil && v.MadeGB != v.SizeGB {
		complain("%s is at rest like this: %+v", what, v)
	}
	if !l.named[string(v.ID)] && (v.Snapshot == nil || !v.Snapshot.Lost) {
		complain("%s does not have its name: %+v", what, v)
	}
	if v.Snapshot != nil && (v.Snapshot.Rollback != "" || v.Snapshot.Backup != "") {
		complain("%s is at rest like this: %+v of %+v", what, v.Snapshot, v)
	}
	if v.Instance == "" || v.Snapshot != nil {
		return
	}
	inst, exists := l.records[string(v.Instance)]
	if _, attached := l.attached[string(v.Instance)+"/"+string(v.ID)]; !attached || !exists {
		complain("%s is attached to %s: record %v, key %v", what, v.Instance, exists, attached)
	}
	if inst.State == croft.StateScheduled && v.Host == inst.Host && !w.has(l, inst, v.ID) {
		complain("%s is attached to %s, and its guest does not have it", what, v.Instance)
	}
}

// has reports whether the guest of an instance has a volume.
func (w *world) has(l *look, inst croft.Instance, id croft.VolumeID) bool {
	volumes := l.guests[string(inst.Host)][string(inst.ID)].machine.Volumes
	return slices.ContainsFunc(volumes, func(v compute.Volume) bool { return v.ID == id })
}

// checkNames compares what exists with what commands said.
func (w *world) checkNames(l *look, named map[string]croft.Volume, complain func(id, format string, args ...any)) {
	exists, ready := map[string]bool{}, map[string]bool{}
	for name, v := range named {
		exists[name], ready[name] = true, v.Snapshot == nil || !v.Snapshot.Taken.IsZero()
	}
	for _, i := range l.images {
		exists["image "+i.Name], ready["image "+i.Name] = true, i.State == croft.ImageReady
		if i.State == croft.ImageReady && !w.hasCopy(i) {
			complain("", "image %s is ready, and no host has its file: %+v", i.Name, i)
		}
	}
	for _, b := range l.backups {
		exists["backup "+b.Name], ready["backup "+b.Name] = true, b.State == backup.Ready
	}
	w.disks.mu.Lock()
	defer w.disks.mu.Unlock()
	for key, f := range w.disks.named {
		_, alive := l.records[f.instance]
		owner := f.kind != "snapshot" || alive && w.ledger.lost(f.instance) == 0
		switch {
		case f.removed && exists[key]:
			complain("", "%s was removed, and is there", key)
		case f.created && !f.doomed && owner && !exists[key]:
			complain("", "%s was acknowledged, never removed, and is gone", key)
		case f.created && !f.doomed && owner && !ready[key]:
			complain("", "%s was acknowledged, and is not ready", key)
		case f.kind == "volume" && f.created && exists[key] && named[key].SizeGB < f.sizeGB:
			complain("", "%s was acknowledged with %d GiB, and has %d", key, f.sizeGB, named[key].SizeGB)
		}
	}
}

// hasCopy reports whether a host has the file of an image.
func (w *world) hasCopy(i croft.Image) bool {
	return slices.ContainsFunc(w.hosts, func(h *host) bool {
		files, _ := filepath.Glob(filepath.Join(h.stateDir, "catalog", string(i.ID)+"*"))
		return len(files) > 0
	})
}

// checkFiles looks for files of volumes without records.
func (w *world) checkFiles(l *look, complain func(id, format string, args ...any)) {
	for _, h := range w.hosts {
		files, _ := filepath.Glob(filepath.Join(h.stateDir, "*", "volumes", "*"))
		for _, file := range files {
			if _, exists := l.volumes[h.id()+"/"+filepath.Base(file)]; !exists {
				complain(filepath.Base(file), "host %s has the file %s of a volume without a record", h.name, file)
			}
		}
	}
	known := map[string]bool{}
	for _, v := range l.volumes {
		known[string(v.ID)] = v.Storage != ""
	}
	files, _ := filepath.Glob(filepath.Join(w.dir, "shared", "volumes", "*"))
	for _, file := range files {
		if !known[filepath.Base(file)] {
			complain(filepath.Base(file), "the shared storage has a volume without a record")
		}
	}
	files, _ = filepath.Glob(filepath.Join(w.dir, "shared", "instances", "*"))
	for _, file := range files {
		if l.records[filepath.Base(file)].Storage == "" {
			complain(filepath.Base(file), "the shared storage has the disk of an instance that is not there")
		}
	}
}

// checkContent checks the data of an instance's disk.
func (w *world) checkContent(l *look, inst croft.Instance, f *diskFact, complain func(string, ...any)) {
	lost := w.ledger.lost(string(inst.ID)) > f.lost
	var text string
	var err error
	switch {
	case w.lacksImage(l.observed[string(inst.Host)+"/"+string(inst.ID)]):
		return
	case inst.State == croft.StateScheduled:
		text, err = dataOf(l.guests[string(inst.Host)][string(inst.ID)].machine.Disk)
	case inst.State == croft.StateLost && inst.Storage != "":
		text, err = sim.FileContent(filepath.Join(w.dir, "shared", "instances", string(inst.ID), "disk.qcow2"))
	default:
		return
	}
	may := maps.Clone(f.may)
	if lost && inst.Storage == "" { // it is listed as lost, or was, and was made again from its image or a backup
		may[""] = true
		if inst.Backup != nil {
			maps.Copy(may, f.ever)
		}
	}
	if err != nil || !may.has(text) {
		complain("its disk has %q, and may have %v: %v (lost %v, storage %q, backup %+v)", text, may, err, lost,
			inst.Storage, inst.Backup)
	}
}

// has reports whether a text is permitted. A disk that was restored from one to which nothing had been written has the
// text of that one's file.
func (c content) has(text string) bool {
	return c[text] || c[""] && (strings.HasPrefix(text, "/") || strings.HasPrefix(text, "\x00"))
}

// volumeContent returns the data of a volume: of the guest that has it, or in its file.
func (w *world) volumeContent(l *look, v croft.Volume) (string, error) {
	for _, have := range l.guests[string(v.Host)][string(v.Instance)].machine.Volumes {
		if have.ID == v.ID {
			return dataOf(append([]compute.Layer{{Path: have.Path}}, have.Below...))
		}
	}
	dir := filepath.Join(w.dir, "shared", "volumes")
	for _, h := range w.hosts {
		if v.Storage == "" && h.id() == string(v.Host) {
			dir = filepath.Join(h.stateDir, "*", "volumes")
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, string(v.ID), "disk.qcow2"))
	if len(files) != 1 {
		return "", errors.New("it has no file in " + dir)
	}
	return sim.VolumeContent(files[0])
}

// dataOf returns the data of a disk, given its layers, the topmost first.
func dataOf(layers []compute.Layer) (string, error) {
	for _, layer := range layers {
		if layer.Shared { // the image, whose data simulated guests do not have
			return "", nil
		}
		text, err := sim.FileContent(layer.Path)
		if err != nil || text != "" {
			return text, err
		}
	}
	if len(layers) == 0 {
		return "", os.ErrNotExist
	}
	return "", nil
}
