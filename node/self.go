package node

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"

	"croft/control/cloud/direct"
	"croft/etcdstore/etcdserver"
	"croft/internal/build"
	"croft/internal/endpoint"
	"croft/internal/health"
	"croft/internal/traces"
	"croft/node/settings"
	"croft/trust/gate"
)

// Self reports on a process at each address where it serves: whether it is alive, whether it is ready, and its metrics.
type Self struct {
	Checks  health.Checks
	metrics *prometheus.Registry
	others  prometheus.Gatherers // metrics of other modules, under their own names
	token   string               // required for reading metrics; empty: not required
	log     *slog.Logger

	traces   trace.TracerProvider
	endTrace func()
}

// NewSelf returns the report on the process named service. The caller must call End. Invalid: a setting is wrong.
func NewSelf(ctx context.Context, s *settings.Settings, service string, log *slog.Logger) (*Self, error) {
	me := &Self{metrics: prometheus.NewRegistry(), log: log}
	if file := s.Metrics.TokenFile; file != "" {
		var err error
		if me.token, err = direct.ReadSecret("metrics.token_file", file); err != nil {
			return nil, err
		}
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "croft_build_info", Help: "1, with the version of croft and of Go that it was built with.",
		ConstLabels: prometheus.Labels{"version": build.Version, "goversion": goVersion()},
	})
	build.Set(1)
	liveHeap := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)}
	me.metrics.MustRegister(build, collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(liveHeap)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	if me.traces, me.endTrace, err = s.Traces.Start(ctx, service, traces.PartFlush, log); err != nil {
		return nil, err
	}
	return me, nil
}

// Log returns the logger of the process.
func (s *Self) Log() *slog.Logger { return s.log }

// Describe sends the descriptions of all metrics that were added.
func (s *Self) Describe(found chan<- *prometheus.Desc) { s.metrics.Describe(found) }

func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.GoVersion
	}
	return "unknown"
}

// End sends the recorded spans that are not sent yet, in bounded time.
func (s *Self) End() {
	if s != nil {
		s.endTrace()
	}
}

// Counts adds the metrics of those parts that have any. Adding a part again has no effect.
func (s *Self) Counts(parts ...any) {
	for _, part := range parts {
		counting, ok := part.(interface{ Collector() prometheus.Collector })
		if !ok {
			continue
		}
		if err := s.metrics.Register(counting.Collector()); err != nil {
			s.log.Debug("metrics of a part are left out", "err", err)
		}
	}
}

// Serves adds health and metrics to mux, which the process serves at address.
func (s *Self) Serves(mux *http.ServeMux, address string) {
	s.Checks.Register(mux)
	mux.Handle("GET /metrics", s.metricsAt(address))
}

// ServesTenants is Serves at an address to which a proxy on this machine may forward the requests of tenants. There,
// metrics always require the token, because a request that a proxy forwards can look like one of this machine.
func (s *Self) ServesTenants(mux *http.ServeMux) { s.Serves(mux, "") }

// metricsAt serves metrics to requests with the token. Without a token they are only for this machine, since they
// reveal the names of instances and the load of hosts.
func (s *Self) metricsAt(address string) http.Handler {
	all := append(prometheus.Gatherers{s.metrics}, s.others...)
	give := promhttp.HandlerFor(all, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 8,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case s.token == "" && (address == "" || endpoint.IsLoopback(address) && forwarded(r)):
			http.Error(w, "a proxy may forward requests to this address, so metrics need metrics.token_file here, "+
				"or another address of this process", http.StatusForbidden)
		case s.token == "" && !endpoint.IsLoopback(address):
			http.Error(w,
				address+
					" can be reached from other machines, which get metrics only if metrics.token_file is "+
					"set", http.StatusForbidden)
		case s.token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(s.token)) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is required: the one in the file that metrics.token_file names",
				http.StatusUnauthorized)
		default:
			give.ServeHTTP(w, r)
		}
	})
}

// forwarded reports whether a request to a loopback address has headers of a proxy, which sent it for another client.
func forwarded(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
		"X-Real-Ip"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return host != "" && !endpoint.IsLoopback(net.JoinHostPort(host, "0"))
}

// ofEtcd adds the metrics of an etcd in this process.
func (s *Self) ofEtcd(etcd *etcdserver.Server) {
	s.others = append(s.others, etcd.Metrics())
}

// OfStore adds the health and the metrics of the store.
func (s *Self) OfStore(store any) {
	s.Counts(store)
	if usable, ok := store.(interface{ Usable(context.Context) error }); ok {
		name := "etcd"
		if _, behind := store.(*gate.Client); behind {
			name = "control"
		}
		s.Checks.Add(name, usable.Usable)
	}
}
