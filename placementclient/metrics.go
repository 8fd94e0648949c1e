package placementclient

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft/internal/meter"
	"croft/internal/span"
)

// metrics counts requests to Placement.
type metrics struct {
	meter.Set
	seconds *prometheus.HistogramVec
	retries prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{}
	m.seconds = m.Seconds("croft_placementclient_request_seconds", "Requests to Placement, by method, collection and "+
		"status; 0 where no answer came.", meter.Requests, "method", "collection", "status")
	m.retries = m.Counter("croft_placementclient_retries_total",
		"Requests that did not get through and were sent again.")
	return m
}

// measured is a transport that counts requests and propagates their trace context.
type measured struct {
	http.RoundTripper
	metrics *metrics
}

func (t measured) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	collection := collectionOf(r.URL.Path)
	ctx, end := span.Start(r.Context(), "placement: "+r.Method+" "+collection)
	if parent := span.Parent(ctx); parent != "" {
		r = r.Clone(ctx)
		r.Header.Set("Traceparent", parent)
	}
	resp, err := t.RoundTripper.RoundTrip(r)
	end(err)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	t.metrics.seconds.WithLabelValues(r.Method, collection, strconv.Itoa(status)).Observe(time.Since(begun).Seconds())
	return resp, err
}

// CloseIdleConnections is called by the HTTP client.
func (t measured) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// collections are the first segments of Placement's paths.
var collections = []string{
	"resource_providers", "allocation_candidates", "allocations", "resource_classes", "traits", "usages", "reshaper",
}

// collectionOf returns the collection of a path, which may have a prefix before the API.
func collectionOf(path string) string {
	for part := range strings.SplitSeq(path, "/") {
		if slices.Contains(collections, part) {
			return part
		}
	}
	return "other"
}
