package compute

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"croft"
	"croft/internal/durable"
)

// The files of a disk are in one directory. A disk without snapshots is diskFile, above an image if it is a root disk.
// Each snapshot has put an overlay on it, which has all that was written since, until the next snapshot.
const (
	// mergedSuffix marks an overlay that may be merged into the layer below: only the domain's definition says whether
	// it is still part of the disk, because the guest may have written to the layer below since.
	mergedSuffix = ".merged"
	newSuffix    = ".new" // of the overlay that a rollback is going to put in the place of another
)

func overlayName(snapshot croft.VolumeID) string { return "disk." + string(snapshot) + ".qcow2" }

// snapshotOf returns the snapshot that has put an overlay on a disk; false: the file is none.
func snapshotOf(file string) (croft.VolumeID, bool) {
	name := filepath.Base(file)
	id, err := croft.ParseVolumeID(strings.TrimSuffix(strings.TrimPrefix(name, "disk."), ".qcow2"))
	return id, err == nil && name == overlayName(id)
}

// isLayer reports whether a file name is that of a disk or of an overlay.
func isLayer(name string) bool {
	return name == diskFile || strings.HasPrefix(name, "disk.") && strings.HasSuffix(name, ".qcow2")
}

// layers returns the layers of a disk with this topmost file, as named in the headers. A header that names a file
// elsewhere is damaged, or was written by a guest that took over its QEMU.
func (a *Agent) layers(top string) (all []Layer, err error) {
	dir := filepath.Dir(top)
	for file := top; file != ""; {
		name := filepath.Base(file)
		if format, is := strings.CutPrefix(name, baseFile+"."); is && len(all) > 0 && filepath.Dir(file) == dir {
			return append(all, Layer{Path: file, Format: format, Shared: true}), nil
		}
		if filepath.Dir(file) != dir || !isLayer(name) || LayerAt(all, file) >= 0 {
			return nil, croft.Errorf(croft.Conflict, "the disk %s has an unexpected backing file, %s", top, file)
		}
		all = append(all, Layer{Path: file, Format: "qcow2"})
		if file, err = a.Images.Below(file); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// topmost returns the layers of the disk in a directory that no domain has. Conflict: the headers do not say which file
// is the topmost.
func (a *Agent) topmost(dir string) ([]Layer, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for the files of the disk: %w", err)
	}
	var merged []string               // overlays that may be merged
	under := map[string]string{}      // overlay -> the file below it
	overlays := map[string][]string{} // the reverse: a fork has two
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if overlay, is := strings.CutSuffix(file, mergedSuffix); is {
			merged = append(merged, overlay)
		}
		if !isLayer(e.Name()) || e.Name() == diskFile {
			continue
		}
		below, err := a.Images.Below(file)
		if err != nil {
			return nil, err
		}
		under[file], overlays[below] = below, append(overlays[below], file)
	}
	for _, overlay := range merged {
		if len(overlays[overlay]) > 0 {
			continue // what is above it has not been rebased
		}
		below, there := under[overlay]
		if !there {
			continue // it is removed already
		}
		if len(overlays[below]) == 1 {
			return nil, croft.Errorf(croft.Conflict, "a snapshot of the disk was being removed, and no definition says "+
				"whether %s is still part of the disk", overlay)
		}
		// What was above it has been rebased.
		overlays[below] = slices.DeleteFunc(overlays[below], func(file string) bool { return file == overlay })
	}
	above := map[string]string{}
	for below, all := range overlays {
		if len(all) > 1 {
			return nil, croft.Errorf(croft.Conflict, "both %s and %s are overlays of %s", all[0], all[1], below)
		}
		above[below] = all[0]
	}
	top := filepath.Join(dir, diskFile)
	for above[top] != "" {
		top = above[top]
	}
	return a.layers(top)
}

// mergeOff takes an overlay that no guest uses out of the layers of a disk: its data goes into the layer below.
// redefine makes the new layers those of the domain that has the disk; nil: none has it. Each step can be repeated, and
// the disk has the same data after each. The layer below is part of the disk, so the mark of a merge of it that was
// interrupted is removed: once it is the topmost file, nothing else would say so.
func (a *Agent) mergeOff(ctx context.Context, layers []Layer, overlay string, redefine func([]Layer) error) error {
	at := LayerAt(layers, overlay)
	if at < 0 || at+1 >= len(layers) {
		return croft.Errorf(croft.Conflict, "%s is not part of the disk", overlay)
	}
	if err := removeFiles(layers[at+1].Path + mergedSuffix); err != nil {
		return err
	}
	if err := a.Images.Merge(ctx, layers[at:]); err != nil {
		return err
	}
	if redefine == nil && at > 0 { // from here on the headers say whether it is part of the disk
		if err := durable.Write(overlay+mergedSuffix, nil, 0o600); err != nil {
			return err
		}
	}
	if at > 0 {
		if err := a.Images.Rebase(ctx, layers[at-1].Path, layers[at+1]); err != nil {
			return err
		}
	}
	if redefine == nil {
		return removeFiles(overlay, overlay+mergedSuffix)
	}
	if err := durable.Write(overlay+mergedSuffix, nil, 0o600); err != nil {
		return err
	}
	if err := redefine(slices.Delete(slices.Clone(layers), at, at+1)); err != nil {
		return err
	}
	return removeFiles(overlay, overlay+mergedSuffix)
}

// exists reports whether a file exists.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// removeFiles removes files, in this order; missing ones are no error.
func removeFiles(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a file of a snapshot: %w", err)
		}
	}
	return nil
}
