package mdserver_test

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"croft"
	"croft/mdserver"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	webID  = croft.InstanceID("5d1b9c3e-7b8e-4c0a-8e4e-0f4dbe7f3a11")
	bareID = croft.InstanceID("0aa41f4b-93b5-4a6f-9d55-2a5f6bd0a2c7")
	key1   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJUjfV4cxbC5Eg6aqie4wC6OdHHbbHIivxzJq2gTh/hr jo@home"
	key2   = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBIg5+HuHkiOQyR6s9OZFHY4fdB7ndl23FB/JDQENSYeKeoxvlXpVXOBOekhYnCft48n53O7cuW4SVna70MaSazI= jo@home"
	key3   = "ecdsa-sha2-nistp256 AAAAE2VjZHNh" // truncated: served unchanged
)

// web returns a guest with all fields, bare one with only the required fields.
func web() mdserver.Guest {
	g := mdserver.FromOrder(croft.Order{
		Instance: webID, Project: "lab", Name: "Web_1.example",
		Spec: croft.Spec{Resources: croft.Resources{croft.VCPU: 2, croft.MemoryMB: 512, croft.DiskGB: 10},
			Image: "https://user:secret@images.example/debian-12.qcow2?token=s3cret#sha256=00ff",
			GuestSettings: croft.GuestSettings{Keys: []string{key1, "", "# a comment", key1, key2, key3},
				UserData: []byte("#!/bin/sh\necho hello\n"), Tags: map[string]string{"role": "front", "a/b": "c"}}},
	})
	g.Zone = "site1/row2/rack7"
	g.Vendor = []byte("#cloud-config\ntimezone: UTC\n")
	g.MACs = append(g.MACs, webID.MAC(1))
	return g
}

func bare() mdserver.Guest {
	return mdserver.FromOrder(croft.Order{Instance: bareID, Project: croft.DefaultProject, Name: "bare"})
}

// guests maps addresses to guests.
type guests map[netip.Addr]mdserver.Guest

func (g guests) Guest(_ context.Context, addr netip.Addr) (mdserver.Guest, error) {
	guest, ok := g[addr]
	if !ok {
		return mdserver.Guest{}, croft.Errorf(croft.NotFound, "no lease for %s", addr)
	}
	return guest, nil
}

var (
	webAddr    = netip.MustParseAddr("127.0.0.2")
	bareAddr   = netip.MustParseAddr("127.0.0.3")
	nobodyAddr = netip.MustParseAddr("127.0.0.4")
)

func twoGuests() guests { return guests{webAddr: web(), bareAddr: bare()} }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve starts a server on a loopback address and returns the address.
func serve(t *testing.T, c mdserver.Config) string {
	t.Helper()
	c.Log = discard()
	s, err := mdserver.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(ctx, l); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return l.Addr().String()
}

// clientFrom makes connections with the source address from.
func clientFrom(t *testing.T, from netip.Addr) *http.Client {
	transport := &http.Transport{
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}).DialContext,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	return do(t, c, http.MethodGet, url, nil)
}

func do(t *testing.T, c *http.Client, method, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	return send(t, c, req)
}

func send(t *testing.T, c *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test -update writes it anew):\n%s", path, diff)
	}
}
