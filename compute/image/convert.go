package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"croft"
	"croft/compute/diskcopy"
)

// Limits of a conversion.
const (
	convertMemory = 2 << 30 // address space
	convertTime   = time.Hour
	maxAppliance  = 1000 // entries of an OVA
)

// convertedSuffix marks the result of a conversion that is not verified yet.
const convertedSuffix = ".converted"

// part is the part of a file that has a disk.
type part struct {
	format       string // as qemu-img names it
	offset, size int64
}

// Convert implements compute.CopyFiles.
func (c *Copies) Convert(ctx context.Context, id croft.ImageID, want croft.ImageFile, most int64) (
	file croft.ImageFile, err error) {
	staged := c.Staged(id)
	converted := strings.TrimSuffix(staged, stagedSuffix) + convertedSuffix
	defer func() {
		if errors.Is(err, croft.Invalid) {
			err = errors.Join(err, c.Remove(id))
		}
	}()
	if err := sumIs(ctx, staged, want); err != nil {
		return file, err
	}
	disk, err := partOf(staged)
	if err != nil {
		return file, err
	}
	if err := noRoom(c.space.room(c.dir, most)); err != nil {
		return file, err
	}
	// A conversion that was interrupted starts again.
	out, err := os.OpenFile(converted, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		return file, err
	}
	source, err := json.Marshal(map[string]any{"driver": disk.format, "file": map[string]any{"driver": "raw",
		"offset": disk.offset, "size": disk.size, "file": map[string]any{"driver": "file", "filename": "/in"}}})
	if err != nil {
		return file, err
	}
	box := sandbox{in: staged, out: converted, most: most, memory: convertMemory, time: convertTime}
	err = box.run(ctx, "qemu-img", "convert", "-q", "-O", "qcow2", "json:"+string(source), "/out")
	if err != nil {
		return file, errors.Join(fmt.Errorf("convert the %s disk: %w", disk.format, err), os.Remove(converted))
	}
	// What the sandbox wrote is as little trusted as an upload.
	file, err = describe(converted, summing(ctx))
	if err == nil {
		err = matches(file, croft.ImageFile{Format: "qcow2"}, most)
	}
	if err == nil {
		err = c.name(id, converted, file)
	}
	if err != nil {
		return file, err
	}
	if err := os.Remove(staged); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	return file, diskcopy.Forget(staged)
}

// sumIs compares the checksum of an upload.
func sumIs(ctx context.Context, path string, want croft.ImageFile) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum, n, err := sumOf(ctx, f)
	if err != nil {
		return err
	}
	return matches(croft.ImageFile{SHA256: sum, SizeBytes: n}, croft.ImageFile{SHA256: want.SHA256}, n)
}

// partOf returns the disk in a file: the whole of it, or the only disk in an OVA, which is a tar archive. Invalid: the
// file has another format, or no disk, or several.
func partOf(name string) (part, error) {
	f, err := os.Open(name)
	if err != nil {
		return part{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return part{}, err
	}
	whole := part{size: info.Size()}
	if whole.format, err = foreignFormat(f, whole.size); whole.format != "" || err != nil {
		return whole, err
	}
	return diskOfOVA(f)
}

// diskOfOVA finds the disk in an OVA. Names of entries are only compared, never used as paths.
func diskOfOVA(f *os.File) (found part, err error) {
	archive := tar.NewReader(f)
	for n := 0; ; n++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case err != nil && n == 0:
			return found, croft.Errorf(croft.Invalid, "the file is no OVA, and no disk of the formats VMDK, VHDX, "+
				"VHD and VDI")
		case err != nil:
			return found, croft.Errorf(croft.Invalid, "the OVA is damaged: %w", err)
		case n >= maxAppliance:
			return found, croft.Errorf(croft.Invalid, "the OVA has more than %d files", maxAppliance)
		case h.Typeflag == tar.TypeDir:
			continue
		case h.Typeflag != tar.TypeReg || isSparse(h):
			return found, croft.Errorf(croft.Invalid, "the OVA has %.80q, which is a link, a device or a sparse file",
				h.Name)
		case path.IsAbs(h.Name) || !fs.ValidPath(strings.TrimSuffix(path.Clean(h.Name), "/")):
			return found, croft.Errorf(croft.Invalid, "the OVA has %.80q, which leads out of it", h.Name)
		}
		at, err := f.Seek(0, io.SeekCurrent) // the archive is read without a buffer
		if err != nil {
			return found, err
		}
		format, err := foreignFormat(io.NewSectionReader(f, at, h.Size), h.Size)
		if err != nil {
			return found, fmt.Errorf("%.80q in the OVA: %w", h.Name, err)
		}
		if format == "" {
			continue
		}
		if found.format != "" {
			return found, croft.Errorf(croft.Invalid, "the OVA has several disks: unpack it with tar -xf, and add the "+
				"one that the machine boots from")
		}
		found = part{format, at, h.Size}
	}
	if found.format == "" {
		return found, croft.Errorf(croft.Invalid, "the OVA has no disk of the formats VMDK, VHDX, VHD and VDI")
	}
	return found, nil
}

// isSparse reports whether the data of an entry is stored with gaps.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// foreignFormat returns the format of a disk that can be converted, by its marks; empty: it has none. Invalid: it is a
// description of disks that are in other files.
func foreignFormat(r io.ReaderAt, size int64) (string, error) {
	head := make([]byte, min(size, 512))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	switch {
	case bytes.HasPrefix(head, []byte("KDMV")):
		return "vmdk", nil
	case bytes.HasPrefix(head, []byte("COWD")), bytes.HasPrefix(head, []byte("# Disk DescriptorFile")):
		return "", croft.Errorf(croft.Invalid, "it is a VMDK whose data is in other files: make one file of it with "+
			"ovftool, or with qemu-img convert -f vmdk -O qcow2 where all its files are")
	case bytes.HasPrefix(head, []byte("vhdxfile")):
		return "vhdx", nil
	case bytes.HasPrefix(head, []byte("conectix")):
		return "vpc", nil
	case len(head) >= 68 && binary.LittleEndian.Uint32(head[64:]) == 0xbeda107f:
		return "vdi", nil
	}
	foot := make([]byte, 8)
	if size >= 512 {
		if _, err := r.ReadAt(foot, size-512); err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
	}
	if string(foot) == "conectix" {
		return "vpc", nil
	}
	return "", nil
}
