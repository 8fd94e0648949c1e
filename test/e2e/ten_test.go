package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"croft/internal/testing/libvirttest"
)

// countingServer serves the guest image and counts the bytes sent.
func countingServer(t *testing.T) (url string, sent *atomic.Int64) {
	t.Helper()
	sent = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(counting{w, sent}, r, guestImage)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/tiny.qcow2", sent
}

type counting struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// TestTenAtOnce: ten guests of one uncached image need one download, ten overlays of one file, and ten addresses.
func TestTenAtOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("boots ten guests: run make test-guests")
	}
	const n = 10
	c := newCloud(t, "offer: {vcpu_ratio: 16}\n")
	url, sent := countingServer(t)
	r := c.schedule("--name", "ten", "--count", fmt.Sprint(n), "--wait", "--timeout", patience.String(),
		"resources=VCPU:1,MEMORY_MB:96,DISK_GB:1", url)
	if r.exit != 0 {
		t.Fatalf("ten at once: %v", r)
	}
	info, err := os.Stat(guestImage)
	if err != nil {
		t.Fatal(err)
	}
	if sent.Load() != info.Size() {
		t.Errorf("the image of %d bytes was sent as %d bytes, want it once", info.Size(), sent.Load())
	}

	var ids, addresses []string
	var image os.FileInfo // the backing file of all overlays, under any name
	for line := range strings.Lines(r.stdout) {
		id := c.id(line)
		ids = append(ids, id)
		name := c.show(id).Name
		address := c.must(name)
		c.mustAnswer(address, name, id)
		addresses = append(addresses, address)
		chain := sources(libvirttest.Virsh(t, "dumpxml", "croft-"+id))
		if len(chain) != 2 || !strings.Contains(chain[0], id) {
			t.Errorf("the disks of %s are %v, want an overlay of its own on the image", name, chain)
			continue
		}
		base, err := os.Stat(chain[1])
		if err != nil {
			t.Fatal(err)
		}
		if image != nil && !os.SameFile(image, base) {
			t.Errorf("%s has an image of its own", name)
		}
		image = base
	}
	if got := distinct(addresses); len(ids) != n || got != n {
		t.Errorf("%d machines with %d addresses came up, want %d: %v", len(ids), got, n, addresses)
	}
	c.must(slices.Concat([]string{"destroy", "--wait"}, ids)...)
	c.nothingLeft(ids...)
}

// sources returns the files of a domain's disks, from the top of the chain down.
func sources(xml string) []string {
	var files []string
	for line := range strings.Lines(xml) {
		if _, rest, ok := strings.Cut(line, "<source file='"); ok {
			name, _, _ := strings.Cut(rest, "'")
			files = append(files, name)
		}
	}
	return files
}

func distinct(all []string) int {
	return len(slices.Compact(slices.Sorted(slices.Values(all))))
}
