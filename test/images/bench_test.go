package images

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"croft"
	"croft/trust/pki"
)

// benchImage makes a qcow2 image with so much data.
func benchImage(b *testing.B, size int64) (file string) {
	b.Helper()
	raw, file := filepath.Join(b.TempDir(), "raw"), filepath.Join(b.TempDir(), "disk.qcow2")
	f, err := os.Create(raw)
	if err == nil {
		_, err = io.CopyN(f, rand.NewChaCha8([32]byte{7}), size)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		b.Fatal(err)
	}
	if out, err := exec.Command("qemu-img", "convert", "-O", "qcow2", raw, file).CombinedOutput(); err != nil {
		b.Skipf("qemu-img: %v: %s", err, out)
	}
	if err := os.Remove(raw); err != nil {
		b.Fatal(err)
	}
	return file
}

// paced sends no faster than a rate in bytes a second.
type paced struct {
	io.Reader
	rate  float64
	begun time.Time
	sent  int64
}

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b[:min(len(b), 64<<10)])
	p.sent += int64(n)
	time.Sleep(time.Until(p.begun.Add(time.Duration(float64(p.sent) / p.rate * float64(time.Second)))))
	return n, err
}

// publish serves a file over plain HTTP at a rate in bytes a second; 0: as fast as it can.
func publish(b *testing.B, file string, rate float64) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open(file)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer f.Close()
		if rate == 0 {
			http.ServeContent(w, r, "", time.Time{}, f)
			return
		}
		info, err := f.Stat()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(info.Size()))
		_, _ = io.Copy(w, &paced{Reader: f, rate: rate, begun: time.Now()})
	}))
	b.Cleanup(s.Close)
	return s
}

// BenchmarkSecondHost compares how long the first host takes to get an image from its origin, and then the second one
// from the first one over mutual TLS: from the order to the copy that is verified, durable and recorded. A ratio above
// 1 means that the second host was faster.
func BenchmarkSecondHost(b *testing.B) {
	c := newCloud(b)
	ca, err := pki.OpenCA(filepath.Join(b.TempDir(), "ca"), c.store.Partition())
	c.must(err)
	c.ca = ca
	c.join("a")
	c.join("b")
	for _, origin := range []struct {
		name string
		rate float64 // bytes a second
		size int64
	}{{"unlimited", 0, 1 << 30}, {"125MBps", 125e6, 1 << 30}, {"12.5MBps", 12.5e6, 256 << 20}} {
		b.Run(origin.name, func(b *testing.B) {
			s := publish(b, benchImage(b, origin.size), origin.rate)
			var fetched, copied time.Duration
			for n := 0; b.Loop(); n++ {
				begun := time.Now()
				i, err := c.manager.Add(b.Context(), croft.Image{Project: croft.DefaultProject, Name: "web",
					Origin: fmt.Sprintf("%s/%d.qcow2", s.URL, n), SizeBytes: 2 * origin.size})
				c.must(err)
				c.soon(func() bool {
					i, err = c.store.Images.Get(b.Context(), i.ID)
					c.must(err)
					return i.State == croft.ImageReady
				})
				fetched += time.Since(begun)
				_, others := c.makers(i)
				begun = time.Now()
				i = c.copyTo(c.withoutOrigin(i), others[0])
				c.soon(func() bool { return c.copyOn(i, others[0]).Made })
				copied += time.Since(begun)
				_, err = c.manager.RemoveNamed(b.Context(), croft.DefaultProject, "web")
				c.must(err)
				for _, h := range c.hosts {
					c.soon(func() bool { return len(h.files("catalog")) == 0 })
				}
			}
			rate := func(d time.Duration) float64 { return float64(origin.size) * float64(b.N) / 1e6 / d.Seconds() }
			b.ReportMetric(rate(fetched), "origin-MB/s")
			b.ReportMetric(rate(copied), "host-MB/s")
			b.ReportMetric(fetched.Seconds()/copied.Seconds(), "ratio")
		})
	}
}

// soon polls more often than until, for measurements.
func (c *cloud) soon(reached func() bool) {
	for !reached() {
		time.Sleep(5 * time.Millisecond)
	}
}
