package compute_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/diskcopy"
)

// diskSum is the SHA-256 of "disk".
var diskSum = fmt.Sprintf("%x", sha256.Sum256([]byte("disk")))

// imageOrders says that two hosts have each image.
type imageOrders struct{ compute.Copies }

func (imageOrders) ImageSource(context.Context, croft.HostID, croft.ImageID, croft.InstanceID) (croft.ImageSource,
	error) {
	return croft.ImageSource{ImageFile: croft.ImageFile{SHA256: diskSum, SizeBytes: 4}, Hosts: []croft.Host{
		{ID: "a", Name: "a", API: "http://a"}, {ID: "b", Name: "b", API: "http://b"}}}, nil
}

// imageFiles has one file, once it is admitted.
type imageFiles struct {
	compute.CopyFiles
	dir      string
	admitted *bool
}

func (f imageFiles) Get(croft.ImageID) (compute.CachedImage, bool) {
	return compute.CachedImage{Digest: diskSum}, *f.admitted
}
func (f imageFiles) Staged(croft.ImageID) string                { return filepath.Join(f.dir, "staged") }
func (f imageFiles) Room(int64, func(croft.ImageID) bool) error { return nil }
func (f imageFiles) Keep(croft.ImageID, croft.ImageFile, int64) (croft.ImageFile, error) {
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

// imageConfig returns the settings of an agent that only gets images.
func imageConfig(t *testing.T) compute.Config {
	return compute.Config{Host: croft.Host{ID: "c"}, Partition: "p", Dir: t.TempDir(),
		Log: slog.New(slog.DiscardHandler), Orders: struct{ compute.Orders }{},
		Registry: struct{ compute.Registry }{}, Records: struct{ compute.Records }{},
		Inventory: struct{ compute.Inventory }{}, Hypervisor: struct{ compute.Hypervisor }{},
		Images: struct{ compute.ImageStore }{}}
}

func TestAHostThatSendsNothingOfAnImageIsPassedOver(t *testing.T) {
	head := diskcopy.Head{Identity: diskSum, Size: 4, SHA256: diskSum}
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, []byte("disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		admitted, silent := false, ""
		config := imageConfig(t)
		config.Copies, config.CopyFiles = imageOrders{}, imageFiles{dir: t.TempDir(), admitted: &admitted}
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
					err = errors.Join(diskcopy.Send(r.Context(), answer, f, head, func(int64) {}), f.Close())
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
		if err != nil || img.Digest != diskSum {
			t.Errorf("%+v %v", img, err)
		}
		if took := time.Since(begun); took != 30*time.Second {
			t.Errorf("the silent host was waited for %s", took)
		}
	})
}

// fetchOrder is the order to fetch an image from its origin, until that has failed.
type fetchOrder struct {
	compute.Copies
	order croft.ImageCopy
	ended string
}

func (o *fetchOrder) ImageCopy(context.Context, croft.HostID, croft.ImageID) (croft.ImageCopy, error) {
	return o.order, nil
}
func (o *fetchOrder) FailedImage(_ context.Context, _ croft.HostID, _ croft.ImageID, why string, final bool) error {
	if o.order.Error = why; final {
		o.ended = why
	}
	return nil
}

// missing is an origin that gives some bytes at each of some attempts, and then no more.
type missing struct {
	compute.ImageStore
	attempts, progress int
}

func (m *missing) Fetch(_ context.Context, _ string, progress func(croft.Progress)) (compute.CachedImage, error) {
	m.attempts++
	progress(croft.Progress{Done: int64(min(m.attempts, m.progress))})
	return compute.CachedImage{}, croft.Errorf(croft.Unavailable, "no file of that name, attempt %d", m.attempts)
}

// noFiles has no file of an image, and room for it.
type noFiles struct{ compute.CopyFiles }

func (noFiles) Get(croft.ImageID) (img compute.CachedImage, ok bool) { return img, false }
func (noFiles) Room(int64, func(croft.ImageID) bool) error           { return nil }

// warnings counts what is logged.
type warnings struct {
	slog.Handler
	n int
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w *warnings) Handle(context.Context, slog.Record) error {
	w.n++
	return nil
}

func TestAnOriginThatGivesNothingMoreIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		progress int // attempts, one every 30 s, that give further bytes
		want     time.Duration
	}{
		"it never gave anything":    {0, 15 * time.Minute},
		"it gave some of the image": {11, 20 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				id := croft.NewImageID()
				orders := &fetchOrder{order: croft.ImageCopy{Image: id, Host: "c", Task: croft.ImageFetch, Revision: 1}}
				origin, logged := &missing{progress: c.progress}, &warnings{Handler: slog.DiscardHandler}
				config := imageConfig(t)
				config.Copies, config.CopyFiles, config.Images, config.Log = orders, noFiles{}, origin, slog.New(logged)
				agent, err := compute.New(config)
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				for orders.ended == "" && time.Since(begun) < time.Hour {
					agent.PassImage(t.Context(), id)
					orders.order.Revision++
					if orders.ended == "" {
						time.Sleep(30 * time.Second)
					}
				}
				if took := time.Since(begun); took != c.want {
					t.Errorf("it was given up after %s with %q, want %s", took, orders.ended, c.want)
				}
				if !strings.HasPrefix(orders.ended, "its origin gave nothing more for 15m: ") {
					t.Errorf("the reason is %q", orders.ended)
				}
				if logged.n != 2 {
					t.Errorf("%d of %d failures are logged, want the first and the last", logged.n, origin.attempts)
				}
			})
		})
	}
}
