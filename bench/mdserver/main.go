// Command mdserver compares the metadata server with nginx serving the same bytes from files, on one machine and in one
// run. Address lookups are answered from memory, as on a host that asked libvirt less than a second ago.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"croft"
	"croft/internal/testing/freeport"
	"croft/mdserver"
)

// paths are a small and a larger document that every guest reads.
var paths = []string{"/latest/meta-data/instance-id", "/openstack/latest/meta_data.json"}

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB jo@home"

func main() {
	serving := flag.String("serve", "", "serve metadata at this `address`, and measure nothing")
	duration := flag.Duration("duration", 5*time.Second, "how long each measurement takes")
	connections := flag.Int("connections", 16, "connections at once, fewer than the 32 that one guest may have")
	slow := flag.Int("slow", 1000, "connections that say nothing while the last measurements are made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *serving != "" {
		err = serve(ctx, *serving)
	} else {
		err = compare(ctx, load{*duration, *connections}, *slow)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/mdserver:", err)
		os.Exit(1)
	}
}

// everybody maps every address to one guest.
type everybody struct{ order croft.Order }

func (e everybody) Guest(context.Context, netip.Addr) (mdserver.Guest, error) {
	return mdserver.FromOrder(e.order), nil
}

func serve(ctx context.Context, address string) error {
	server, err := mdserver.New(mdserver.Config{
		Guests: everybody{croft.Order{
			Instance: "5d1b9c3e-7b8e-4c0a-8e4e-0f4dbe7f3a11", Project: croft.DefaultProject, Name: "web",
			Spec: croft.Spec{
				GuestSettings: croft.GuestSettings{Keys: []string{key}, UserData: []byte("#!/bin/sh\necho hello\n")}},
		}},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return server.Serve(ctx, l)
}

// compare measures both servers in turns and prints a table.
func compare(ctx context.Context, l load, slow int) error {
	dir, err := os.MkdirTemp("", "croft-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ours, endOurs, err := startOurs(ctx)
	if err != nil {
		return err
	}
	defer endOurs()
	if err := fetch(ctx, ours, dir); err != nil {
		return err
	}
	theirs, endTheirs, err := startNginx(ctx, dir)
	if err != nil {
		return err
	}
	defer endTheirs()
	fmt.Printf("%-34s %-16s %-9s %12s %9s %7s\n", "what", "connections", "server", "requests/s", "p99", "errors")
	for _, path := range paths {
		for _, mode := range []string{"keep-alive", "new each time"} {
			for _, s := range []struct{ name, address string }{{"mdserver", ours}, {"nginx", theirs}} {
				if err := l.measure(ctx, s.name, s.address, path, mode); err != nil {
					return err
				}
			}
		}
	}
	end, err := hang(ctx, ours, slow)
	if err != nil {
		return err
	}
	defer end()
	return l.measure(ctx, "mdserver", ours, paths[1], fmt.Sprintf("%d slow beside", slow))
}

// startOurs runs this program as the server, so that it shares no Go scheduler with the measuring process.
func startOurs(ctx context.Context) (address string, end func(), err error) {
	address, err = freeport.Address("127.0.0.1")
	if err != nil {
		return "", nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	end, err = start(ctx, address, self, "-serve", address)
	return address, end, err
}

const nginxConfig = `daemon off; worker_processes auto; pid %[1]s/pid; error_log stderr crit;
events { worker_connections 4096; }
http {
	access_log off; default_type application/json; sendfile on; tcp_nopush off; keepalive_requests 1000000000;
	client_body_temp_path %[1]s/t; proxy_temp_path %[1]s/t; fastcgi_temp_path %[1]s/t; uwsgi_temp_path %[1]s/t; scgi_temp_path %[1]s/t;
	server { listen %[2]s backlog=4096; root %[1]s/root; add_header Cache-Control no-store; }
}
`

func startNginx(ctx context.Context, dir string) (address string, end func(), err error) {
	address, err = freeport.Address("127.0.0.1")
	if err != nil {
		return "", nil, err
	}
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, dir, address), 0o644); err != nil {
		return "", nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // nginx's workers run as another user
		return "", nil, err
	}
	end, err = start(ctx, address, "nginx", "-c", config, "-p", dir, "-e", "stderr")
	return address, end, err
}

// start runs a program until end is called, and returns once it accepts connections.
func start(ctx context.Context, address, program string, args ...string) (end func(), err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	end = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			return end, c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	end()
	return nil, fmt.Errorf("%s does not listen at %s", program, address)
}

// fetch saves the server's answers as files for nginx.
func fetch(ctx context.Context, address, dir string) error {
	for _, path := range paths {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "root", path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		var body strings.Builder
		if err := resp.Write(&body); err != nil {
			return err
		}
		_, text, _ := strings.Cut(body.String(), "\r\n\r\n")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
	}
	return nil
}
