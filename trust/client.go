package trust

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"croft"
	"croft/trust/pki"
)

// Client asks the cloud's join servers in order until one answers.
type Client struct {
	addresses []string // HOST:PORT
	http      *http.Client
}

var _ pki.Issuer = (*Client)(nil)

// NewClient returns a client of the servers at addresses, HOST:PORT. config verifies the servers and provides
// the client certificate.
func NewClient(addresses []string, config *tls.Config) *Client {
	return &Client{addresses: addresses, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       20 * time.Second,
		// Requests are rare and the certificate changes: one connection per request.
		Transport: &http.Transport{
			TLSClientConfig: config, DisableKeepAlives: true,
			DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second,
		},
	}}
}

// Trusted implements pki.Issuer.
func (c *Client) Trusted(ctx context.Context, a pki.Authority) ([]byte, error) {
	var issued pki.Issued
	err := c.call(ctx, http.MethodGet, "/v1/authorities/"+string(a), nil, &issued)
	return issued.Trusted, err
}

// Issue implements pki.Issuer.
func (c *Client) Issue(ctx context.Context, a pki.Authority, csr []byte) (issued pki.Issued, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/renew", renewRequest{a, csr}, &issued)
	return issued, err
}

// call asks the servers in order until one answers.
func (c *Client) call(ctx context.Context, method, path string, ask, answer any) error {
	var body []byte
	if ask != nil {
		var err error
		if body, err = json.Marshal(ask); err != nil {
			return fmt.Errorf("ask the join server: %w", err)
		}
	}
	var errs []error
	for _, address := range c.addresses {
		answered, err := c.ask(ctx, method, "https://"+address+path, body, answer)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("the join server at %s: %w", address, err))
		if answered {
			break
		}
	}
	return errors.Join(errs...)
}

// ask also returns whether the server answered, even with an error.
func (c *Client) ask(ctx context.Context, method, url string, body []byte, answer any) (answered bool, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false, unreached(err)
	}
	defer func() {
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxBody)) // so that the connection can be reused
		_ = response.Body.Close()
	}()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return false, unreached(err)
	}
	if response.StatusCode != http.StatusOK {
		var no refusal
		if err := json.Unmarshal(text, &no); err != nil || no.Message == "" {
			return true, croft.Errorf(croft.Unavailable, "it answers %s, as no join server of croft does",
				response.Status)
		}
		if no.Kind == "" { // a fault of the server, which logs it
			no.Kind = croft.Unavailable
		}
		return true, croft.Errorf(no.Kind, "%s", no.Message)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return true, croft.Errorf(croft.Unavailable, "its answer cannot be read: %w", err)
	}
	return true, nil
}

// unreached says why a server did not answer, or why its certificate was refused.
func unreached(err error) error {
	if explained := pki.Explain("it", err); croft.KindOf(explained) != "" {
		return explained
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without method and URL
	}
	return croft.Errorf(croft.Unavailable,
		"it does not answer (%w); is croft up running there, and does a firewall let you in?", err)
}
