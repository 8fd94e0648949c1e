package images

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"croft"
	"croft/compute"
)

// pull requests an image from the host's agent over HTTP and returns the last line of its answer.
func (h *host) pull(ref string, progress func(croft.Progress)) compute.Pull {
	h.t.Helper()
	api := &compute.API{Agent: h.agent, Token: "secret"}
	server := httptest.NewServer(api.Handler())
	defer server.Close()
	body, err := json.Marshal(compute.PullRequest{Image: ref})
	if err != nil {
		h.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, server.URL+"/v1/images",
		strings.NewReader(string(body)))
	if err != nil {
		h.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer secret")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := json.NewDecoder(answer.Body)
	for {
		var line compute.Pull
		if err := lines.Decode(&line); err != nil {
			h.t.Fatal(err)
		}
		if line.Progress == nil {
			return line
		}
		progress(*line.Progress)
	}
}

func TestAPulledImageIsThereForTheFirstInstance(t *testing.T) {
	disk := bootable()
	l, h := newLibrary(t, disk), newHost(t, 4)
	close(l.goAhead)
	var last croft.Progress
	got := h.pull(l.URL+"/disk.img", func(p croft.Progress) { last = p })
	if got.Error != nil || got.Image == nil || got.Image.Format != "raw" || got.Image.VirtualSize != int64(len(disk)) {
		t.Fatalf("got %+v", got)
	}
	if last.Done != int64(len(disk)) || last.Total != last.Done {
		t.Errorf("the last that was told is %+v", last)
	}
	h.await(h.request("web", l.URL+"/disk.img"), croft.StateRunning)
	if n := l.asked.Load(); n != 1 {
		t.Errorf("the image was asked for %d times, want once", n)
	}
}

func TestAPullAndAnInstanceShareOneDownload(t *testing.T) {
	l, h := newLibrary(t, bootable()), newHost(t, 4)
	inst := h.request("web", l.URL+"/disk.img")
	<-l.half
	got := h.pull(l.URL+"/disk.img", func(p croft.Progress) {
		if p.Done > 0 {
			select {
			case <-l.goAhead:
			default:
				close(l.goAhead) // only once the pull waits for it too
			}
		}
	})
	if got.Image == nil {
		t.Fatalf("got %+v", got.Error)
	}
	h.await(inst, croft.StateRunning)
	if n := l.asked.Load(); n != 1 {
		t.Errorf("the image was asked for %d times, want once", n)
	}
}

func TestAPullThatFailsSaysWhy(t *testing.T) {
	h := newHost(t, 4)
	for ref, want := range map[string]compute.PullError{
		"/no/such/file": {Kind: croft.NotFound,
			Message: "image /no/such/file: there is no such file on this host: check the path, or put the image there"},
		"ftp://e/x": {Kind: croft.Invalid,
			Message: `image "ftp://e/x": ftp addresses cannot be fetched; give an http, https or file URL`},
	} {
		got := h.pull(ref, func(croft.Progress) {})
		if got.Error == nil || *got.Error != want {
			t.Errorf("%s: got %+v, want %+v", ref, got.Error, want)
		}
	}
	if left := h.files("."); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
