package direct_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"croft/control/cloud/cloudtest"
	"croft/control/cloud/direct"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/tenant/usage"
	"croft/test/simcloud"
)

func TestContract(t *testing.T) {
	t.Parallel()
	cloudtest.Run(t, func(t *testing.T) cloudtest.Fixture {
		ctx := context.WithoutCancel(t.Context()) // the cloud ends with Close
		c, err := simcloud.New(ctx, t.TempDir(), etcdserver.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		t.Cleanup(func() { etcdtest.CheckDump(t, c.Etcd.Endpoint()) })
		if err := c.AddHost(ctx, "host1", cloudtest.Room); err != nil {
			t.Fatal(err)
		}
		pools, err := c.ServePools(ctx, "pools", cloudtest.Pools)
		if err != nil {
			t.Fatal(err)
		}
		s := direct.Defaults()
		s.Pool.Endpoints = []string{pools.Address}
		s.Etcd.Endpoints, s.Placement.Endpoint = []string{c.Etcd.Endpoint()}, c.Placement.URL
		connected, err := direct.Dial(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := connected.Close(); err != nil {
				t.Error(err)
			}
		})
		recording, cancel := context.WithCancel(ctx)
		var recorder sync.WaitGroup
		usages := usage.Recorder{Name: "test", Store: c.Store.Usage, Every: time.Second}
		recorder.Go(func() { _ = usages.Run(recording) })
		t.Cleanup(func() { cancel(); recorder.Wait() })
		return cloudtest.Fixture{
			Client: connected,
			Host:   "host1",
			User:   direct.LocalUser(),
			Silence: func() {
				if err := c.StopHost(ctx, "host1"); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
