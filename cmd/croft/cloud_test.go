package main

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/etcdstore/etcdserver"
	"croft/node"
	"croft/node/settings"
	"croft/test/simcloud"
)

// testCloud is a whole cloud in the test's process, whose hosts report their own state as those of croft up do.
type testCloud struct{ *simcloud.Cloud }

func newTestCloud(ctx context.Context, dir string) (*testCloud, error) {
	return newTestCloudOf(ctx, dir, etcdserver.Config{})
}

// newTestCloudOf is newTestCloud with this configuration of etcd.
func newTestCloudOf(ctx context.Context, dir string, kind etcdserver.Config) (*testCloud, error) {
	c, err := simcloud.New(ctx, dir, kind)
	if err != nil {
		return nil, err
	}
	c.Tell = func(ctx context.Context, agent *compute.Agent, hv *sim.Hypervisor, mux *http.ServeMux,
		address string) error {
		var none settings.Settings
		tells, err := node.NewSelf(ctx, &none, "croft-test", slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		tells.OfStore(c.Store)
		tells.Counts(agent, hv)
		tells.Checks.Add("agent", agent.Ready)
		tells.Serves(mux, address)
		return nil
	}
	return &testCloud{c}, nil
}

// cloudFor runs a cloud with one host until the test ends.
func cloudFor(t *testing.T, places int64) *testCloud {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // the cloud ends with close
	c, err := newTestCloud(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.AddHost(ctx, "host1", places); err != nil {
		t.Fatal(err)
	}
	return c
}

// args adds this cloud's addresses to a command's arguments.
func (c *testCloud) args(args ...string) []string {
	return append(args, "--etcd", c.Etcd.Endpoint(), "--placement", c.Placement.URL)
}
