package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// slowServer serves the guest image and holds back its second half until release is called. started is closed when
// a client waits for that half.
func slowServer(t *testing.T) (url string, started <-chan struct{}, release func()) {
	t.Helper()
	image, err := os.ReadFile(guestImage)
	if err != nil {
		t.Fatal(err)
	}
	waiting, open := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(waiting) })
	release = sync.OnceFunc(func() { close(open) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(image)))
		if _, err := w.Write(image[:len(image)/2]); err != nil || r.Method == http.MethodHead {
			return
		}
		_ = http.NewResponseController(w).Flush()
		begin()
		select {
		case <-open:
			_, _ = w.Write(image[len(image)/2:])
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		release()
		server.Close()
	})
	return server.URL + "/tiny.qcow2", waiting, release
}

// TestKilledWhileItFetchesAndWhileItBoots: after croft up is killed at either point of a build and restarted, the
// build succeeds as if uninterrupted.
func TestKilledWhileItFetchesAndWhileItBoots(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	url, started, release := slowServer(t)
	id := c.id(c.must("--name", "phoenix", small, url))
	<-started
	c.signal(syscall.SIGKILL)
	release()
	c.start()
	c.waitForState(id, "defining", "booting", "running")
	c.signal(syscall.SIGKILL)
	c.start()
	c.cameUpOnce("phoenix", id)
}

// cameUpOnce waits for the instance, checks that it has one domain, and destroys it.
func (c *cloud) cameUpOnce(name, id string) {
	c.t.Helper()
	c.waitForState(id, "running")
	c.mustAnswer(c.must(name), name, id)
	c.somethingThere(id)
	c.must("destroy", "--wait", id)
	c.nothingLeft(id)
}

func TestDestroyWhileItFetches(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	url, started, _ := slowServer(t)
	id := c.id(c.must("--name", "shortlived", small, url))
	<-started
	c.must("destroy", "--wait", id)
	c.nothingLeft(id)
}

func TestDestroyWhileItBoots(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	id := c.id(c.must("--name", "shortlived", small, guestImage))
	c.waitForState(id, "defining", "booting", "running")
	c.must("destroy", "--wait", id)
	c.nothingLeft(id)
}

// TestTenRequestsForThreePlaces: three run, seven are refused for lack of capacity and leave nothing.
func TestTenRequestsForThreePlaces(t *testing.T) {
	t.Parallel()
	const places = 3
	ratio := (places + 0.5) / float64(runtime.NumCPU())
	c := newCloud(t, "offer: {vcpu_ratio: "+strconv.FormatFloat(ratio, 'f', -1, 64)+"}\n")
	results := make([]result, 10)
	var work sync.WaitGroup
	for i := range results {
		work.Go(func() { results[i] = c.schedule("--name", fmt.Sprintf("m-%d", i), "--wait", small, guestImage) })
	}
	work.Wait()

	var ids []string
	for i, r := range results {
		switch {
		case r.exit == 0:
			id := c.id(r.stdout)
			c.mustAnswer(c.must(id), fmt.Sprintf("m-%d", i), id)
			ids = append(ids, id)
		case r.exit != 4 || strings.TrimSpace(r.stdout) != "NO ALLOCATIONS LEFT":
			t.Errorf("m-%d: %v, want exit code 4 and NO ALLOCATIONS LEFT", i, r)
		}
	}
	if len(ids) != places || len(c.domains()) != places {
		t.Fatalf("%d machines came up and %d domains are there, want %d", len(ids), len(c.domains()), places)
	}
	if used := c.usages(); used["VCPU"] != places {
		t.Errorf("claimed is %v, want %d machines", used, places)
	}
	keys := strings.Join(slices.Collect(maps.Keys(c.store())), "\n")
	if names := strings.Count(keys, "/names/"); names != places {
		t.Errorf("%d names are taken, want %d", names, places)
	}
	c.must(slices.Concat([]string{"destroy", "--wait"}, ids)...)
	c.nothingLeft(ids...)
}
