package mdserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"croft/mdserver"
)

// secrets are data that only the guest web may read: its ID, its name, its user-data, its key.
var secrets = []string{string(webID), "Web_1", "web-1", "echo hello", strings.Fields(key1)[1]}

// exchange sends raw bytes and returns the whole answer.
func exchange(t *testing.T, from netip.Addr, at, text string) string {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
	conn, err := dialer.DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(conn) // a reset is an answer too
	return string(answer)
}

// request returns the text of a request with its own connection.
func request(line string, headers ...string) string {
	return line + "\r\n" + strings.Join(append([]string{"Host: 169.254.169.254", "Connection: close"}, headers...),
		"\r\n") + "\r\n\r\n"
}

// disguises are requests, byte for byte, in which a guest pretends to be web.
func disguises() map[string]string {
	const path = "/latest/meta-data/instance-id"
	all := map[string]string{
		"an address of the whole URL": request("GET http://127.0.0.2" + path + " HTTP/1.1"),
		"another's user in the URL":   request("GET http://127.0.0.2@169.254.169.254" + path + " HTTP/1.1"),
		"another's Host": "GET " + path +
			" HTTP/1.1\r\nHost: 127.0.0.2\r\nConnection: close\r\n\r\n",
		"two Hosts":       request("GET "+path+" HTTP/1.1", "Host: 127.0.0.2"),
		"no Host, of old": "GET " + path + " HTTP/1.0\r\n\r\n",
		"a tunnel":        request("CONNECT 127.0.0.2:80 HTTP/1.1"),
		"a proxy's preamble": "PROXY TCP4 127.0.0.2 169.254.169.254 40000 80\r\n" +
			request("GET "+path+" HTTP/1.1"),
		"a proxy's preamble in binary": "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x02\xa9\xfe\xa9\xfe\x9c\x40\x00\x50" + request("GET "+path+" HTTP/1.1"),
		"a request in a body": request("POST "+path+" HTTP/1.1", "Content-Length: 5",
			"Transfer-Encoding: chunked") + "0\r\n\r\n" + request("GET "+path+" HTTP/1.1",
			"X-Forwarded-For: 127.0.0.2"),
		"two requests, the second in a body": "GET " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\n" +
			request("GET http://127.0.0.2"+path+" HTTP/1.1"),
		"a header of two lines": request("GET "+path+" HTTP/1.1", "X-A: b\r\n X-Forwarded-For: 127.0.0.2"),
		"a header among the trailers": request("POST "+path+" HTTP/1.1", "Transfer-Encoding: chunked",
			"Trailer: X-Forwarded-For") + "0\r\nX-Forwarded-For: 127.0.0.2\r\n\r\n",
		"an upgrade": request("GET "+path+" HTTP/1.1", "Upgrade: h2c",
			"HTTP2-Settings: AAMAAABkAAQAAP__"),
	}
	for _, p := range []string{
		"//127.0.0.2" + path, "/127.0.0.2" + path, "/%2e%2e/%2e%2e/127.0.0.2" + path, "/../127.0.0.2" + path,
		"/..;/127.0.0.2" + path,
		"/latest/..%2f..%2f127.0.0.2/latest/user-data", "/%2f127.0.0.2" + path, "/[::ffff:127.0.0.2]" + path,
		"/::ffff:7f00:2" + path,
		"/latest/meta-data/instance-id%00127.0.0.2", "/" + string(webID) + path, "/" + string(webID),
		"/openstack/" + string(webID) + "/meta_data.json",
		path + "?address=127.0.0.2", path + "?instance_id=" + string(webID), path + "#127.0.0.2", path + ";127.0.0.2",
		"/openstack/latest/meta_data.json?uuid=" + string(webID), "\\127.0.0.2" + path, "*",
	} {
		all["the path "+p] = request("GET " + p + " HTTP/1.1")
	}
	for _, h := range []string{
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded", "X-Real-IP", "X-Client-IP", "X-Cluster-Client-IP",
		"X-Originating-IP", "X-Remote-IP",
		"X-Remote-Addr", "X-Source-IP", "X-Host", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP", "Client-IP",
		"Remote-Addr", "Via", "Origin", "Referer",
	} {
		for _, v := range []string{"127.0.0.2", "::ffff:127.0.0.2", "127.0.0.2, 127.0.0.2", "127.0.0.2:40000"} {
			all[h+" "+v] = request("GET "+path+" HTTP/1.1", h+": "+v)
		}
	}
	for _, h := range []string{
		"Forwarded: for=127.0.0.2;by=127.0.0.2;host=127.0.0.2", "Forwarded: for=\"[::ffff:127.0.0.2]:80\"",
		"X-Instance-ID: " + string(webID) + "\r\nX-Instance-ID-Signature: 0\r\nX-Tenant-ID: lab",
		"X-Metadata-Provider: 127.0.0.2",
		"X-Original-URL: http://127.0.0.2" + path, "X-Rewrite-URL: //127.0.0.2" + path, "X-HTTP-Method-Override: PUT",
		"X-OpenStack-Nova-Instance: " + string(webID), "X-Aws-Ec2-Metadata-Token: " + string(webID),
	} {
		all[h] = request("GET /openstack/latest/meta_data.json HTTP/1.1", h)
	}
	return all
}

