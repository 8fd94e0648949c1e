package client

import (
	"net/http"
	"strings"
)

// Through returns a client that uses the given HTTP client, for a cloud that another user named. Of the settings it
// uses the URL, the token and the project. It opens no consoles and no ports. Invalid.
func Through(requests *http.Client, s Settings) (*Client, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return &Client{base: strings.TrimRight(s.URL, "/"), token: s.Token, home: s.Home, requests: requests,
		sockets: requests}, nil
}
