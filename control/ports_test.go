package control_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"croft"
	"croft/compute"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/controltest"
)

// echo is a network of guests in which port 22 sends everything back twice, and no other port answers.
type echo struct{ asked chan croft.InstanceID }

func (e echo) Connect(_ context.Context, st croft.Status, port int, use func(io.ReadWriteCloser) error) error {
	if port != 22 {
		return croft.Errorf(croft.Unavailable, "the host at 192.0.2.1 says no")
	}
	e.asked <- st.Instance.ID
	near, far := net.Pipe()
	go func() {
		lines := bufio.NewReader(far)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				_ = far.Close()
				return
			}
			_, _ = io.WriteString(far, line+line)
		}
	}()
	return use(near)
}

func TestAPortIsForwarded(t *testing.T) {
	t.Parallel()
	network := echo{make(chan croft.InstanceID, 10)}
	url, _ := controltest.StartWith(t, func(c *cloud.Cloud) { c.Ports = network })
	a := newAsker(t, url)
	web := a.create(t, "anna", "web")
	a.ask(t, "anna", http.MethodGet, "/v1/instances/web/forward", nil).want(t, http.StatusBadRequest, api.BadRequest)
	dial := func(token, query string) (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), url+"/v1/instances/"+string(web)+"/forward"+query,
			&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	}
	for _, c := range []struct {
		token, query string
		want         int
	}{
		{"berta", "", http.StatusNotFound},
		{"reader", "", http.StatusForbidden},
		{"anna", "?port=0", http.StatusBadRequest},
		{"anna", "?port=65536", http.StatusBadRequest},
		{"anna", "?port=80", http.StatusServiceUnavailable},
	} {
		if _, got, err := dial(c.token, c.query); err == nil || got.StatusCode != c.want {
			t.Errorf("%s%s: got %+v, %v, want %d", c.token, c.query, got, err, c.want)
		}
	}
	socket, _, err := dial("anna", "")
	if err != nil {
		t.Fatal(err)
	}
	if id := <-network.asked; id != web {
		t.Errorf("it is a port of %s, not of %s", id, web)
	}
	stream := websocket.NetConn(t.Context(), socket, websocket.MessageBinary)
	if _, err := io.WriteString(stream, "hello\n"); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("hello\nhello\n"))
	if _, err := io.ReadFull(stream, said); err != nil || string(said) != "hello\nhello\n" {
		t.Errorf("it says %q, %v", said, err)
	}
	if err := stream.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	a.ask(t, "anna", http.MethodPost, "/v1/instances/web/stop?wait=stopped", nil).want(t, http.StatusOK, "")
	if _, got, err := dial("anna", ""); err == nil || got.StatusCode != http.StatusConflict {
		t.Errorf("a guest that is off: got %+v, %v", got, err)
	}
}

// TestAForwardedPortEndsWithItsInstance: the client must not stay connected when another guest gets the address.
func TestAForwardedPortEndsWithItsInstance(t *testing.T) {
	t.Parallel()
	network := echo{make(chan croft.InstanceID, 10)}
	url, _ := controltest.StartWith(t, func(c *cloud.Cloud) { c.Ports = network })
	a := newAsker(t, url)
	for _, end := range []struct{ method, path string }{
		{http.MethodPost, "/stop"}, {http.MethodDelete, ""},
	} {
		web := a.create(t, "anna", "web")
		path := "/v1/instances/" + string(web)
		socket, _, err := websocket.Dial(t.Context(), url+path+"/forward",
			&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer anna"}}})
		if err != nil {
			t.Fatal(err)
		}
		stream := websocket.NetConn(t.Context(), socket, websocket.MessageBinary)
		a.ask(t, "anna", end.method, path+end.path, nil).want(t, http.StatusAccepted, "")
		if said, err := io.ReadAll(stream); len(said) > 0 {
			t.Errorf("after its end the guest says %q, %v", said, err)
		}
		_ = stream.Close()
		a.ask(t, "anna", http.MethodDelete, path+"?wait=gone", nil)
	}
}

// late opens ports and consoles of guests only after calling before, and then sends the output of the next guest.
type late struct {
	before func()
	cloud.Ports
	cloud.Consoles
}

const nextGuest = "what the next guest says"

func (l late) Connect(ctx context.Context, st croft.Status, _ int, use func(io.ReadWriteCloser) error) error {
	return l.Attach(ctx, st, false, use)
}

func (l late) Attach(_ context.Context, _ croft.Status, _ bool, use func(io.ReadWriteCloser) error) error {
	l.before()
	near, far := net.Pipe()
	go func() { _, _ = io.WriteString(far, nextGuest); _ = far.Close() }()
	defer near.Close()
	return use(near)
}

func (l late) AttachScreen(ctx context.Context, st croft.Status, _ bool, use func(io.ReadWriteCloser) error) error {
	return l.Attach(ctx, st, false, use)
}

func (l late) Screen(_ context.Context, _ croft.Status, show func(io.Reader) error) error {
	l.before()
	return show(strings.NewReader(nextGuest))
}

func (l late) Log(_ context.Context, _ croft.Status, _ bool, show func(io.Reader) error) error {
	l.before()
	return show(strings.NewReader(nextGuest))
}

func (l late) Run(_ context.Context, _ croft.Status, _ compute.GuestCommand, same func() error) (compute.GuestResult,
	error) {
	l.before()
	return compute.GuestResult{Stdout: []byte(nextGuest)}, same()
}

// TestNothingOfTheNextInstanceWithAUUIDIsPassedOn: another project takes the UUID of an instance, and with it the
// address and the files on the host, while a request of the former owner is on its way to the host.
func TestNothingOfTheNextInstanceWithAUUIDIsPassedOn(t *testing.T) {
	t.Parallel()
	var hosts late
	url, _ := controltest.StartWith(t, func(c *cloud.Cloud) {
		hosts = late{Ports: c.Ports, Consoles: c.Consoles}
		c.Ports, c.Consoles = &hosts, &hosts
	})
	a := newAsker(t, url)
	for _, path := range []string{"/forward", "/console", "/log", "/log?follow=true", "/screen", "/display", "/exec"} {
		method, body := http.MethodGet, any(nil)
		if path == "/exec" {
			method, body = http.MethodPost, map[string]any{"command": []string{"true"}}
		}
		id := string(a.create(t, "berta", "victim", "machine", map[string]any{"display": "vnc"}))
		hosts.before = func() {
			a.ask(t, "berta", http.MethodDelete, "/v1/instances/"+id+"?wait=gone", nil).want(t, http.StatusOK, "")
			a.ask(t, "anna", http.MethodPost, "/v1/instances?wait=running", wanted("name", "heir", "id", id)).
				want(t, http.StatusOK, "")
		}
		status, text := try{method, "/v1/instances/" + id + path, http.Header{}, body}.send(t, url, "berta")
		if status != http.StatusNotFound || strings.Contains(text, nextGuest) {
			t.Errorf("%s of the former owner: %d %s", path, status, text)
		}
		a.ask(t, "anna", http.MethodDelete, "/v1/instances/"+id+"?wait=gone", nil).want(t, http.StatusOK, "")
	}
}
