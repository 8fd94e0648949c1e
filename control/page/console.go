package page

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"croft"
	"croft/control/api"
	"croft/internal/delay"
	"croft/internal/plain"
)

// mostHistory is how much of the end of the log a terminal starts with.
const mostHistory = 64 << 10

// terminal is what the page of a console or a screen shows.
type terminal struct {
	Instance api.Instance
	Socket   string // address of the WebSocket
	InUse    api.Code
	Lines    []string // for browsers without scripts
	History  string   // the same, in base64, for the terminal
	Picture  string
	Says     string // why there is no history or picture
}

// Off reports whether the guest is off.
func (d terminal) Off() bool {
	return d.Instance.Reported() == croft.StateStopped || d.Instance.Reported() == croft.StateFailed
}

// showConsole shows a terminal that is attached to the console, or the log to browsers without scripts.
func (v *visit) showConsole() error {
	i, err := v.client.GetInstance(v.ctx, api.InstanceShown{InstanceNamed: v.named()})
	if err != nil {
		return err
	}
	v.project = i.Project
	d := terminal{Instance: i, InUse: api.InUse, Socket: v.link("/instances/" + string(i.ID) + "/console/socket")}
	tail, _, err := v.readOutput(mostHistory)
	if err != nil { // a terminal without a history is useful still
		d.Says = err.Error()
	}
	d.Lines, d.History = linesOf(tail), base64.StdEncoding.EncodeToString(tail)
	return v.show(http.StatusOK, "console", "Console of "+i.Name, d)
}

// withPictures is the policy for the page of a screen, whose pictures arrive in the messages of its WebSocket.
var withPictures = strings.Replace(policy, "img-src 'self'", "img-src 'self' data:", 1)

// showScreen shows the screen of a guest, or a picture of it to browsers without scripts.
func (v *visit) showScreen() error {
	i, err := v.client.GetInstance(v.ctx, api.InstanceShown{InstanceNamed: v.named()})
	if err != nil {
		return err
	}
	if i.Machine.Display != croft.DisplayVNC {
		return croft.Errorf(croft.Conflict, "instance %s has no screen: it was made without --display vnc", i.Name)
	}
	v.project = i.Project
	v.w.Header().Set("Content-Security-Policy", withPictures)
	at := "/instances/" + string(i.ID) + "/screen"
	return v.show(http.StatusOK, "screen", "Screen of "+i.Name, terminal{Instance: i, InUse: api.InUse,
		Socket: v.link(at + "/socket"), Picture: v.link(at + "/picture")})
}

// showPicture sends a picture of the screen.
func (v *visit) showPicture() error {
	return v.client.ReadScreen(v.ctx, v.named(), func(picture io.Reader) error {
		v.w.Header().Set("Content-Type", "image/png")
		_, _ = io.Copy(v.w, picture) // ignore browsers that disconnected, and hosts: the browser sees an end too early
		return nil
	})
}

func (v *visit) attachConsole() error {
	return v.attach(func(ctx context.Context, use func(io.ReadWriteCloser) error) error {
		in := api.Console{InstanceNamed: v.named(), TakeOver: v.r.URL.Query().Get("takeover") == "yes"}
		return v.client.AttachConsole(ctx, in, use)
	})
}

func (v *visit) attachScreen() error {
	return v.attach(func(ctx context.Context, use func(io.ReadWriteCloser) error) error {
		in := api.Screen{InstanceNamed: v.named(), TakeOver: v.r.URL.Query().Get("takeover") == "yes"}
		return v.client.AttachScreen(ctx, in, use)
	})
}

// Codes with which the WebSocket of a console ends, besides the ones of the protocol.
const (
	closeRefused websocket.StatusCode = 4000 // the reason starts with the kind of the error
	closeEnded   websocket.StatusCode = 4001 // the session has ended
)

// attach connects the browser to a guest through a WebSocket, which tells the browser why it ends: scripts do not see
// the answer to a WebSocket that is refused.
func (v *visit) attach(to func(ctx context.Context, use func(io.ReadWriteCloser) error) error) error {
	if v.r.Header.Get("Origin") == "" {
		return croft.Errorf(croft.Denied, "only the page itself attaches to guests: this request is from nowhere")
	}
	ctx, end, err := v.lasting()
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	socket, err := websocket.Accept(v.w, v.r, nil)
	if err != nil {
		return nil // it is answered
	}
	defer func() { _ = socket.CloseNow() }() // an error says that it is closed already
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { v.watch(ctx, socket, cancel) })
	err = to(ctx, func(guest io.ReadWriteCloser) error {
		near := websocket.NetConn(ctx, socket, websocket.MessageBinary)
		work.Go(func() {
			_, _ = io.Copy(guest, near)
			_ = guest.Close() // ends the other direction
		})
		_, _ = io.Copy(near, guest)
		return nil
	})
	code, reason := closing(err)
	_ = socket.Close(code, reason) // an error says that the browser has gone
	return nil
}

// closing returns how a WebSocket ends after an error. Reasons have at most 123 bytes.
func closing(err error) (websocket.StatusCode, string) {
	switch {
	case err == nil:
		return websocket.StatusNormalClosure, ""
	case ended(err):
		return closeEnded, ""
	}
	kind := api.CodeOf(err)
	if p, is := errors.AsType[*api.Problem](err); is {
		kind = p.Code
	}
	says := plain.Line(string(kind) + " " + err.Error())
	return closeRefused, strings.ToValidUTF8(says[:min(len(says), 120)], "")
}

// watch ends a WebSocket when its browser answers no ping, or when its session has ended.
func (v *visit) watch(ctx context.Context, socket *websocket.Conn, end func()) {
	delay.Every(ctx, heartbeat, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		if _, err := v.credentials(ctx, v.secret); croft.KindOf(err) == croft.Denied {
			_ = socket.Close(closeEnded, "") // an error says that the browser has gone
			end()
			return
		}
		// Scripts see no pings: the text tells them that the connection lives. Data of the guest is binary.
		if socket.Ping(ctx) != nil || socket.Write(ctx, websocket.MessageText, []byte("beat")) != nil {
			end()
		}
	})
}
