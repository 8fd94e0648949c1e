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

// ReadLog passes what a guest wrote to its console to show. With in.Follow, it continues with new output, and returns
// no error when ctx is canceled. NotFound: the instance has no host. Unavailable: the host does not answer, or the
// connection breaks.
func (c *Client) ReadLog(ctx context.Context, in api.ConsoleLog, show func(io.Reader) error) error {
	answer, err := c.request(ctx, "GET /v1/instances/{id}/log", in)
	if err == nil {
		defer answer.Body.Close()
		err = show(answer.Body)
	}
	switch {
	case in.Follow && errors.Is(ctx.Err(), context.Canceled):
		return nil
	case in.Follow && answer != nil && ctx.Err() == nil:
		return cmp.Or(c.refusal(ctx, in.InstanceNamed), err)
	}
	return err
}

// refusal returns the reason why the server ended an instance's stream, if the caller may no longer read it. The server
// ends such a stream without an error. Denied.
func (c *Client) refusal(ctx context.Context, in api.InstanceNamed) error {
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	if _, err := c.GetInstance(ctx, api.InstanceShown{InstanceNamed: in}); errors.Is(err, croft.Denied) {
		return err
	}
	return nil
}

// refusalTimeout limits the request that asks why a stream ended.
const refusalTimeout = 10 * time.Second

// AttachConsole lets use read and write the console of a guest; use may close it. NotFound: the instance has no host.
// Conflict: the console is already attached, and in.TakeOver is not set. Unavailable.
func (c *Client) AttachConsole(ctx context.Context, in api.Console, use func(io.ReadWriteCloser) error) error {
	opened := false
	err := c.socket(ctx, pathOf("/v1/instances/{id}/console", in), func(guest io.ReadWriteCloser) error {
		opened = true
		return use(guest)
	})
	if opened && ctx.Err() == nil {
		return cmp.Or(c.refusal(ctx, in.InstanceNamed), err)
	}
	return err
}

// AttachScreen lets use communicate with the screen of a guest by the protocol of VNC; use may close it. NotFound: the
// instance has no host. Conflict: the screen is attached already, and in.TakeOver is not set; the instance has no
// screen, or is off. Unavailable.
func (c *Client) AttachScreen(ctx context.Context, in api.Screen, use func(io.ReadWriteCloser) error) error {
	opened := false
	err := c.socket(ctx, pathOf("/v1/instances/{id}/display", in), func(screen io.ReadWriteCloser) error {
		opened = true
		return use(screen)
	})
	if opened && ctx.Err() == nil {
		return cmp.Or(c.refusal(ctx, in.InstanceNamed), err)
	}
	return err
}

// ReadScreen passes a PNG of what the screen of a guest shows to show. Conflict: it has no screen, or is off.
func (c *Client) ReadScreen(ctx context.Context, in api.InstanceNamed, show func(io.Reader) error) error {
	answer, err := c.request(ctx, "GET /v1/instances/{id}/screen", in)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return show(answer.Body)
}

// ForwardPort lets use communicate with a TCP port of a guest; use may close the connection. NotFound, Conflict: the
// instance has no address. Unavailable: the port does not answer.
func (c *Client) ForwardPort(ctx context.Context, in api.GuestPort, use func(io.ReadWriteCloser) error) error {
	return c.socket(ctx, pathOf("/v1/instances/{id}/forward", in), use)
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
