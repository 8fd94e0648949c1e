package images

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"croft"
	"croft/compute/image"
)

// bootable returns a raw disk that is recognized as bootable.
func bootable() []byte {
	disk := bytes.Repeat([]byte("croft..."), 1<<17)
	copy(disk[510:], "\x55\xaa")
	return disk
}

// library serves one image and counts the requests for it. After the first half it waits until it may send the
// rest.
type library struct {
	*httptest.Server
	asked   atomic.Int32
	half    chan struct{} // closed when the first half is sent
	goAhead chan struct{}
}

func newLibrary(t *testing.T, content []byte) *library {
	l := &library{half: make(chan struct{}), goAhead: make(chan struct{})}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.asked.Add(1) > 1 {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.Write(content[:len(content)/2])
		w.(http.Flusher).Flush()
		close(l.half)
		select {
		case <-l.goAhead:
			w.Write(content[len(content)/2:])
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(l.Close)
	return l
}

func links(t *testing.T, name string) int {
	t.Helper()
	fi, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return int(fi.Sys().(*syscall.Stat_t).Nlink)
}

// cachedImage returns the only image in the host's cache.
func (h *host) cachedImage() string {
	h.t.Helper()
	have, err := image.Look(filepath.Join(h.state, "images"))
	if err != nil || len(have.Images) != 1 {
		h.t.Fatalf("the cache has %+v, %v; want one image", have.Images, err)
	}
	return have.Images[0].Path
}

func TestTenInstancesAtOnceFetchOneImage(t *testing.T) {
	l, h := newLibrary(t, bootable()), newHost(t, 10)
	var all []croft.Instance
	for i := range 10 {
		all = append(all, h.request(fmt.Sprintf("i%d", i), l.URL+"/disk.img"))
	}
	for _, inst := range all { // all of them wait for the one download
		h.await(inst, croft.StateFetching)
	}
	<-l.half
	close(l.goAhead)
	for _, inst := range all {
		h.await(inst, croft.StateRunning)
	}
	if n := l.asked.Load(); n != 1 {
		t.Errorf("the image was asked for %d times, want once", n)
	}
	cached := h.cachedImage()
	if n := links(t, cached); n != 11 {
		t.Errorf("%d names of the image, want its own and one for each disk", n)
	}
	for _, inst := range all {
		overlay := filepath.Join(h.state, "instances", string(inst.ID), "disk.qcow2")
		out, err := exec.CommandContext(t.Context(), "qemu-img", "info", "-U", "-f", "qcow2", overlay).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "virtual size: 1 GiB") ||
			!strings.Contains(string(out), "base.raw") {
			t.Errorf("the overlay of %s: %v\n%s", inst.Name, err, out)
		}
	}
	for _, inst := range all {
		h.destroy(inst)
	}
	if left := h.files("instances"); len(left) > 0 {
		t.Errorf("left of the instances: %v", left)
	}
	if n := links(t, cached); n != 1 {
		t.Errorf("%d names of the image are left, want its own", n)
	}
}

func TestADestroyedInstanceLeavesNoFile(t *testing.T) {
	l, h := newLibrary(t, bootable()), newHost(t, 4)
	close(l.goAhead)
	inst := h.request("web", l.URL+"/disk.img")
	h.await(inst, croft.StateRunning)
	// Files of a guest and its agent in addition to the disk.
	dir := filepath.Join(h.state, "instances", string(inst.ID))
	for _, name := range []string{"console.log", "console.log.1", "told.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := h.files("images")
	h.destroy(inst)
	if left := h.files("instances"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if after := h.files("images"); !slices.Equal(after, before) || len(after) != 2 {
		t.Errorf("the cache has %v, want the image and the index, %v", after, before)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(h.cachedImage(), old, old); err != nil {
		t.Fatal(err)
	}
	if removed, err := image.Prune(filepath.Join(h.state, "images"), false); err != nil || len(removed) != 1 {
		t.Errorf("pruned %+v, %v; want the image that nothing stands on", removed, err)
	}
	again := h.request("again", l.URL+"/disk.img") // a new agent has no record of it
	h.await(again, croft.StateRunning)
	if n := l.asked.Load(); n != 2 {
		t.Errorf("the image was asked for %d times, want twice", n)
	}
}

func TestAnInstanceDestroyedWhileItsImageComesLeavesNoFile(t *testing.T) {
	l, h := newLibrary(t, bootable()), newHost(t, 4)
	inst := h.request("web", l.URL+"/disk.img")
	<-l.half
	h.destroy(inst)
	if left := h.files("instances"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// The fetched half is kept, and the next request completes it.
	inst = h.request("next", l.URL+"/disk.img")
	h.await(inst, croft.StateRunning)
	h.destroy(inst)
	if left := h.files("."); len(left) != 2 {
		t.Errorf("left: %v, want the image and the index", left)
	}
}

func TestARefusedImageLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	secret, hostile := filepath.Join(dir, "secret"), filepath.Join(dir, "hostile.qcow2")
	if err := os.WriteFile(secret, bootable(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-b", secret, "-F",
		"raw", hostile).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h := newHost(t, 4)
	inst := h.request("web", hostile)
	h.await(inst, croft.StateFailed)
	h.destroy(inst)
	if left := h.files("."); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
