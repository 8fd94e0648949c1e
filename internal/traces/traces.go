// Package traces exports the spans of a process over OTLP. The process never waits for the collector: if that is slow
// or unreachable, spans are dropped.
package traces

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"croft"
	"croft/internal/build"
	"croft/internal/egress"
)

// Settings contain the address to which traces are sent; settings files of both kinds include them.
type Settings struct {
	Endpoint string `yaml:"endpoint"`
}

func (s Settings) Check() error { return checkCollector("traces.endpoint", s.Endpoint) }

func checkCollector(setting, endpoint string) error {
	if u, err := url.Parse(endpoint); endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" &&
		u.Scheme != "https") {
		return croft.Errorf(croft.Invalid, "%s: %q is not an address of a collector, such as http://127.0.0.1:4318",
			setting,
			endpoint)
	}
	return nil
}

// wanted reports whether traces are enabled. OpenTelemetry's own variables apply if the settings are empty.
// Invalid: the address is malformed.
func (s Settings) wanted(env func(string) string) (bool, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	if s.Endpoint != "" {
		return true, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if endpoint := env(name); endpoint != "" {
			return true, checkCollector(name, endpoint)
		}
	}
	return false, nil
}

// Time limits: how long a process waits at its end for a collector to accept the remaining spans, and how long a
// running process takes to send to it.
const (
	CommandFlush = 500 * time.Millisecond
	PartFlush    = 2 * time.Second
	sendTimeout  = 5 * time.Second
)

// Start records the process's spans if traces are enabled. Spans are queued and sent in the background: if the
// collector is unreachable or slow they are dropped, and no caller waits. end sends the remaining spans within flush.
func (s Settings) Start(ctx context.Context, service string, flush time.Duration,
	log *slog.Logger) (_ trace.TracerProvider, end func(), err error) {
	if wanted, err := s.wanted(os.Getenv); !wanted || err != nil {
		return noop.NewTracerProvider(), func() {}, err
	}
	otel.SetErrorHandler(&traceErrors{log: log})
	options := []otlptracehttp.Option{otlptracehttp.WithTimeout(sendTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}), otlptracehttp.WithProxy(egress.None)}
	if s.Endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(strings.TrimSuffix(s.Endpoint, "/")+"/v1/traces"))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, nil, croft.Errorf(croft.Invalid, "traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service),
			attribute.String("service.version", build.Version)),
		resource.WithHost(), resource.WithFromEnv())
	if err != nil { // an error in telemetry must not stop the program
		log.Warn("traces say less than they could of this process", "err", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithResource(about),
		sdk.WithBatcher(exporter, sdk.WithBatchTimeout(time.Second), sdk.WithExportTimeout(sendTimeout)))
	return provider, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flush)
		defer cancel()
		if err := provider.Shutdown(last); err != nil {
			log.Debug("the last spans are lost", "err", err)
		}
	}, nil
}

// traceErrors logs the collector's errors when they change.
type traceErrors struct {
	log    *slog.Logger
	mu     sync.Mutex
	logged string // text of the last logged error
}

// Handle implements otel.ErrorHandler.
func (t *traceErrors) Handle(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.logged != err.Error() {
		t.logged = err.Error()
		t.log.Warn("traces do not reach their collector and are dropped", "err", err)
	}
}
