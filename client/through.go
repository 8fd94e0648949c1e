package client

import (
	"net/http"
	"strings"
)

// Through returns a client that uses the given HTTP client, for a cloud that another user named. It opens no consoles
// and no ports. Invalid.
func Through(requests *http.Client, url, token string) (*Client, error) {
	if err := (Settings{URL: url, Token: token}).Check(); err != nil {
		return nil, err
	}
	return &Client{base: strings.TrimRight(url, "/"), token: token, requests: requests, sockets: requests}, nil
}
