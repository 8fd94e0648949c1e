package trust

import (
	"github.com/prometheus/client_golang/prometheus"

	"croft/trust/pki"
)

var expiryMetric = prometheus.NewDesc("croft_certificate_expiry_timestamp_seconds",
	"When the certificate of this process runs out, in seconds since 1970; it is renewed after two thirds of its life.",
	[]string{"authority"}, nil)

var authorityMetric = prometheus.NewDesc("croft_authority_expiry_timestamp_seconds",
	"When the authority that signs runs out, in seconds since 1970, where this process has it.", []string{"authority"},
	nil)

var _ prometheus.Collector = (*Credentials)(nil)

// Collector returns the metrics of the certificates' expiry.
func (t *Credentials) Collector() prometheus.Collector { return t }

// Describe implements prometheus.Collector.
func (t *Credentials) Describe(c chan<- *prometheus.Desc) { c <- expiryMetric; c <- authorityMetric }

// Collect implements prometheus.Collector. It omits certificates that cannot be read: their Keeper logs why.
func (t *Credentials) Collect(c chan<- prometheus.Metric) {
	for _, a := range t.uses {
		if pair, err := t.Files(a).Load(); err == nil {
			c <- prometheus.MustNewConstMetric(expiryMetric, prometheus.GaugeValue, float64(pair.Leaf.NotAfter.Unix()),
				string(a))
		}
	}
	if t.ca == nil {
		return
	}
	for _, a := range pki.Authorities {
		if current, _, err := t.ca.Certificates(a); err == nil {
			c <- prometheus.MustNewConstMetric(authorityMetric, prometheus.GaugeValue, float64(current.NotAfter.Unix()),
				string(a))
		}
	}
}
