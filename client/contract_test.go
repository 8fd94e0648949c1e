package client_test

import (
	"context"
	"testing"

	"croft/client"
	"croft/control/cloud/cloudtest"
	"croft/control/controltest"
)

// as connects with a token.
func as(t *testing.T, url, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Settings{URL: url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestContract(t *testing.T) {
	t.Parallel()
	cloudtest.RunShared(t, func(t *testing.T) cloudtest.Fixture {
		url, c := controltest.Start(t)
		return cloudtest.Fixture{Client: as(t, url, "operator"), Host: "host1", User: "olga", Silence: func() {
			if err := c.StopHost(context.WithoutCancel(t.Context()), "host1"); err != nil {
				t.Fatal(err)
			}
		}}
	})
}
