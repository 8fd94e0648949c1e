package placement

import (
	"log/slog"
	"time"
)

// logAccess logs one request at level Debug, or at Info if the access log is on.
func (s *Server) logAccess(q *request, resp *response, took time.Duration) {
	level := slog.LevelDebug
	if s.config.AccessLog {
		level = slog.LevelInfo
	}
	ctx := q.r.Context()
	if !s.log.Enabled(ctx, level) {
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
	// The client's ID of the operation that the request belongs to.
	if global := q.r.Header.Get("X-Openstack-Request-Id"); global != "" {
		attrs = append(attrs, slog.String("global_request", global))
	}
	s.log.LogAttrs(ctx, level, "placement request", attrs...)
}
