package placement

import (
	"log/slog"
	"time"
)

// accessLog logs requests.
type accessLog struct {
	log   *slog.Logger
	level slog.Level
}

func (l accessLog) write(q *request, resp *response, took time.Duration) {
	ctx := q.r.Context()
	if !l.log.Enabled(ctx, l.level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("op", q.r.Method+" "+q.r.URL.RequestURI()),
		slog.Int("status", resp.status),
		slog.Int("bytes", len(resp.body)),
		slog.Duration("took", took),
		slog.String("request", q.id),
		slog.String("client", q.r.RemoteAddr),
	}
	if q.versioned {
		attrs = append(attrs, slog.String("microversion", q.version.String()))
	}
	// global is the client's ID of the operation that this request is part of.
	if global := q.r.Header.Get("X-Openstack-Request-Id"); global != "" {
		attrs = append(attrs, slog.String("global_request", global))
	}
	l.log.LogAttrs(ctx, l.level, "placement request", attrs...)
}
