package remote

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/coder/websocket"

	"croft"
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
	asked := ""
	if follow {
		asked = "true"
	}
	answer, err := c.send(ctx, http.MethodGet,
		path("", []string{"v1", "instances", string(st.Instance.ID), "log"}, "follow", asked), nil, nil)
	if err == nil {
		defer answer.Body.Close()
		err = show(answer.Body)
	}
	if follow && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

// Attach implements cloud.Consoles.
func (c consoles) Attach(ctx context.Context, st croft.Status, use func(io.ReadWriteCloser) error) error {
	if st.Instance.ID == "" {
		return errNoConsole
	}
	return c.socket(ctx, path("", []string{"v1", "instances", string(st.Instance.ID), "console"}), use)
}

// socket opens a WebSocket and lets use speak through it.
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
