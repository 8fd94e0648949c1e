package heat

import (
	"mime"
	"net/http"

	"croft"
	"croft/cluster"
	"croft/cluster/outbound"
)

// caller returns what calls the servers of a site, each request for as long as its context.
func caller(site cluster.Site) (*http.Client, error) {
	client, err := outbound.Client(outbound.Config{CACert: site.CACert, Timeout: -1})
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "site %s: its CA certificate: %w", site.Name, err)
	}
	client.Transport = noPages{client.Transport}
	return client, nil
}

// noPages refuses web pages: what answers with one is no service of OpenStack, whatever its status code is.
type noPages struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noPages) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := n.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	redirect := a.StatusCode > 300 && a.StatusCode < 400
	if a.StatusCode == http.StatusNoContent || redirect { // Glance names a type of nothing
		return a, nil
	}
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if kind == "text/html" || kind == "application/xhtml+xml" {
		_ = a.Body.Close()
		return nil, croft.Errorf(croft.Unavailable, "%s answers with a web page (%d %s), not with data", r.URL.Host,
			a.StatusCode, http.StatusText(a.StatusCode))
	}
	return a, nil
}

// CloseIdleConnections is called by http.Client.
func (n noPages) CloseIdleConnections() {
	if t, is := n.RoundTripper.(interface{ CloseIdleConnections() }); is {
		t.CloseIdleConnections()
	}
}
