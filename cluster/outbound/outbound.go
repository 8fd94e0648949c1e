// Package outbound makes HTTP clients for addresses that operators and users name: of sites, images and agents. Such a
// client never reaches a metadata service, follows redirects to the same server alone, sends nothing through proxies,
// and ends answers that are too long or no data. What went wrong is one sentence.
package outbound

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"

	"croft"
)

// Config describes a client. All fields are optional.
type Config struct {
	CACert   string        // PEM of an authority, beside the system's
	Timeout  time.Duration // for connecting, and for an answer to begin; 30 s by default
	MostBody int64         // of an answer, in bytes; 16 MiB by default
	Pages    bool          // answers in HTML are welcome
	NoFollow bool          // redirects are answers
}

// mostRedirects bounds how often one request is redirected.
const mostRedirects = 5

// New makes a client. Calls have no timeout of their own but that for an answer to begin: use contexts. Invalid: CACert
// holds no certificate.
func New(c Config) (*http.Client, error) {
	c.Timeout, c.MostBody = cmp.Or(c.Timeout, 30*time.Second), cmp.Or(c.MostBody, 16<<20)
	trust, err := authorities(c.CACert)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: c.Timeout, Control: permit}
	client := &http.Client{
		Transport: &guard{pages: c.Pages, most: c.MostBody, next: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: c.Timeout, ResponseHeaderTimeout: c.Timeout,
			TLSClientConfig: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 256 << 10,
		}},
		CheckRedirect: sameServer,
	}
	if c.NoFollow {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return client, nil
}

// authorities returns the system's authorities and those of a PEM.
func authorities(pem string) (*x509.CertPool, error) {
	if pem == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(pem)) {
		return nil, croft.Errorf(croft.Invalid, "the CA certificate is no certificate in PEM")
	}
	return pool, nil
}

// sameServer follows a redirect only to the server that sent it, since headers with tokens go along.
func sameServer(to *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) >= mostRedirects:
		return &refusedError{"redirects without end"}
	case to.URL.Host != first.Host, to.URL.Scheme != first.Scheme && to.URL.Scheme != "https":
		return &refusedError{"redirects to " + to.URL.Scheme + "://" + to.URL.Host + ", which is not followed"}
	}
	return nil
}
