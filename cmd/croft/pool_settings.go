package main

import (
	"context"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/poolclient"
)

// PoolSettings say where managers of pools are and who we are to them.
type PoolSettings struct {
	Endpoints []string `yaml:"endpoints"`
	Token     string   `yaml:"token"`
	TokenFile string   `yaml:"token_file"`
	CA        string   `yaml:"ca"`
}

// client is a client of the managers, which asks nothing yet. A password in an
// endpoint's URL is a token, for those who have nothing but a URL to say it with.
func (s PoolSettings) client() (*poolclient.Client, error) { return s.clientFor(0) }

// clientFor is client for somebody who goes on asking for so long.
func (s PoolSettings) clientFor(patience time.Duration) (*poolclient.Client, error) {
	c := poolclient.Config{Token: s.Token, CA: s.CA, Patience: patience}
	for _, endpoint := range s.Endpoints {
		u, err := url.Parse(strings.TrimSpace(endpoint))
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%q is no address of a manager of pools, such as %s", endpoint, poolclient.DefaultEndpoint)
		}
		if password, is := u.User.Password(); is {
			c.Token = password
		}
		u.User = nil
		c.Endpoints = append(c.Endpoints, u.String())
	}
	if s.TokenFile != "" {
		if s.Token != "" {
			return nil, croft.Errorf(croft.Invalid, "pool.token and pool.token_file are both set: leave one out")
		}
		text, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "pool.token_file: %w", err)
		}
		c.Token = strings.TrimSpace(string(text))
	}
	return poolclient.New(c)
}

// addPoolClientFlags defines the flags of commands that ask a manager of pools.
func addPoolClientFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.String("settings", "", "read settings from this `file` instead of searching schedule.yaml")
	flags.String("server", "", "`URLs` of the managers of pools, with commas (pool.endpoints)")
	flags.StringP("output", "o", "", "print text, table, json or yaml (`format`; output)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is defined above
}

// askPools reads the settings and has do ask a manager of pools.
func askPools(cmd *cobra.Command, do func(ctx context.Context, c *poolclient.Client, output string) error) error {
	s, err := loadSchedule(cmd.Flags())
	if err != nil {
		return err
	}
	c, err := s.Pool.client()
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	return do(cmd.Context(), c, s.Output)
}
