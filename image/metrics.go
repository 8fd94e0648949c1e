package image

import (
	"github.com/prometheus/client_golang/prometheus"

	"croft/internal/meter"
)

// metrics counts the cache's operations.
type metrics struct {
	meter.Set
	requests *prometheus.CounterVec
	fetched  prometheus.Counter
	bytes    prometheus.Counter
	evicted  prometheus.Counter
}

func newMetrics(s *store) *metrics {
	m := &metrics{}
	m.requests = m.Counters("croft_image_requests_total",
		"Images that were asked for, by how that ended: ok, or the kind of the error.", "result")
	m.fetched = m.Counter("croft_image_fetched_total",
		"Images that came into the cache. All other requests that ended well found theirs there.")
	m.bytes = m.Counter("croft_image_fetched_bytes_total", "Bytes of the images that came into the cache.")
	m.evicted = m.Counter("croft_image_evicted_total", "Images that were dropped from the cache for room.")
	m.Now("croft_image_cache_limit_bytes", "How much the cache may hold (images.cache_gib).",
		func() float64 { return float64(s.max) })
	m.Now("croft_image_cache_bytes", "What the images in the cache take.",
		func() float64 { _, bytes := s.holds(); return float64(bytes) })
	m.Now("croft_image_cache_images", "Images in the cache.",
		func() float64 { images, _ := s.holds(); return float64(images) })
	return m
}

// holds returns the number and size of cached images; an unreadable directory is empty.
func (s *store) holds() (images int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, err := s.files()
	if err != nil {
		return 0, 0
	}
	for _, f := range files {
		bytes += f.bytes
	}
	return len(files), bytes
}
