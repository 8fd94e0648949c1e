package main

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

// controlClient asks control processes, the first of them that answers.
type controlClient struct {
	addresses []string // HOST:PORT
	http      *http.Client
}

var _ pki.Issuer = (*controlClient)(nil)

func newControlClient(addresses []string, config *tls.Config) *controlClient {
	return &controlClient{addresses: addresses, http: &http.Client{
		CheckRedirect: stay,
		Timeout:       20 * time.Second,
		// Seldom used, and its certificate changes: each request makes its connection.
		Transport: &http.Transport{
			TLSClientConfig: config, DisableKeepAlives: true,
			DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second,
		},
	}}
}

// Trusted implements pki.Issuer.
func (c *controlClient) Trusted(ctx context.Context, a pki.Authority) ([]byte, error) {
	var issued pki.Issued
	err := c.call(ctx, http.MethodGet, "/v1/authorities/"+string(a), nil, &issued)
	return issued.Trusted, err
}

// Issue implements pki.Issuer.
func (c *controlClient) Issue(ctx context.Context, a pki.Authority, csr []byte) (issued pki.Issued, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/renew", renewRequest{a, csr}, &issued)
	return issued, err
}

// call asks one after the other until one answers.
func (c *controlClient) call(ctx context.Context, method, path string, ask, answer any) error {
	var body []byte
	if ask != nil {
		var err error
		if body, err = json.Marshal(ask); err != nil {
			return fmt.Errorf("ask control: %w", err)
		}
	}
	var errs []error
	for _, address := range c.addresses {
		answered, err := c.ask(ctx, method, "https://"+address+path, body, answer)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("control at %s: %w", address, err))
		if answered {
			break
		}
	}
	return errors.Join(errs...)
}

// ask tells also whether there was an answer, be it no.
func (c *controlClient) ask(ctx context.Context, method, url string, body []byte, answer any) (answered bool, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false, unreached(err)
	}
	defer drain(response.Body)
	text, err := io.ReadAll(io.LimitReader(response.Body, maxControlBody))
	if err != nil {
		return false, unreached(err)
	}
	if response.StatusCode != http.StatusOK {
		var no controlError
		if err := json.Unmarshal(text, &no); err != nil || no.Message == "" {
			return true, croft.Errorf(croft.Unavailable, "it answers %s, as no control of croft does", response.Status)
		}
		if no.Kind == "" {
			return true, errors.New(no.Message)
		}
		return true, croft.Errorf(no.Kind, "%s", no.Message)
	}
	return true, json.Unmarshal(text, answer)
}

// unreached says why nobody answered, or who did is not believed.
func unreached(err error) error {
	if explained := pki.Explain("it", err); croft.KindOf(explained) != "" {
		return explained
	}
	return croft.Errorf(croft.Unavailable, "it does not answer (%w); is croft up running there, and does a firewall let you in?", unwrapped(err))
}
