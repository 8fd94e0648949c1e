package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/control/api"
)

// Maximum numbers of concurrent streams.
const (
	streamsOfSession = 24
	streamsOfServer  = 1024
)

// streams counts the streams that are open.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by session
}

// begin counts a stream of a session until end is called. Unavailable: there are too many.
func (s *streams) begin(session string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[session] >= streamsOfSession:
		return nil, croft.Errorf(croft.Unavailable, "%d pages of this session follow changes already: close some",
			streamsOfSession)
	case s.all >= streamsOfServer:
		return nil, croft.Errorf(croft.Unavailable, "%d pages follow changes at this server already: reload for news",
			streamsOfServer)
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[session]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.of[session]--; s.of[session] == 0 {
			delete(s.of, session)
		}
	}, nil
}

// lasting returns the context of an answer to a page of the server's own origin that lasts longer than other views, and
// counts the answer until end is called, once. Denied, Unavailable.
func (v *visit) lasting() (ctx context.Context, end func(), err error) {
	if err := ownOrigin(v.r); err != nil {
		return nil, nil, err
	}
	end, err = v.streams.begin(v.secret.Forms())
	return from(v.r), end, err
}

// heartbeat is the interval of the comments that show that a stream is alive, and at which its session is checked.
var heartbeat = 10 * time.Second // tests shorten it

// followInstances streams the rows of instances that change. A browser that was away resumes after the last revision
// that it has. The event reload says that changes were lost.
func (v *visit) followInstances() error {
	ctx, end, err := v.lasting()
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := api.EventPosition{InProject: api.InProject{Project: v.project}}
	if text := v.r.Header.Get("Last-Event-ID"); text != "" {
		last, err := strconv.ParseInt(text, 10, 64)
		if err != nil || last < 1 {
			return croft.Errorf(croft.Invalid, "the header Last-Event-ID is %.40q: it is a revision", text)
		}
		in.Last = last
	}
	e := &stream{w: v.w, control: http.NewResponseController(v.w)}
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.WriteHeader(http.StatusOK)
	_ = e.send("retry: 2000\n\n") // the stream notices that a browser is gone
	var beat sync.WaitGroup
	defer beat.Wait()
	defer cancel()
	beat.Go(func() { v.beat(ctx, e, cancel) })
	list := instanceList{Operator: v.caller.Operator(), Picks: v.mayChange(),
		Projects: v.project == "" && v.caller.Operator()}
	begun := func(revision int64) { _ = e.send(fmt.Sprintf("id: %d\nevent: live\ndata: {}\n\n", revision)) }
	err = v.client.StreamEvents(ctx, in, begun, func(revision int64, all []api.Change) {
		var b strings.Builder
		for n, change := range all {
			text, err := list.change(change)
			if err != nil {
				v.log.Warn("a row cannot be shown", "err", err)
				continue
			}
			if n == len(all)-1 { // a browser that has this revision has all of it
				fmt.Fprintf(&b, "id: %d\n", revision)
			}
			fmt.Fprintf(&b, "event: row\ndata: %s\n\n", text)
		}
		if e.send(b.String()) != nil {
			cancel()
		}
	})
	if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.Compacted {
		_ = e.send("event: reload\ndata: {}\n\n")
	} else if err != nil && ctx.Err() == nil {
		says, err := json.Marshal(err.Error())
		if err == nil {
			_ = e.send("event: refused\ndata: " + string(says) + "\n\n")
		}
	}
	return nil
}

// change returns the data of the event about a change.
func (d *instanceList) change(c api.Change) ([]byte, error) {
	data := struct {
		ID   croft.InstanceID `json:"id"`
		Gone bool             `json:"gone,omitempty"`
		HTML string           `json:"html,omitempty"`
	}{ID: c.ID, Gone: c.Gone}
	if !c.Gone {
		var b strings.Builder
		if err := pages["instances"].ExecuteTemplate(&b, "row", d.row(c.Instance)); err != nil {
			return nil, err
		}
		data.HTML = b.String()
	}
	return json.Marshal(data)
}

// stream is an answer of server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	mu      sync.Mutex
}

func (e *stream) send(text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := fmt.Fprint(e.w, text); err != nil {
		return err
	}
	return e.control.Flush()
}

// beat shows that a stream is alive, and ends it when the browser has gone or its session has ended. The API
// ends it when the credentials do not count any more.
func (v *visit) beat(ctx context.Context, e *stream, end func()) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := v.sessions.Credentials(ctx, v.secret)
		if croft.KindOf(err) == croft.Denied || e.send(": alive\n\n") != nil {
			end()
			return
		}
	}
}
