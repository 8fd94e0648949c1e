package image

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"croft"
	"croft/compute/image/format"
)

// strictReader fails the test on reads outside its content, and counts reads.
type strictReader struct {
	t *testing.T
	b []byte
	n int64
}

func (r *strictReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(r.b)) {
		r.t.Errorf("read of %d bytes at %d of %d", len(p), off, len(r.b))
		return 0, io.ErrUnexpectedEOF
	}
	r.n += int64(len(p))
	return copy(p, r.b[off:]), nil
}

// inMemory is a file of a fixed length.
type inMemory []byte

func (m inMemory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

func FuzzInspect(f *testing.F) {
	overlay := make(inMemory, 4<<16)
	disk := format.Overlay{Virtual: 1 << 30, Backing: "/x/base.raw", BackingFormat: "raw"}
	if err := disk.Write(overlay); err != nil {
		f.Fatal(err)
	}
	header := bytes.TrimRight(overlay[:4096], "\x00")
	whole := make([]byte, 4<<16)
	copy(whole, header)
	binary.BigEndian.PutUint64(whole[8:], 0)
	f.Add(whole[:4096], uint32(4<<16))
	f.Add(header, uint32(1<<20))
	f.Add(rawImage(1, 4096), uint32(4096))
	f.Add([]byte("KDMV"), uint32(64<<10))
	for at, v := range map[int]uint64{8: 104, 24: 1 << 63, 40: 1 << 40, 72: 1 << 2, 20: 63 << 32} {
		hostile := bytes.Clone(whole[:4096])
		binary.BigEndian.PutUint64(hostile[at:], v)
		f.Add(hostile, uint32(4<<16))
	}
	f.Fuzz(func(t *testing.T, head []byte, size uint32) {
		// Zeros follow the head, as in sparse files.
		b := make([]byte, max(len(head), int(size%(1<<22))))
		copy(b, head)
		r := &strictReader{t: t, b: b}
		info, err := format.Inspect(r, int64(len(b)))
		if err != nil && croft.KindOf(err) != croft.Invalid {
			t.Errorf("an error that is not Invalid: %v", err)
		}
		if err == nil && (info.VirtualSize <= 0 || info.VirtualSize > format.MaxVirtual || info.Format != "qcow2" &&
			info.Format != "raw") {
			t.Errorf("accepted as %+v", info)
		}
		if err == nil {
			k := taken{info, b}
			readings, err := askQEMU(k.questions()...)
			if err != nil {
				t.Fatal(err)
			}
			if problem := k.problem(readings); problem != "" {
				t.Error(problem)
			}
		}
		if r.n > int64(len(b))+32<<20 {
			t.Errorf("%d bytes read of a file of %d", r.n, len(b))
		}
	})
}
