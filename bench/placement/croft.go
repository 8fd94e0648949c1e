package main

import (
	"context"
	"os"

	"croft/internal/testing/freeport"
)

// server is croft serve placement in a separate process.
type server struct {
	*process
	url string
}

// startCroft starts it with a separate etcd below dir.
func startCroft(ctx context.Context, program, dir string) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return startServer(ctx, program, "--data-dir", dir)
}

func startServer(ctx context.Context, program string, args ...string) (*server, error) {
	address, err := freeport.Address("127.0.0.1")
	if err != nil {
		return nil, err
	}
	p, err := start("croft serve placement", nil,
		append([]string{program, "serve", "placement", "--listen", address}, args...)...)
	if err != nil {
		return nil, err
	}
	s := &server{p, "http://" + address}
	if err := p.await(ctx, answersAt(s.url+"/readyz")); err != nil {
		p.stop()
		return nil, err
	}
	return s, nil
}

func (s *server) client() *client { return newClient(s.url, true) }
