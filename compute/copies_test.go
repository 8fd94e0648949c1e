package compute_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/diskcopy"
)

// imageOrders says that two hosts have each image.
type imageOrders struct{ compute.Copies }

func (imageOrders) ImageSource(context.Context, croft.HostID, croft.ImageID, croft.InstanceID) (croft.ImageSource,
	error) {
	return croft.ImageSource{ImageFile: croft.ImageFile{SHA256: "sum", SizeBytes: 4}, Hosts: []croft.Host{
		{ID: "a", Name: "a", API: "http://a"}, {ID: "b", Name: "b", API: "http://b"}}}, nil
}

// imageFiles has one file, once it is admitted.
type imageFiles struct {
	compute.CopyFiles
	dir      string
	admitted *bool
}

func (f imageFiles) Get(croft.ImageID) (compute.CachedImage, bool) {
	return compute.CachedImage{Digest: "sum"}, *f.admitted
}
func (f imageFiles) Staged(croft.ImageID) string                { return filepath.Join(f.dir, "staged") }
func (f imageFiles) Room(int64, func(croft.ImageID) bool) error { return nil }
func (f imageFiles) Admit(context.Context, croft.ImageID, croft.ImageFile, int64) (croft.ImageFile, error) {
	*f.admitted = true
	return croft.ImageFile{}, nil
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// silence is the body of an answer that never comes.
type silence struct{ context.Context }

func (s silence) Read([]byte) (int, error) {
	<-s.Done()
	return 0, errors.New("the connection was closed")
}
func (silence) Close() error { return nil }

func TestAHostThatSendsNothingOfAnImageIsPassedOver(t *testing.T) {
	text, err := json.Marshal(diskcopy.Head{Identity: "sum", Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, []byte("disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		admitted, silent := false, ""
		config := compute.Config{Host: croft.Host{ID: "c"}, Partition: "p", Dir: t.TempDir(),
			Log: slog.New(slog.DiscardHandler), Orders: struct{ compute.Orders }{},
			Registry: struct{ compute.Registry }{}, Records: struct{ compute.Records }{},
			Inventory: struct{ compute.Inventory }{}, Hypervisor: struct{ compute.Hypervisor }{},
			Images: struct{ compute.ImageStore }{}, Copies: imageOrders{},
			CopyFiles: imageFiles{dir: t.TempDir(), admitted: &admitted}}
		config.Peers = func(croft.Host) (*http.Client, error) {
			return &http.Client{Transport: answers(func(r *http.Request) (*http.Response, error) {
				answer := httptest.NewRecorder()
				answer.Header().Set("Croft-Disk", string(text))
				if silent == "" || silent == r.URL.Host {
					silent = r.URL.Host
					a := answer.Result()
					a.Body = silence{r.Context()}
					return a, nil
				}
				f, err := os.Open(path)
				if err == nil {
					err = errors.Join(diskcopy.Send(r.Context(), answer, f, 4, 0, func(int64) {}), f.Close())
				}
				return answer.Result(), err
			})}, nil
		}
		agent, err := compute.New(config)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		img, err := agent.CatalogImage(t.Context(), croft.NewImageID())
		if err != nil || img.Digest != "sum" {
			t.Errorf("%+v %v", img, err)
		}
		if took := time.Since(begun); took != 30*time.Second {
			t.Errorf("the silent host was waited for %s", took)
		}
	})
}
