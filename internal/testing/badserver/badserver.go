// Package badserver has HTTP servers that behave like servers whose processes are being killed. A client must report
// each of them as croft.Unavailable, because a later request may succeed.
package badserver

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// All starts one server of each kind, over TLS if secure, and returns their addresses, HOST:PORT, by their faults. They
// end with the test.
func All(t testing.TB, secure bool) map[string]string {
	t.Helper()
	all := map[string]string{
		"nobody listens":        "127.0.0.1:1", // only root could listen on this port
		"the connection is cut": listen(t, func(c net.Conn) { _ = c.Close() }),
	}
	for name, handler := range map[string]http.HandlerFunc{
		"the request gets no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"the answer is cut": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"id": "some`))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"the answer is half of one":  text(http.StatusOK, `{"id": "some`),
		"the answer is a fault":      text(http.StatusInternalServerError, ""),
		"the answer is another's":    text(http.StatusBadGateway, "<html>"),
		"the answer is a plain text": text(http.StatusServiceUnavailable, "stopping"),
	} {
		server := httptest.NewUnstartedServer(handler)
		if secure {
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		all[name] = server.Listener.Addr().String()
	}
	return all
}

// text always answers with the same text.
func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// listen calls serve for each connection.
func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			serve(c)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return l.Addr().String()
}
