package local

import (
	"strings"
	"testing"

	"croft"
	"croft/schedule"
)

// TestSentencesForTenantsNameNoHost: only operators may see hosts; words that only resemble them stay.
func TestSentencesForTenantsNameNoHost(t *testing.T) {
	st := &croft.Status{Host: &croft.Host{ID: "0b5f", Name: "h1", Addresses: []string{"192.0.2.7"}},
		Observation: &croft.Observation{}}
	for said, want := range map[string]string{
		"host h1 has no bridge":               "host its host has no bridge",
		"h1: no such file":                    "its host: no such file",
		"image h1-tools of web-h1 is too big": "image h1-tools of web-h1 is too big",
		"dial 192.0.2.7:22: refused":          "dial its host:22: refused",
		"dial 192.0.2.71: refused":            "dial 192.0.2.71: refused",
		"https://images.example/h1.qcow2":     "https://images.example/h1.qcow2",
	} {
		st.Observation.Error = said
		if got := agentError(st); got != want {
			t.Errorf("%q becomes %q, want %q", said, got, want)
		}
	}
	err := forTenants(croft.Errorf(croft.NoCapacity, "schedule web-h1: %w", &schedule.Explanation{
		Wanted: croft.Resources{croft.VCPU: 9}, Rows: []schedule.Row{{Hosts: []string{"h1"},
			Missing: []string{"needs 9 VCPU, 2 are left"}}}}))
	if croft.KindOf(err) != croft.NoCapacity || strings.Contains(err.Error(), "h1") ||
		!strings.Contains(err.Error(), "needs 9 VCPU, 2 are left") {
		t.Errorf("got %v", err)
	}
}
