package endpoint

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// maxHeaderBytes bounds the headers of an agent's response.
const maxHeaderBytes = 16 << 10

// AgentClient returns a client for the API of an agent; nil: without TLS. It limits the time until a response starts.
// The body may take any time, because some callers follow a console or copy a disk. It follows no redirect: a host must
// not send its callers elsewhere. The redirect itself is the response.
func AgentClient(config *tls.Config) *http.Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  10 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableKeepAlives:      true,
	}}
}
