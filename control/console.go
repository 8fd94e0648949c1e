package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"croft"
	"croft/control/api"
	"croft/internal/delay"
	"croft/internal/plain"
	"croft/schedule"
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
		c.begin()
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
func attachConsole(c *call, in api.Console) error {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return api.NewProblem(api.BadRequest, "a console is a WebSocket: ask for an upgrade of the connection")
	}
	if err := c.checkHandshake(); err != nil {
		return err
	}
	ctx, cancel := c.brief()
	st, err := c.find(ctx)
	cancel()
	if err != nil {
		return err
	}
	lasting, end := c.lastingFor(st, nil)
	defer end()
	var refused error // as an answer of this server, not as an error of the host
	err = c.Cloud.Consoles.Attach(lasting, st, in.TakeOver, func(guest io.ReadWriteCloser) error {
		if refused = c.checkSame(st, nil); refused == nil {
			refused = c.tunnel(lasting, guest, true)
		}
		return refused
	})
	switch {
	case c.upgraded:
		return nil
	case refused != nil:
		return refused
	case croft.KindOf(err) == croft.Conflict:
		return c.noConsole(st)
	}
	return err
}

// noConsole is the answer about a console that a host refused to attach: the guest is off, or another client has it.
func (c *call) noConsole(st croft.Status) error {
	ctx, cancel := c.brief()
	defer cancel()
	now, err := c.Cloud.Scheduler.View.FindByID(ctx, st.Instance.ID)
	switch {
	case err != nil:
		return err
	case now.Observation != nil && now.Observation.State != croft.StateRunning &&
		now.Observation.State != croft.StateBooting:
		return api.NewProblem(api.BadState, "instance "+st.Instance.Name+" is "+schedule.Describe(&now)+
			": its console takes input only while it runs")
	}
	return api.NewProblem(api.InUse, "the console of "+st.Instance.Name+" is attached elsewhere; "+
		"takeover ends that attachment")
}

// handshake is an answer of the WebSocket library that is kept back. The connection cannot be taken over through it.
type handshake struct {
	header http.Header
	status int
	text   strings.Builder
}

func (h *handshake) Header() http.Header            { return h.header }
func (h *handshake) WriteHeader(status int)         { h.status = status }
func (h *handshake) Write(text []byte) (int, error) { return h.text.Write(text) }

// checkHandshake returns the refusal of a request that cannot become a WebSocket, before anything is attached for it.
// The library decides; it ends with 501, because the connection cannot be taken over here, if all else is right.
func (c *call) checkHandshake() error {
	h := &handshake{header: http.Header{}}
	_, _ = websocket.Accept(h, c.r, nil)
	code := api.BadRequest
	switch h.status {
	case http.StatusNotImplemented:
		return nil
	case http.StatusForbidden:
		code = api.ForbiddenVerb
	}
	return api.NewProblem(code, "the connection cannot become a WebSocket: "+
		strings.TrimPrefix(plain.Cut(strings.TrimSpace(h.text.String()), 200), "WebSocket protocol violation: "))
}

const (
	pingEvery  = 15 * time.Second
	pingWithin = 30 * time.Second
)

// lookForClient calls gone when the client answers no ping. Something else has to read from the socket meanwhile.
func lookForClient(ctx context.Context, socket *websocket.Conn, gone func()) {
	delay.Every(ctx, pingEvery, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, pingWithin)
		defer cancel()
		if err := socket.Ping(ctx); err != nil {
			gone()
		}
	})
}

// tunnel upgrades the connection to a WebSocket and copies bytes both ways until one side ends. checkHandshake has
// passed. A client that is pinged has to answer: one that is gone without a word would keep what it has attached. Pings
// are unanswered also while the far side takes no data, which is normal for a port of a guest.
func (c *call) tunnel(ctx context.Context, far io.ReadWriteCloser, pinged bool) error {
	c.upgraded = true // or refused, with an answer
	socket, err := websocket.Accept(c.w, c.r, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = far.Close() })()
	near := websocket.NetConn(ctx, socket, websocket.MessageBinary)
	var copying sync.WaitGroup
	if pinged {
		copying.Go(func() { lookForClient(ctx, socket, cancel) })
	}
	copying.Go(func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	})
	_, err = io.Copy(near, far)
	// near.Close would cut the connection under the reader, and the client see an error instead of the end.
	_ = socket.Close(websocket.StatusNormalClosure, "")
	cancel()
	copying.Wait()
	return err
}
