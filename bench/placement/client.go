package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// client sends requests to one server. It is safe for concurrent use.
type client struct {
	url   string
	croft bool // the server is croft's
	http  *http.Client
}

// newClient keeps connections open if the server does, as every client library does. croft's does; the original's uwsgi
// closes them without announcing it.
func newClient(url string, croft bool) *client {
	return &client{url, croft, &http.Client{Transport: &http.Transport{
		DisableKeepAlives: !croft, MaxIdleConnsPerHost: 256, DisableCompression: true,
	}}}
}

func (c *client) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header["X-Auth-Token"] = []string{"admin"}
	req.Header["Openstack-Api-Version"] = []string{"placement 1.39"}
	req.Header["Accept"] = []string{"application/json"}
	if body != nil {
		req.Header["Content-Type"] = []string{"application/json"}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// expect sends a request that should be answered with the given status.
func (c *client) expect(ctx context.Context, method, path string, body any, status int) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	got, answer, err := c.do(ctx, method, path, text)
	if err != nil {
		return err
	}
	if got != status {
		return &refusal{method, path, got, strings.TrimSpace(string(answer))}
	}
	return nil
}

// refusal is an answer with an unexpected status.
type refusal struct {
	method, path string
	status       int
	body         string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s %s: %d %s", r.method, r.path, r.status, r.body)
}
