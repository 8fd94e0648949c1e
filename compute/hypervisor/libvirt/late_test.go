//go:build libvirt_dlopen

package libvirt

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A separate process, because other tests have loaded libvirt into this one.
func TestLibvirtIsLoadedByWhoeverConnects(t *testing.T) {
	const child = "CROFT_TEST_LATE"
	if os.Getenv(child) != "" {
		fmt.Println("before:", loaded(t))
		d, err := New(Config{URI: "qemu+unix:///system?socket=/nonexistent"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.conn.open(); err == nil {
			t.Error("connected to a socket that does not exist")
		}
		fmt.Println("after:", loaded(t))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "before: false\nafter: true\n") {
		t.Errorf("%v: %s, want that libvirt is loaded after it was needed", err, out)
	}
	if strings.Contains(stderr.String(), "libvirt:") {
		t.Errorf("libvirt printed what belongs into an error: %s", stderr.String())
	}
}

// loaded reports whether libvirt is in this process.
func loaded(t *testing.T) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(maps, []byte("libvirt.so"))
}
