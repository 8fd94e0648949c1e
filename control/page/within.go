package page

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// within sends the requests of clients to a handler in this process. The handler sees the address of the browser.
type within struct{ handler http.Handler }

type browserKey struct{}

// from returns a context whose requests come from the browser that sent r.
func from(r *http.Request) context.Context {
	return context.WithValue(r.Context(), browserKey{}, r.RemoteAddr)
}

// RoundTrip implements http.RoundTripper. Closing the body of the response ends the context of the request.
func (t within) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	served := r.Clone(ctx)
	served.RequestURI, served.Host = r.URL.RequestURI(), r.URL.Host
	served.RemoteAddr, _ = ctx.Value(browserKey{}).(string)
	if served.Body == nil {
		served.Body = http.NoBody
	}
	body, write := io.Pipe()
	w := &answer{header: http.Header{}, begun: make(chan struct{}), body: write}
	go func() {
		defer func() {
			err := io.EOF
			if fault := recover(); fault != nil {
				w.WriteHeader(http.StatusInternalServerError)
				err = fmt.Errorf("the server failed: %v", fault)
			}
			w.WriteHeader(http.StatusOK)
			w.begin.Do(func() { close(w.begun) })
			_ = write.CloseWithError(err) // always nil
		}()
		t.handler.ServeHTTP(w, served)
	}()
	stop := context.AfterFunc(ctx, func() { _ = body.CloseWithError(context.Cause(ctx)) }) // always nil
	ended := func() { stop(); cancel() }
	select {
	case <-w.begun:
	case <-ctx.Done():
		ended()
		return nil, ctx.Err()
	}
	if w.conn != nil {
		return w.upgraded(ctx, r, ended)
	}
	return &http.Response{Status: fmt.Sprint(w.status, " ", http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.sent, ContentLength: -1, Request: r,
		Body: &ending{body, ended}}, nil
}

// answer is the writer of a response within the process.
type answer struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	begin  sync.Once
	begun  chan struct{} // closed when the fields below are set
	status int           // 0: the handler wrote the head of the response into conn
	sent   http.Header
	conn   net.Conn // the client's end of the connection that the handler took over; nil: it did not
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		if status != http.StatusSwitchingProtocols { // the handler takes the connection over next
			a.begin.Do(func() { close(a.begun) })
		}
	})
}

// Hijack implements http.Hijacker. The connection is a pipe.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.once.Do(func() {}) // no head is written any more
	if a.conn != nil {
		return nil, nil, http.ErrHijacked
	}
	near, far := net.Pipe()
	a.conn = far
	a.begin.Do(func() { close(a.begun) })
	return near, bufio.NewReadWriter(bufio.NewReader(near), bufio.NewWriter(near)), nil
}

// upgraded returns the response of a handler that took the connection over. Its body is the connection.
func (a *answer) upgraded(ctx context.Context, r *http.Request, ended func()) (*http.Response, error) {
	stop := context.AfterFunc(ctx, func() { _ = a.conn.Close() }) // always nil
	c := &connection{a.conn, bufio.NewReader(a.conn), func() { stop(); ended() }}
	response := &http.Response{StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.sent,
		Request: r}
	if a.status == 0 {
		var err error
		if response, err = http.ReadResponse(c.from, r); err != nil {
			_ = c.Close() // always nil
			return nil, err
		}
	}
	response.Body = c
	return response, nil
}

// connection is the client's end of a connection.
type connection struct {
	net.Conn
	from *bufio.Reader
	end  func()
}

// Read implements io.Reader.
func (c *connection) Read(p []byte) (int, error) { return c.from.Read(p) }

// Close implements io.Closer.
func (c *connection) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// Write implements io.Writer.
func (a *answer) Write(text []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(text)
}

// Flush implements http.Flusher: everything that was written has been read.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// ending is a body whose end ends the request.
type ending struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (e *ending) Close() error {
	e.end()
	return e.ReadCloser.Close()
}
