package main

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"croft"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
)

// An etcd with an exhausted quota is reported in all places that an operator would check.
func TestAnEtcdThatIsFullIsTold(t *testing.T) {
	ctx := context.WithoutCancel(t.Context()) // the cloud ends with close
	c, err := newTestCloudOf(ctx, t.TempDir(), etcdserver.Config{MaxBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.AddHost(ctx, "host1", 4); err != nil {
		t.Fatal(err)
	}
	if status, said := c.readyz(t, "host1"); status != http.StatusOK {
		t.Fatalf("to begin with: %d %s", status, said)
	}
	run := func(args ...string) (int, string) {
		var out, words bytes.Buffer
		code := Run(t.Context(), append([]string{"croft"}, args...), nil, &out, &words)
		return code, out.String() + words.String()
	}
	doctor := []string{"doctor", "--hypervisor", "sim", "--state-dir", t.TempDir(), "--etcd", c.Etcd.Endpoint()}
	if _, said := run(doctor...); !strings.Contains(said, "ok    etcd            it answers at") {
		t.Errorf("doctor says of an etcd that is well:\n%s", said)
	}
	etcdtest.Fill(t, c.Etcd)

	const sentence = "out of space and cannot write: "
	for _, look := range []struct {
		name string
		args []string
		code int
	}{
		{"schedule", c.args("schedule", "VCPU:1,MEMORY_MB:256,DISK_GB:1"), croft.ExitUnavailable},
		{"host list", c.args("host", "list"), croft.ExitOK},
		{"doctor", doctor, croft.ExitFailure},
	} {
		if code, said := run(look.args...); code != look.code || strings.Count(said, sentence) != 1 {
			t.Errorf("%s: exit code %d, want %d and the sentence once:\n%s", look.name, code, look.code, said)
		}
	}
	await(t, "/readyz to tell it", func() bool { // answers are cached for a moment
		status, said := c.readyz(t, "host1")
		return status == http.StatusServiceUnavailable && strings.Contains(said, sentence)
	})
}

// readyz asks a host's agent whether it accepts orders.
func (c *testCloud) readyz(t *testing.T, host string) (int, string) {
	t.Helper()
	hosts, err := c.Store.Registry.Hosts(t.Context(), c.Hosts[host].ID)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(hosts[c.Hosts[host].ID].API + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var said bytes.Buffer
	if _, err := said.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return response.StatusCode, said.String()
}
