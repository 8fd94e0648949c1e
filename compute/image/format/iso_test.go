package format

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"croft"
)

// cd returns the image of a CD with blocks of zeros, whose descriptors change edits.
func cd(blocks uint32, change func(primary []byte)) []byte {
	b := make([]byte, 1<<20)
	primary, end := b[16*2048:17*2048], b[17*2048:]
	copy(primary, "\x01CD001\x01")
	binary.LittleEndian.PutUint32(primary[80:], blocks)
	binary.BigEndian.PutUint32(primary[84:], blocks)
	binary.LittleEndian.PutUint16(primary[128:], 2048)
	binary.BigEndian.PutUint16(primary[130:], 2048)
	copy(end, "\xffCD001\x01")
	change(primary)
	return b
}

// descriptor returns an empty volume descriptor of a kind.
func descriptor(kind byte) []byte {
	return append([]byte{kind, 'C', 'D', '0', '0', '1', 1}, make([]byte, isoSector-7)...)
}

func TestACDIsAnISO9660Image(t *testing.T) {
	same := func([]byte) {}
	boots := cd(512, same) // also as a disk
	copy(boots[510:], "\x55\xaa")
	for name, c := range map[string]struct {
		content []byte
		words   string
	}{
		"whole":                     {cd(512, same), ""},
		"with more data behind":     {cd(100, same), ""},
		"one that boots as a disk":  {boots, ""},
		"after a boot record":       {slices.Concat(boots[:16*2048], descriptor(0), cd(512, same)[16*2048:]), ""},
		"cut short":                 {cd(513, same), "cut short: it has 1 MiB of 1.0 MiB"},
		"without blocks":            {cd(0, same), "damaged"},
		"with other blocks":         {cd(512, func(d []byte) { d[128], d[130] = 0, 4 }), "damaged"},
		"with two sizes":            {cd(512, func(d []byte) { d[87]++ }), "contradiction"},
		"of another version":        {cd(512, func(d []byte) { d[6] = 2 }), "damaged"},
		"with an end alone":         {cd(512, func(d []byte) { d[0] = 255 }), "no primary volume descriptor"},
		"with endless descriptors":  {bytes.Repeat(descriptor(2), 512), "no primary volume descriptor"},
		"another file":              {make([]byte, 1<<20), "not an ISO 9660 image"},
		"a file that is too small":  {cd(16, same)[:16*2048+100], "not an ISO 9660 image"},
		"a file without any sector": {nil, "not an ISO 9660 image"},
	} {
		err := CheckISO(bytes.NewReader(c.content), int64(len(c.content)))
		if c.words == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.words != "" {
			refused(t, err, c.words)
		}
	}
	if got, err := inspectBytes(cd(512, same)); err != nil || got != (Info{croft.ImageISO, 1 << 20}) {
		t.Errorf("an image that starts only from a CD drive: %+v, %v", got, err)
	}
	if err := RefuseBeginning(cd(512, same)[:64<<10]); err != nil {
		t.Errorf("its beginning: %v", err)
	}
}

func TestCDsOfGenisoimageAreTaken(t *testing.T) {
	program, err := exec.LookPath("genisoimage")
	if err != nil {
		t.Skip("scripts/install-deps test installs genisoimage")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "readme"), make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cd.iso")
	for _, options := range [][]string{nil, {"-J", "-R"}, {"-udf"}, {"-no-pad"}} {
		args := append([]string{"-quiet", "-o", file}, append(options, dir)...)
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", options, err, out)
		}
		if got, err := InspectFile(file); err != nil || got.Format != croft.ImageISO {
			t.Errorf("%v: %+v, %v", options, got, err)
		}
	}
}

func FuzzCheckISO(f *testing.F) {
	f.Add(cd(512, func([]byte) {})[16*2048:18*2048], uint32(1<<20))
	f.Add([]byte("\x01CD001\x01"), uint32(0))
	f.Fuzz(func(t *testing.T, descriptors []byte, size uint32) {
		b := make([]byte, max(16*2048+len(descriptors), int(size%(1<<22))))
		copy(b[16*2048:], descriptors)
		if err := CheckISO(bytes.NewReader(b), int64(len(b))); err != nil && croft.KindOf(err) != croft.Invalid {
			t.Errorf("kind %q: %v", croft.KindOf(err), err)
		}
	})
}
