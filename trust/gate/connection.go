package gate

import (
	"bytes"
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"croft/internal/delay"
)

// connection carries requests and shows the certificate that was current when it was made. A control process
// ends the requests of a connection when that certificate expires.
type connection struct {
	http  *http.Client
	shown atomic.Pointer[tls.Certificate] // at the last handshake
	gone  chan struct{}                   // closed when another connection has replaced it
}

// connectTime bounds connecting to a control process.
const connectTime = 5 * time.Second

func connect(config *tls.Config) *connection {
	k := &connection{gone: make(chan struct{})}
	config = config.Clone()
	if load := config.GetClientCertificate; load != nil {
		config.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := load(info)
			if err == nil {
				k.shown.Store(certificate)
			}
			return certificate, err
		}
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a gate never redirects
	k.http = &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, TLSHandshakeTimeout: connectTime,
		DialContext: (&net.Dialer{Timeout: connectTime}).DialContext, IdleConnTimeout: 2 * time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: silence / 2, PingTimeout: silence / 2},
	}}
	return k
}

// renew replaces the connection for later requests if the host's certificate has changed since it was made.
func (c *Client) renew(k *connection) {
	shown := k.shown.Load()
	if shown == nil || c.current.Load() != k {
		return
	}
	now, err := c.TLS.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || bytes.Equal(now.Certificate[0], shown.Certificate[0]) {
		return
	}
	if c.current.CompareAndSwap(k, connect(c.TLS)) {
		close(k.gone)
		k.http.CloseIdleConnections()
	}
}

// leave closes a replaced connection once it is idle.
func (c *Client) leave(k *connection) {
	if c.current.Load() != k {
		k.http.CloseIdleConnections()
	}
}

const (
	// lookEvery is how often a client checks whether its certificate was renewed.
	lookEvery = time.Second
	// beside is how long a stream overlaps with its successor.
	beside = beatEvery

	// Limits of the approximate pause before a lost stream is opened again. It grows with each try and is
	// random, so that many hosts do not return at once.
	firstWait = 250 * time.Millisecond
	lastWait  = 4 * time.Second
)

// keeper keeps a stream open. When the connection is replaced it opens the next stream before it ends the
// present one, so that the host is never seen as silent.
type keeper struct {
	client *Client
	// open opens a stream and returns when it is lost or ctx ends. It calls heard for every line of the server.
	open func(ctx context.Context, k *connection, heard func())

	before []context.CancelFunc // end streams whose successor has received nothing yet
	work   sync.WaitGroup
}

// run reopens the stream whenever it is lost, until ctx ends.
func (s *keeper) run(ctx context.Context) error {
	defer s.work.Wait()
	for wait := firstWait; ; {
		heard, replaced := s.attend(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if replaced {
			continue
		}
		if heard {
			wait = firstWait
		}
		if err := delay.For(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
		wait = min(2*wait, lastWait)
	}
}

// attend opens a stream and returns when it is lost, or needs a successor.
func (s *keeper) attend(ctx context.Context) (heard, replaced bool) {
	ctx, end := context.WithCancel(ctx)
	k, lost, before := s.client.current.Load(), make(chan struct{}), s.before
	var hearing atomic.Bool
	s.work.Go(func() {
		defer close(lost)
		defer end()
		s.open(ctx, k, func() {
			if !hearing.Swap(true) {
				for _, end := range before {
					time.AfterFunc(beside, end)
				}
			}
		})
		s.client.leave(k)
	})
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case <-look.C:
			s.client.renew(k)
		case <-k.gone:
			replaced, waiting = true, false
		case <-lost:
			waiting = false
		}
	}
	if hearing.Load() {
		s.before = nil
	}
	if replaced {
		s.before = append(s.before, end)
	}
	return hearing.Load(), replaced
}
