package runtimetest

import (
	"archive/tar"
	"bytes"
	"os"
	"path"
	"testing"
)

// busybox is the path of the program of Debian's package busybox-static.
const busybox = "/bin/busybox"

// applets lists the names of busybox in the image.
var applets = []string{"sh", "sleep", "cat", "echo", "ls", "id", "env", "true", "false", "test", "stat", "touch",
	"head",
	"mkdir", "hostname"}

// Archive returns a tar file of a small root directory.
func Archive(t testing.TB) []byte {
	t.Helper()
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Skipf("%s is needed for the image of units: install busybox-static (scripts/install-deps test)", busybox)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, body []byte) {
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "etc", "usr", "proc", "sys", "dev", "tmp", "run", "root", "data"} {
		add(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, program)
	for _, name := range applets {
		add(tar.Header{Name: path.Join("bin", name), Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "etc/os-release", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("ID=tiny\n"))
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644},
		[]byte("root:x:0:0::/root:/bin/sh\nweb:x:1000:1000::/:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:\nweb:x:1000:\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
