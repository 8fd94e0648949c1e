package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"croft"
	"croft/compute"
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

// usageTime limits the wait for a host that is asked for the usage of an instance.
const usageTime = 5 * time.Second

// instanceUsage returns what an instance used in the last hour and day.
func instanceUsage(ctx context.Context, c *call, _ api.InstanceNamed) (h compute.UsageHistory, err error) {
	st, err := c.find(ctx)
	if err != nil {
		return h, err
	}
	asking, cancel := context.WithTimeout(ctx, usageTime)
	defer cancel()
	h, err = c.Cloud.Monitor.History(asking, st)
	switch {
	case err == nil:
		return h, c.checkSame(st, nil)
	case c.caller.Operator(): // for others, errors do not name the host
		return h, err
	case errors.Is(err, croft.NotFound):
		return h, api.NewProblem(api.NotFound, "nothing is measured of "+st.Instance.Name+" yet")
	case errors.Is(err, croft.Unavailable), errors.Is(err, context.DeadlineExceeded):
		return h, api.NewProblem(api.BackendDown, "the host of "+st.Instance.Name+" does not answer at the moment, "+
			"and it alone knows what "+st.Instance.Name+" uses: try again later")
	}
	return h, err
}

// attachConsole connects the client to the console of the guest.
func attachConsole(c *call, in api.Console) error {
	return c.attach("console", func(ctx context.Context, st croft.Status, use func(io.ReadWriteCloser) error) error {
		return c.Cloud.Consoles.Attach(ctx, st, in.TakeOver, use)
	})
}

// attachScreen connects the client to the screen of the guest.
func attachScreen(c *call, in api.Screen) error {
	return c.attach("screen", func(ctx context.Context, st croft.Status, use func(io.ReadWriteCloser) error) error {
		if err := checkScreen(st); err != nil {
			return err
		}
		return c.Cloud.Consoles.AttachScreen(ctx, st, in.TakeOver, use)
	})
}

// attach connects the client to a part of the guest, such as its console, that one client at a time can have.
func (c *call) attach(part string, to func(context.Context, croft.Status, func(io.ReadWriteCloser) error) error) error {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return api.NewProblem(api.BadRequest, "a "+part+" is a WebSocket: ask for an upgrade of the connection")
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
	err = to(lasting, st, func(guest io.ReadWriteCloser) error {
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
		return c.unattached(st, part)
	}
	return err
}

// checkScreen returns the answer about an instance without a screen.
func checkScreen(st croft.Status) error {
	if st.Instance.Spec.Machine.Display == croft.DisplayVNC {
		return nil
	}
	return api.NewProblem(api.BadState, "instance "+st.Instance.Name+
		" has no screen: it was made without --display vnc")
}

// unattached is the answer about a console or a screen that a host refused to attach: the guest is off, or another
// client has it.
func (c *call) unattached(st croft.Status, part string) error {
	if err := c.isOff(st, part+" takes input"); err != nil {
		return err
	}
	return api.NewProblem(api.InUse, "the "+part+" of "+st.Instance.Name+" is attached elsewhere; "+
		"takeover ends that attachment")
}

// isOff returns the answer about an instance that does not run, so that it has no such part; nil: it runs.
func (c *call) isOff(st croft.Status, part string) error {
	ctx, cancel := c.brief()
	defer cancel()
	now, err := c.Cloud.Scheduler.View.FindByID(ctx, st.Instance.ID)
	switch {
	case err != nil:
		return err
	case now.Observation != nil && now.Observation.State != croft.StateRunning &&
		now.Observation.State != croft.StateBooting:
		return api.NewProblem(api.BadState, "instance "+st.Instance.Name+" is "+schedule.Describe(&now)+
			": its "+part+" only while it runs")
	}
	return nil
}

// maxPicture limits the picture of a screen that a host sends.
const maxPicture = 64 << 20

// getScreen sends a picture of the screen of the guest.
func getScreen(c *call, _ api.InstanceNamed) error {
	ctx, end := c.brief()
	defer end()
	st, err := c.find(ctx)
	if err == nil {
		err = checkScreen(st)
	}
	if err != nil {
		return err
	}
	begun := false
	err = c.Cloud.Consoles.Screen(ctx, st, func(from io.Reader) error {
		if err := c.checkSame(st, nil); err != nil {
			return err
		}
		begun = true
		c.begin()
		_, err := io.Copy(c.w, io.LimitReader(from, maxPicture))
		return err
	})
	switch {
	case begun: // only the end of the answer can show the client that it failed
		return nil
	case croft.KindOf(err) == croft.Conflict:
		return cmp.Or(c.isOff(st, "screen shows something"), err)
	}
	return err
}

// runCommand runs a command in the guest.
func runCommand(ctx context.Context, c *call, in api.GuestCommand) (out api.CommandResult, err error) {
	brief, cancel := c.brief()
	st, err := c.find(brief)
	cancel()
	if err != nil {
		return out, err
	}
	words := 0
	for _, word := range in.Command {
		words += len(word)
	}
	if len(in.Command) == 0 || in.Command[0] == "" ||
		slices.ContainsFunc(in.Command, func(word string) bool { return strings.ContainsRune(word, 0) }) {
		return out, api.NewProblem(api.BadRequest, "run a command in the guest: the command has no name, or a word with a "+
			"zero byte")
	}
	if words > compute.MaxGuestCommand || len(in.Stdin) > compute.MaxGuestInput {
		return out, api.NewProblem(api.BadRequest, fmt.Sprintf("the command is too long: its words may have %d "+
			"bytes together, each %d, and its stdin %d", compute.MaxGuestCommand, compute.MaxGuestWord,
			compute.MaxGuestInput))
	}
	lasting, end := c.lastingFor(st, nil)
	defer end()
	result, err := c.Cloud.Consoles.Run(lasting, st, compute.GuestCommand{Words: in.Command, Stdin: in.Stdin,
		Timeout: in.Timeout.Duration()}, func() error { return c.checkSame(st, nil) })
	_, guests := errors.AsType[*compute.GuestError](err)
	switch {
	case croft.KindOf(err) == croft.Conflict:
		if off := c.isOff(st, "agent answers"); off != nil {
			return out, off
		}
		return out, api.NewProblem(api.InUse, err.Error())
	case guests: // also for callers who learn nothing about hosts
		return out, api.NewProblem(api.CodeOf(err), err.Error())
	}
	return api.CommandResult{Exit: result.Exit, Stdout: text(result.Stdout), Stderr: text(result.Stderr),
		Cut: result.Cut, TimedOut: result.Late}, err
}

// text returns bytes that JSON has as a text, even if there are none.
func text(b []byte) []byte { return append([]byte{}, b...) }

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
