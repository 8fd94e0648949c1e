package compute_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/compute"
)

// slowImages reports half of the progress, then ends with err or when its caller does.
type slowImages struct {
	compute.ImageStore
	err  error
	wait bool
	left chan struct{} // closed when the caller of a waiting fetch is gone
}

func (s slowImages) Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (compute.CachedImage, error) {
	progress(croft.Progress{Done: 5, Total: 10})
	if s.wait {
		<-ctx.Done()
		close(s.left)
		return compute.CachedImage{}, ctx.Err()
	}
	return compute.CachedImage{Path: "/secret", Format: "qcow2", VirtualSize: 10, Digest: "d" + ref}, s.err
}

// pullFrom posts to an API with these images.
func pullFrom(t *testing.T, images compute.ImageStore, token, body string) *http.Response {
	t.Helper()
	api := &compute.API{Agent: &compute.Agent{Config: compute.Config{Images: images}}, Token: "secret"}
	server := httptest.NewServer(api.Handler())
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/images",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestPullStreamsProgressAndOneLastWord(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name string
		err  error
		want string
	}{
		{"the image is there", nil, `{"image":{"format":"qcow2","virtual_size":10,"sha256":"d/x"}}`},
		{"it cannot be had", croft.Errorf(croft.NotFound, "no such image"),
			`{"error":{"kind":"not found","message":"no such image"}}`},
		{"an error without a kind", io.ErrUnexpectedEOF, `{"error":{"kind":"","message":"unexpected EOF"}}`},
	} {
		t.Run(v.name, func(t *testing.T) {
			answer := pullFrom(t, slowImages{err: v.err}, "secret", `{"image":"/x"}`)
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("%s, %v", answer.Status, err)
			}
			want := []string{`{"progress":{"done":0}}`, `{"progress":{"done":5,"total":10}}`, v.want}
			if got := strings.Split(strings.TrimSpace(string(text)), "\n"); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestPullIsForThoseWhoHoldTheToken(t *testing.T) {
	t.Parallel()
	if got := pullFrom(t, slowImages{}, "guess", `{"image":"/x"}`).StatusCode; got != http.StatusUnauthorized {
		t.Errorf("a wrong token is answered %d", got)
	}
}

func TestPullRefusesWhatNamesNoImage(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{}", `{"image":""}`, `{"image":7}`, `{"name":"x"}`, "tiny",
		`{"image":"` + strings.Repeat("x", 64<<10) + `"}`} {
		if got := pullFrom(t, slowImages{}, "secret", body).StatusCode; got != http.StatusBadRequest {
			t.Errorf("%.20q is answered %d", body, got)
		}
	}
}

func TestPullEndsWithWhoAsked(t *testing.T) {
	t.Parallel()
	images := slowImages{wait: true, left: make(chan struct{})}
	answer := pullFrom(t, images, "secret", `{"image":"/x"}`)
	lines := json.NewDecoder(answer.Body)
	for range 2 { // a reader has seen progress
		var line compute.Pull
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	<-images.left
}