// TestNoDisguiseHelps: whatever a guest or an unknown client sends, the answer contains no data of another guest.
func TestNoDisguiseHelps(t *testing.T) {
	at := serve(t, mdserver.Config{Guests: twoGuests()})
	if own := exchange(t, webAddr, at, request("GET /openstack/latest/meta_data.json HTTP/1.1")); !strings.Contains(own,
		secrets[0]) || !strings.Contains(own, secrets[4]) {
		t.Fatalf("web itself reads %q", own)
	}
	itself := 0 // number of answers with the asking guest's own data
	for name, text := range disguises() {
		for who, from := range map[string]netip.Addr{"another guest": bareAddr, "a stranger": nobodyAddr} {
			answer := exchange(t, from, at, text)
			told := refusal.ReplaceAllString(answer, "")
			for _, secret := range secrets {
				if strings.Contains(told, secret) {
					t.Errorf("%s reads %q as %s:\n%s", who, secret, name, answer)
				}
			}
			if strings.Contains(told, string(bareID)) {
				itself++
			}
			if who == "a stranger" && strings.Contains(answer, " 200 OK") {
				t.Errorf("a stranger is answered as %s:\n%s", name, answer)
			}
		}
	}
	if itself < 80 {
		t.Errorf("only %d requests of a guest had an answer about itself, so most of this tries nothing", itself)
	}
}

// refusal matches the sentence that quotes the requested path.
var refusal = regexp.MustCompile(`there is no "[^\n]*" for this instance`)

// changing are guests that change while connections last.
type changing struct {
	mu  sync.Mutex
	now guests
}

func (c *changing) Guest(ctx context.Context, addr netip.Addr) (mdserver.Guest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.Guest(ctx, addr)
}

func (c *changing) become(g guests) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = g
}

// TestAConnectionOutlivesNobody: a connection that was opened while one guest had the address returns no data of that
// guest once it has ended, and the next guest at the address may read only its own data.
func TestAConnectionOutlivesNobody(t *testing.T) {
	who := &changing{now: twoGuests()}
	at := serve(t, mdserver.Config{Guests: who})
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: webAddr.AsSlice()}}
	conn, err := dialer.DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	ask := func(method, path, header string) (int, string) {
		t.Helper()
		if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\n%s\r\n", method, path, header); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	const path = "/latest/meta-data/instance-id"
	if status, body := ask("GET", path, ""); status != 200 || body != string(webID) {
		t.Fatalf("alive: %d %q", status, body)
	}
	_, token := ask("PUT", "/latest/api/token", ttlHeader+": 60\r\n")
	for _, c := range []struct {
		when, path, header string
		now                guests
		status             int
		body               string // prefix of the body
	}{
		{"it has ended", path, "", guests{}, 404, "no instance"},
		{"it has ended and has a token", path, tokenHeader + ": " + token + "\r\n", guests{}, 404, "no instance"},
		{"its user-data, when it has ended", "/latest/user-data", "", guests{}, 404, "no instance"},
		{"its address is another's", path, "", guests{webAddr: bare()}, 200, string(bareID)},
		{"its address is another's, with its token", path, tokenHeader + ": " + token + "\r\n", guests{webAddr: bare()},
			401, ""},
		{"its user-data, when its address is another's", "/latest/user-data", "", guests{webAddr: bare()}, 404,
			"there is no"},
	} {
		who.become(c.now)
		status, body := ask("GET", c.path, c.header)
		if status != c.status || !strings.HasPrefix(body, c.body) || strings.Contains(body, string(webID)) {
			t.Errorf("%s: %d %q, want %d %q", c.when, status, body, c.status, c.body)
		}
	}
}

// patient looks up guests until the caller has disconnected.
type patient struct{}

func (patient) Guest(ctx context.Context, _ netip.Addr) (mdserver.Guest, error) {
	<-ctx.Done()
	return mdserver.Guest{}, fmt.Errorf("look up: %w", ctx.Err())
}

// TestAGuestThatHangsUpFillsNoLog: an event that a guest can repeat without limit causes no warning.
func TestAGuestThatHangsUpFillsNoLog(t *testing.T) {
	for name, c := range map[string]struct {
		gone   bool
		logged string
	}{
		"the guest has gone":      {true, ""},
		"the answer has not come": {false, "cannot find the instance with this address"},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			s, err := mdserver.New(mdserver.Config{Guests: patient{}, Log: slog.New(slog.NewTextHandler(&log, nil)),
				LookupTimeout: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.gone {
				cancel()
			}
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/latest", nil))
			if got := log.String(); (got == "") != (c.logged == "") || !strings.Contains(got, c.logged) {
				t.Errorf("the log is %q, want %q in it", got, c.logged)
			}
		})
	}
}
