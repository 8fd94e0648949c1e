package heat

import (
	"mime"
	"net/http"

	"croft"
	"croft/cluster"
	"croft/cluster/outbound"
)

// caller returns the HTTP client for a site. Only the context limits the time of a request.
func caller(site cluster.Site) (*http.Client, error) {
	client, err := outbound.Client(outbound.Config{CACert: site.CACert, Timeout: -1})
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "site %s: its CA certificate: %w", site.Name, err)
	}
	client.Transport = noPages{client.Transport}
	return client, nil
}

// noPages rejects web pages: a server that answers with one is no service of OpenStack, whatever the status code is.
type noPages struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noPages) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := n.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	redirect := a.StatusCode > 300 && a.StatusCode < 400
	if a.StatusCode == http.StatusNoContent || redirect { // Glance sends a content type with an empty body
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

// CloseIdleConnections closes the idle connections of the inner transport; http.Client calls it.
func (n noPages) CloseIdleConnections() {
	if t, is := n.RoundTripper.(interface{ CloseIdleConnections() }); is {
		t.CloseIdleConnections()
	}
}
