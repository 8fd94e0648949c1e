package trust

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"croft"
	"croft/trust/invitation"
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

// Enrolment is the response of a join server to a host, not stored yet.
type Enrolment struct {
	Trust string           // what the host may reach
	Grant invitation.Grant // zero where trust is strict

	keys   map[pki.Authority]*ecdsa.PrivateKey
	issued map[pki.Authority]pki.Issued
}

// Enrol requests a host's certificates from a join server of the cloud. names are the addresses of a host that
// will serve etcd; none for other hosts. Nothing secret is sent before the server has proved to be of the
// authority that the token names, and neither the token's secret nor the private keys are ever sent.
func Enrol(ctx context.Context, token invitation.JoinToken, host croft.HostID, names []string) (*Enrolment, error) {
	e := &Enrolment{keys: map[pki.Authority]*ecdsa.PrivateKey{}}
	order := joinOrder{Invitation: token.Name(), Host: host, Requests: map[pki.Authority][]byte{}, Names: names}
	for _, a := range pki.Authorities {
		var err error
		if e.keys[a], order.Requests[a], err = pki.Request(); err != nil {
			return nil, err
		}
	}
	answer, err := askToJoin(ctx, token, order)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	e.Trust, e.issued = answer.Trust, answer.Issued
	if e.Trust != Strict {
		e.Grant, err = token.Open(answer.Sealed)
	}
	return e, err
}

// askToJoin exchanges an order for certificates.
func askToJoin(ctx context.Context, token invitation.JoinToken, order joinOrder) (answer joinAnswer, err error) {
	signed, err := json.Marshal(order)
	if err != nil {
		return answer, err
	}
	client := NewClient(token.Servers, pki.Pinned(token.Pin, token.Partition, pki.Kinds(pki.Member)))
	err = client.call(ctx, http.MethodPost, "/v1/join", joinRequest{Signed: signed, Signature: token.Sign(signed)},
		&answer)
	return answer, err
}

// Keep stores the certificates in a state directory, and removes certificates that the host no longer gets.
func (e *Enrolment) Keep(stateDir string) error {
	for _, a := range pki.Authorities {
		files := Certificate(stateDir, a)
		issued, ok := e.issued[a]
		if !ok {
			if err := files.Forget(); err != nil {
				return err
			}
			continue
		}
		if err := files.Keep(e.keys[a], issued); err != nil {
			return err
		}
	}
	return nil
}
