package client_test

import (
	"context"
	"testing"

	"croft/client"
	"croft/control/cloud"
	"croft/control/cloud/cloudtest"
	"croft/control/controltest"
)

// as connects with a token.
func as(t *testing.T, url, token string) *cloud.Cloud {
	t.Helper()
	client, err := client.New(client.Settings{URL: url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	c := client.Cloud()
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// here makes join tokens of a cloud that only this machine can reach.
type here struct{ cloud.Tokens }

// Invite implements cloud.Tokens.
func (h here) Invite(ctx context.Context, i cloud.Invitation) (cloud.Token, error) {
	i.SameEtcd, i.SamePlacement = true, true
	return h.Tokens.Invite(ctx, i)
}

func TestContract(t *testing.T) {
	cloudtest.RunShared(t, func(t *testing.T) cloudtest.Fixture {
		url, c := controltest.StartWith(t, func(c *cloud.Cloud) { c.Tokens = here{c.Tokens} })
		return cloudtest.Fixture{Cloud: as(t, url, "operator"), Host: "host1", User: "olga", Silence: func() {
			if err := c.StopHost(context.WithoutCancel(t.Context()), "host1"); err != nil {
				t.Fatal(err)
			}
		}}
	})
}
