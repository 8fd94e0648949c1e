package heat

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"sync/atomic"

	"croft"
	"croft/cluster"
	"croft/cluster/outbound"
)

// source reads the content of an image. It holds the last byte back until the hash is verified.
type source struct {
	io.Closer
	in    *bufio.Reader
	name  string
	total int64 // -1: unknown
	want  string
	sum   hash.Hash
	done  *atomic.Int64
	wrong error // set if the hash differs
}

// open starts to read the source of an image.
func open(ctx context.Context, i cluster.SiteImage) (*source, error) {
	client, err := outbound.Client(outbound.Config{Timeout: -1, MaxBody: mostImage})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.URL, nil)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "image %s: its URL is none", i.Name)
	}
	a, err := client.Do(r)
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "image %s: %s", i.Name, outbound.Explain(r.URL.Host, err))
	}
	if a.StatusCode != http.StatusOK {
		_ = a.Body.Close()
		return nil, croft.Errorf(croft.Unavailable, "image %s: %s answers %s", i.Name, r.URL.Host, a.Status)
	}
	return &source{Closer: closing{a.Body, client}, in: bufio.NewReaderSize(a.Body, 256<<10), name: i.Name,
		total: a.ContentLength, want: i.SHA256, sum: sha256.New()}, nil
}

// closing closes the connections of a client together with a body.
type closing struct {
	io.ReadCloser
	client *http.Client
}

// Close implements io.Closer.
func (c closing) Close() error {
	err := c.ReadCloser.Close()
	c.client.CloseIdleConnections()
	return err
}

// Read implements io.Reader. It returns the last byte only if the hash is correct.
func (s *source) Read(p []byte) (int, error) {
	next, err := s.in.Peek(2)
	if len(next) == 2 {
		n, err := s.in.Read(p[:min(len(p), s.in.Buffered()-1)])
		s.sum.Write(p[:n])
		s.done.Add(int64(n))
		return n, err
	}
	if !errors.Is(err, io.EOF) {
		return 0, err
	}
	return s.last(p, next)
}

// last returns the last byte after it verified the hash.
func (s *source) last(p, left []byte) (int, error) {
	s.sum.Write(left)
	if got := hex.EncodeToString(s.sum.Sum(nil)); got != s.want {
		s.wrong = croft.Errorf(croft.Invalid, "image %s has the SHA-256 %s at its source, not %s", s.name, got, s.want)
		return 0, s.wrong
	}
	n := copy(p, left)
	_, err := s.in.Discard(n)
	s.done.Add(int64(n))
	return n, cmp.Or(err, io.EOF)
}
