package image

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"croft"
)

// fetchEnv makes the test binary a process that only fetches an image.
const fetchEnv = "CROFT_IMAGE_TEST_FETCH"

// fetchOnly is that process: its input is the cache's directory and the reference, its output the error.
func fetchOnly(arg string) error {
	var a struct{ Dir, Ref string }
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return err
	}
	c, err := New(Config{Dir: a.Dir})
	if err != nil {
		return err
	}
	_, err = c.Fetch(context.Background(), a.Ref, func(croft.Progress) {})
	return err
}

func TestFetchAfterARealKill(t *testing.T) {
	content := rawImage(1, syncEvery+8<<20)
	s, c := newServer(t, content), newCache(t)
	release := make(chan struct{})
	s.answers(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("ETag", s.etag)
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.Write(content[:syncEvery+1<<20])
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-release:
		}
		return true
	})
	t.Cleanup(func() { close(release) })
	arg, err := json.Marshal(map[string]string{"Dir": c.store.dir, "Ref": s.ref()})
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), fetchEnv+"="+string(arg))
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return syncedIn(c.staging.dir) > 0 })
	child.Process.Kill()
	if err := child.Wait(); err == nil {
		t.Fatal("the process ended by itself")
	}

	c = again(t, c)
	contentIs(t, fetch(t, c, s.ref()).Path, content)
	all := s.requests()
	if len(all) != 2 || all[1].Header.Get("Range") == "" {
		t.Errorf("%d requests, ranges %q: what the killed process had is lost", len(all), s.ranges())
	}
	if left := listDir(t, c.staging.dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// syncedIn returns the durable size of the single download in a directory.
func syncedIn(dir string) int64 {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(names) == 0 {
		return 0
	}
	var state stagingState
	b, err := os.ReadFile(names[0])
	if err != nil || json.Unmarshal(b, &state) != nil {
		return 0
	}
	return state.Synced
}
