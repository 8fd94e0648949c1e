package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"croft"
	"croft/control/api"
)

// consoles implements cloud.Consoles.
type consoles struct{ *Client }

// errNoConsole is the error of an instance on no host.
var errNoConsole = croft.Errorf(croft.NotFound, "the instance has no console: it is on no host yet")

// Log implements cloud.Consoles.
func (c consoles) Log(ctx context.Context, st croft.Status, follow bool, show func(io.Reader) error) error {
	if st.Instance.ID == "" {
		return errNoConsole
	}
	answer, err := c.request(ctx, "GET /v1/instances/{id}/log",
		api.ConsoleLog{InstanceNamed: api.InstanceNamed{ID: string(st.Instance.ID)}, Follow: follow})
	if err == nil {
		defer answer.Body.Close()
		err = show(answer.Body)
	}
	switch {
	case follow && errors.Is(ctx.Err(), context.Canceled):
		return nil
	case follow && answer != nil && ctx.Err() == nil:
		return cmp.Or(c.refusal(ctx, st), err)
	}
	return err
}

// refusal returns the reason why the server ended an instance's stream, if the caller may no longer read it. The server
// ends such a stream without an error. Denied.
func (c consoles) refusal(ctx context.Context, st croft.Status) error {
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	if _, err := instances(c).FindByID(ctx, st.Instance.ID); errors.Is(err, croft.Denied) {
		return err
	}
	return nil
}

// refusalTimeout limits the request that asks why a stream ended.
const refusalTimeout = 10 * time.Second

// Attach implements cloud.Consoles.
func (c consoles) Attach(ctx context.Context, st croft.Status, use func(io.ReadWriteCloser) error) error {
	if st.Instance.ID == "" {
		return errNoConsole
	}
	opened := false
	err := c.socket(ctx, pathOf("/v1/instances/{id}/console", api.InstanceNamed{ID: string(st.Instance.ID)}),
		func(guest io.ReadWriteCloser) error {
			opened = true
			return use(guest)
		})
	if opened && ctx.Err() == nil {
		return cmp.Or(c.refusal(ctx, st), err)
	}
	return err
}

// socket opens a WebSocket and lets use communicate through it.
func (c *Client) socket(ctx context.Context, path string, use func(io.ReadWriteCloser) error) error {
	header := http.Header{}
	c.identify(header)
	socket, answer, err := websocket.Dial(ctx, c.base+path,
		&websocket.DialOptions{HTTPClient: c.sockets, HTTPHeader: header})
	if err != nil {
		if answer != nil && answer.StatusCode != http.StatusSwitchingProtocols {
			return problemIn(answer)
		}
		return c.unreachable(ctx, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := websocket.NetConn(ctx, socket, websocket.MessageBinary)
	defer stream.Close()
	return use(stream)
}
