package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"croft"
	"croft/control/api"
)

// getInstanceLog sends the console output of the guest.
func getInstanceLog(c *call, in api.ConsoleLog) error {
	ctx, end := c.brief()
	st, err := c.find(ctx)
	end()
	if err != nil {
		return err
	}
	begun := false
	if in.Follow {
		ctx, end = c.lastingFor(st, nil)
	} else {
		ctx, end = c.brief()
	}
	defer end()
	err = c.Cloud.Consoles.Log(ctx, st, in.Follow, func(from io.Reader) error {
		if err := c.checkSame(st, nil); err != nil {
			return err
		}
		begun = true
		c.w.Header().Set("Content-Type", "application/octet-stream")
		c.w.Header().Set("Cache-Control", "no-store")
		c.w.WriteHeader(http.StatusOK)
		return copyAtOnce(c.w, from)
	})
	switch {
	case begun: // only the end of the answer can show the client that it failed
		return nil
	case errors.Is(err, croft.NotFound) && !c.caller.Operator(): // the error names the host
		return api.NewProblem(api.NotFound, "there is no console log of "+st.Instance.Name+" yet")
	}
	return err
}

// copyAtOnce copies and flushes each piece as soon as it arrives.
func copyAtOnce(w http.ResponseWriter, from io.Reader) error {
	control := http.NewResponseController(w)
	if err := control.Flush(); err != nil {
		return err
	}
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if err := control.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// attachConsole connects the client to the console of the guest.
func attachConsole(c *call, _ api.InstanceNamed) error {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return api.NewProblem(api.BadRequest, "a console is a WebSocket: ask for an upgrade of the connection")
	}
	ctx, cancel := c.brief()
	st, err := c.find(ctx)
	cancel()
	if err != nil {
		return err
	}
	lasting, end := c.lastingFor(st, nil)
	defer end()
	upgraded := false
	err = c.Cloud.Consoles.Attach(lasting, st, func(guest io.ReadWriteCloser) error {
		if err := c.checkSame(st, nil); err != nil {
			return err
		}
		upgraded = true // or refused, with an answer
		return c.tunnel(lasting, guest)
	})
	switch {
	case upgraded:
		return nil
	case croft.KindOf(err) == croft.Conflict:
		return api.NewProblem(api.InUse, "the console of "+st.Instance.Name+" is attached elsewhere")
	}
	return err
}

// tunnel upgrades the connection to a WebSocket and copies bytes both ways until one side ends.
func (c *call) tunnel(ctx context.Context, far io.ReadWriteCloser) error {
	socket, err := websocket.Accept(c.w, c.r, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = far.Close() })()
	near := websocket.NetConn(ctx, socket, websocket.MessageBinary)
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	})
	_, err = io.Copy(near, far)
	_ = near.Close()
	copying.Wait()
	return err
}
