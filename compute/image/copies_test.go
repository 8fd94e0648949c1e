package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"croft"
)

// bootRecord returns a raw disk that is recognized as bootable.
func bootRecord(size int) []byte {
	disk := bytes.Repeat([]byte("croft..."), size/8)
	copy(disk, "\xeb\xfe")
	copy(disk[510:], "\x55\xaa")
	return disk
}

func newCopies(t *testing.T, max int64) *Copies {
	t.Helper()
	c, err := NewCopies(filepath.Join(t.TempDir(), "catalog"), max)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Copies) names(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAnUploadContinuesWhereTheBytesEnd(t *testing.T) {
	c, disk, id := newCopies(t, 0), bootRecord(1<<20), croft.NewImageID()
	total := int64(len(disk))
	n, err := c.Receive(t.Context(), id, 0, total, bytes.NewReader(disk[:700_000]))
	if n != 700_000 || err != nil {
		t.Fatal(n, err)
	}
	// A connection that breaks off leaves the bytes that arrived.
	broken := iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(disk[700_000:])))
	if n, err = c.Receive(t.Context(), id, n, total, broken); n != 700_001 || err == nil {
		t.Fatal(n, err)
	}
	_, err = c.Receive(t.Context(), id, 700_000, total, bytes.NewReader(disk))
	if croft.KindOf(err) != croft.Conflict {
		t.Errorf("another offset: %v", err)
	}
	larger := bytes.NewReader(append(bytes.Clone(disk), 1))
	if _, err := c.Receive(t.Context(), croft.NewImageID(), 0, total, larger); croft.KindOf(err) != croft.Invalid {
		t.Errorf("more than announced: %v", err)
	}
	n, err = c.Received(id)
	if err == nil {
		n, err = c.Receive(t.Context(), id, n, total, bytes.NewReader(disk[n:]))
	}
	if n != total || err != nil {
		t.Fatal(n, err)
	}
	sum := sha256.Sum256(disk)
	file, err := c.Admit(t.Context(), id, croft.ImageFile{SHA256: hex.EncodeToString(sum[:])}, total)
	if err != nil || file.Format != "raw" || file.SizeBytes != total || file.DiskBytes != total {
		t.Fatalf("%+v %v", file, err)
	}
	if img, have := c.Get(id); !have || img.Digest != file.SHA256 {
		t.Errorf("%+v %v", img, have)
	}
	if _, have := c.Get(croft.NewImageID()); have {
		t.Error("another image has the file")
	}
}

func TestAFileThatIsRefusedLeavesNothing(t *testing.T) {
	c, disk := newCopies(t, 0), bootRecord(1<<20)
	for what, want := range map[string]croft.ImageFile{
		"another checksum": {SHA256: hex.EncodeToString(make([]byte, 32))},
		"another format":   {Format: "qcow2"},
	} {
		id := croft.NewImageID()
		if err := os.WriteFile(c.Staged(id), disk, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Admit(t.Context(), id, want, 1<<30); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", what, err)
		}
		if left := c.names(t); len(left) != 0 {
			t.Errorf("%s leaves %q", what, left)
		}
	}
}

func TestAFullDiskEndsAnUploadWithoutLosingWhatArrived(t *testing.T) {
	c, disk, id := newCopies(t, 0), bootRecord(16<<20), croft.NewImageID()
	left := int64(slack + 2*roomEvery)
	c.space = &space{free: func(string) (int64, error) {
		left -= roomEvery
		return left, nil
	}}
	total := int64(len(disk))
	n, err := c.Receive(t.Context(), id, 0, total, bytes.NewReader(disk))
	if croft.KindOf(err) != croft.NoCapacity || n == 0 || n == total {
		t.Fatal(n, err)
	}
	if have, err := c.Received(id); have != n || err != nil {
		t.Errorf("it has %d bytes of %d: %v", have, n, err)
	}
	left = 1 << 40
	if n, err = c.Receive(t.Context(), id, n, total, bytes.NewReader(disk[n:])); n != total || err != nil {
		t.Error(n, err)
	}
	if got, err := os.ReadFile(c.Staged(id)); err != nil || !bytes.Equal(got, disk) {
		t.Errorf("%d bytes differ: %v", len(got), err)
	}
}

func TestRoomIsMadeOnlyOfFilesThatNoOrderNeeds(t *testing.T) {
	c, disk := newCopies(t, 4<<20), bootRecord(1<<20)
	long := time.Now().Add(-2 * evictionGrace)
	var ids []croft.ImageID
	for range 4 {
		id := croft.NewImageID()
		path := c.path(id, croft.ImageFile{SHA256: hex.EncodeToString(make([]byte, 32)), Format: "raw"})
		if err := os.WriteFile(path, disk, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if _, have := c.Get(ids[3]); !have { // it is in use now
		t.Fatal("the last file is missing")
	}
	keeps := func(id croft.ImageID) bool { return id == ids[0] }
	if err := c.Room(2<<20, keeps); err != nil {
		t.Fatal(err)
	}
	all, err := c.All()
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	for _, id := range []croft.ImageID{ids[0], ids[3]} {
		if _, have := c.Get(id); !have {
			t.Errorf("image %s is gone", id)
		}
	}
	if err := c.Room(3<<20, keeps); croft.KindOf(err) != croft.NoCapacity {
		t.Errorf("no more room can be made: %v", err)
	}
	c.space = &space{free: func(string) (int64, error) { return slack, nil }}
	if err := c.Room(1, keeps); croft.KindOf(err) != croft.NoCapacity {
		t.Errorf("the file system is full: %v", err)
	}
}

func TestAHostileUploadIsRefusedByItsHeader(t *testing.T) {
	c := newCopies(t, 0)
	for what, text := range map[string]string{
		"a VMDK":                 "KDMV\x01\x00\x00\x00" + string(make([]byte, 4096)),
		"a description of files": "# Disk DescriptorFile\nRW 1 FLAT \"/etc/shadow\" 0\n" + string(make([]byte, 4096)),
		"text":                   "This is no disk.",
	} {
		id := croft.NewImageID()
		if err := os.WriteFile(c.Staged(id), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if file, err := c.Admit(t.Context(), id, croft.ImageFile{}, 1<<30); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %+v %v", what, file, err)
		}
	}
}
