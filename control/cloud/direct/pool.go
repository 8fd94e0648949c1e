package direct

import (
	"net/url"
	"os"
	"strings"
	"time"

	"croft"
	poolclient "croft/pool/api"
)

// PoolSettings hold the addresses of pool managers and the client's credentials for them.
type PoolSettings struct {
	Endpoints []string `yaml:"endpoints"`
	Token     string   `yaml:"token"`
	TokenFile string   `yaml:"token_file"`
	CA        string   `yaml:"ca"`
}

// Client returns a client of the managers, and sends nothing yet. A password in an endpoint's URL is used as a token,
// for users who can only configure a URL.
func (s PoolSettings) Client() (*poolclient.Client, error) { return s.ClientFor(0) }

// ClientFor does the same as Client, with this time limit for retries.
func (s PoolSettings) ClientFor(patience time.Duration) (*poolclient.Client, error) {
	return s.ClientOf(patience, nil)
}

// ClientOf does the same as ClientFor. If locate is not nil, each attempt calls it for the address of a manager, and
// the configured addresses are ignored.
func (s PoolSettings) ClientOf(patience time.Duration, locate func() (string, error)) (*poolclient.Client, error) {
	c := poolclient.Config{Token: s.Token, CA: s.CA, Patience: patience, Locate: locate}
	for _, endpoint := range s.Endpoints {
		u, err := url.Parse(strings.TrimSpace(endpoint))
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%q is not an address of a manager of pools, such as %s", endpoint,
				poolclient.DefaultEndpoint)
		}
		if password, is := u.User.Password(); is {
			c.Token = password
		}
		u.User = nil
		c.Endpoints = append(c.Endpoints, u.String())
	}
	if s.TokenFile != "" {
		if s.Token != "" {
			return nil, croft.Errorf(croft.Invalid, "token and token_file are both set for a manager of pools: leave one out")
		}
		text, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "token_file of a manager of pools: %w", err)
		}
		c.Token = strings.TrimSpace(string(text))
	}
	return poolclient.New(c)
}
