package format

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// Data after the end of a gzip file is ignored, as gzip -d does; damage before the end is an error.
func TestBytesBehindTheEndOfGzipAreIgnored(t *testing.T) {
	member := func(text string) string {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	disk := strings.Repeat("disk ", 100000)
	for _, c := range []struct {
		name, file, want string
		damaged          bool
	}{
		{"nothing behind", member(disk), disk, false},
		{"metadata behind, as OpenWrt writes it", member(disk) + "{\"metadata_version\": \"1.1\"}\nFWx0", disk, false},
		{"zeros behind", member(disk) + strings.Repeat("\x00", 512), disk, false},
		{"one byte behind", member(disk) + "\x1f", disk, false},
		{"two members", member(disk) + member("more"), disk + "more", false},
		{"two members and zeros", member(disk) + member("more") + "\x00\x00", disk + "more", false},
		{"cut short", member(disk)[:200], "", true},
		{"a second member cut short", member(disk) + member(disk)[:200], "", true},
	} {
		r, err := openGzip(strings.NewReader(c.file))
		var got []byte
		if err == nil {
			got, err = io.ReadAll(r)
		}
		if (err != nil) != c.damaged || !c.damaged && string(got) != c.want {
			t.Errorf("%s: got %d bytes, %v", c.name, len(got), err)
		}
	}
}
