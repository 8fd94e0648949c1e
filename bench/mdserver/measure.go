package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"time"
)

var (
	rateLine   = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	p99Line    = regexp.MustCompile(`(?m)^\s+99%\s+(\S+)`)
	errorsLine = regexp.MustCompile(`(?m)^\s+(Socket errors|Non-2xx).*`)
)

// load configures wrk.
type load struct {
	duration    time.Duration
	connections int
}

// measure runs wrk on the path and prints one row.
func (l load) measure(ctx context.Context, server, address, path, mode string) error {
	args := []string{"-t1", "-c", fmt.Sprint(l.connections), "-d",
		fmt.Sprintf("%ds", max(1, int(l.duration.Seconds()))), "--latency"}
	if mode == "new each time" {
		args = append(args, "-H", "Connection: close")
	}
	out, err := exec.CommandContext(ctx, "wrk", append(args, "http://"+address+path)...).Output()
	if err != nil {
		return fmt.Errorf("wrk: %w", err)
	}
	rate, p99 := rateLine.FindSubmatch(out), p99Line.FindSubmatch(out)
	if rate == nil || p99 == nil {
		return fmt.Errorf("wrk says what is not understood:\n%s", out)
	}
	wrong := "none"
	if found := errorsLine.Find(out); found != nil {
		wrong = string(found)
	}
	fmt.Printf("%-34s %-16s %-9s %12s %9s %7s\n", path, mode, server, rate[1], p99[1], wrong)
	return nil
}

// hang opens n connections that start a request and never end it, from 32 addresses, and keeps as many open as the
// server allows.
func hang(ctx context.Context, address string, n int) (end func(), err error) {
	var conns []net.Conn
	end = func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	for i := range n {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%32))}}
		c, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			end()
			return nil, fmt.Errorf("open %d slow connections: %w", n, err)
		}
		conns = append(conns, c)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nSlow: "); err != nil {
			end()
			return nil, fmt.Errorf("open %d slow connections: %w", n, err)
		}
	}
	return end, nil
}
