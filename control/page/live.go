package page

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/control/api"
	"croft/internal/delay"
	"croft/internal/lazyregexp"
	"croft/internal/plain"
	"croft/tenant/objects"
)

// Maximum numbers of concurrent streams.
const (
	streamsOfSession = 24
	streamsOfCaller  = 256
	streamsOfServer  = 1024
)

// streams counts the streams that are open.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by session, and by caller
}

// begin counts a stream of a session until end is called. All sessions of a caller together have a limit too, so that
// one project cannot use up the streams of the server. Unavailable: there are too many.
func (s *streams) begin(session, caller string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[session] >= streamsOfSession:
		return nil, croft.Errorf(croft.Unavailable, "%d pages of this session follow changes already: close some",
			streamsOfSession)
	case s.of[caller] >= streamsOfCaller:
		return nil, croft.Errorf(croft.Unavailable, "%d pages of the project follow changes at this server already: "+
			"close some", streamsOfCaller)
	case s.all >= streamsOfServer:
		return nil, croft.Errorf(croft.Unavailable, "%d pages follow changes at this server already: reload for news",
			streamsOfServer)
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[session]++
	s.of[caller]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		for _, key := range []string{session, caller} {
			if s.of[key]--; s.of[key] == 0 {
				delete(s.of, key)
			}
		}
	}, nil
}

// lasting returns the context of an answer to a page of the server's own origin that lasts longer than other views, and
// counts the answer until end is called, once. Denied, Unavailable.
func (v *visit) lasting() (ctx context.Context, end func(), err error) {
	if err := ownOrigin(v.r); err != nil {
		return nil, nil, err
	}
	end, err = v.streams.begin("session "+v.secret.Forms(), v.payer())
	return from(v.r), end, err
}

// payer names who has the streams of a caller: the tenant, with all projects below, or the user of a caller without a
// project.
func (v *visit) payer() string {
	if v.caller.Project == "" {
		return "user " + v.caller.User
	}
	return "project " + string(v.caller.Project.Root())
}

// heartbeat is the interval of the events that show that a stream is alive, and at which its session is checked. The
// scripts of the page notice when they miss some.
var heartbeat = 10 * time.Second // tests shorten it

// followInstances streams the rows of instances that change. A browser that was away resumes after the last revision
// that it has. The event reload says that changes were lost.
func (v *visit) followInstances() error {
	in := api.EventPosition{InProject: api.InProject{Project: v.project}}
	if text := v.lastSeen(); text != "" {
		last, err := strconv.ParseInt(text, 10, 64)
		if err != nil || last < 1 {
			return croft.Errorf(croft.Invalid, "the last event that was seen is %.40q: it is a revision", text)
		}
		in.Last = last
	}
	list := instanceList{Operator: v.caller.Operator(), Picks: v.mayChange(),
		Projects: v.project == "" && v.caller.Operator()}
	matches, err := v.matching(v.chosenBy(v.r.URL.Query()))
	if err != nil {
		return err
	}
	return v.stream(func(ctx context.Context, e *stream, cancel func()) error {
		begun := func(revision int64) { _ = e.send(fmt.Sprintf("id: %d\nevent: live\ndata: {}\n\n", revision)) }
		return v.client.StreamEvents(ctx, in, begun, func(revision int64, all []api.Change) {
			var b strings.Builder
			for n, change := range all {
				text, err := list.change(change, matches(ctx, change))
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
	})
}

// matching returns whether a list with a filter has a changed instance. Properties and tags are not in events: for a
// filter of them the API is asked. Invalid.
func (v *visit) matching(in api.InstanceFilter) (func(context.Context, api.Change) bool, error) {
	terms, err := in.Terms.Matching(reflect.TypeFor[api.Instance]())
	if err != nil {
		return nil, err
	}
	if _, err := objects.ParseFilter(in.Filter); err != nil {
		return nil, err
	}
	return func(ctx context.Context, c api.Change) bool {
		if c.Gone || terms != nil && !terms(c.Instance) {
			return false
		}
		if len(in.Filter) == 0 {
			return true
		}
		one := api.InstanceFilter{InProject: in.InProject, Filtered: in.Filtered,
			Terms: api.Terms{Name: []string{string(c.ID)}}}
		list, err := v.client.ListInstances(ctx, one)
		return err != nil || len(list.Instances) > 0 // it is announced if in doubt
	}, nil
}

// lastSeen returns the ID of the last event that a browser has: of the same stream, or of one before it.
func (v *visit) lastSeen() string {
	return cmp.Or(v.r.Header.Get("Last-Event-ID"), v.r.URL.Query().Get("seen"))
}

// stream answers with events until run returns or the browser is gone. A refusal by run is an event, too.
func (v *visit) stream(run func(ctx context.Context, e *stream, cancel func()) error) error {
	ctx, end, err := v.lasting()
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &stream{w: v.w, control: http.NewResponseController(v.w)}
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.WriteHeader(http.StatusOK)
	_ = e.send("retry: 2000\n\n") // the stream notices that a browser is gone
	var beat sync.WaitGroup
	defer beat.Wait()
	defer cancel()
	beat.Go(func() { v.beat(ctx, e, cancel) })
	err = run(ctx, e, cancel)
	if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.Compacted {
		_ = e.send("event: reload\ndata: {}\n\n")
	} else if err != nil && ctx.Err() == nil {
		says, err := json.Marshal(plain.Line(err.Error()))
		if err == nil {
			_ = e.send("event: refused\ndata: " + string(says) + "\n\n")
		}
	}
	return nil
}

// liveRow is a row of a list that is read again and again, because the API has no events about it.
type liveRow struct{ ID, HTML string }

// rowEvent is the data of an event about a row.
type rowEvent struct {
	ID   string `json:"id"`
	Gone bool   `json:"gone,omitempty"`
	// The list does not have it, because it has a filter.
	Other bool   `json:"other,omitempty"`
	HTML  string `json:"html,omitempty"`
}

// readEvery is the shortest interval at which a list is read again.
var readEvery = 2 * time.Second // tests shorten it

// readPart is the largest part of the time that a stream spends with reading, as its inverse.
const readPart = 20

var timeText = lazyregexp.New(`>[^<]*</time>`)

// followRows streams the rows of a list that change. A browser that was away gets all rows, and the IDs of the
// existing ones.
func (v *visit) followRows(read func(*visit) ([]liveRow, error)) error {
	last := v.lastSeen()
	return v.stream(func(ctx context.Context, e *stream, _ func()) error {
		known, first := map[string]string{}, true
		for {
			begun := time.Now()
			rows, err := v.readRows(ctx, read)
			if err != nil {
				return err
			}
			text, mark, fresh := "", markOf(rows), map[string]string{}
			all := first && mark != last
			for _, row := range rows {
				fresh[row.ID] = timeless(row.HTML)
				if all || !first && known[row.ID] != fresh[row.ID] {
					text += rowText(rowEvent{ID: row.ID, HTML: row.HTML})
				}
			}
			for id := range known {
				if _, still := fresh[id]; !still {
					text += rowText(rowEvent{ID: id, Gone: true})
				}
			}
			if all {
				ids, err := json.Marshal(slices.Sorted(maps.Keys(fresh)))
				if err != nil {
					return err
				}
				text += "event: rows\ndata: " + string(ids) + "\n\n"
			}
			if text != "" || first {
				text += "id: " + mark + "\nevent: live\ndata: {}\n\n"
			}
			if text != "" && e.send(text) != nil {
				return nil
			}
			known, first = fresh, false
			if delay.For(ctx, max(readEvery, readPart*time.Since(begun))) != nil {
				return nil
			}
		}
	})
}

// readRows reads the rows of a list.
func (v *visit) readRows(ctx context.Context, read func(*visit) ([]liveRow, error)) ([]liveRow, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	now := *v
	now.ctx = ctx
	return read(&now)
}

// timeless is the text of a row without the ages in it.
func timeless(html string) string { return timeText.Get().ReplaceAllString(html, "></time>") }

// markOf identifies what rows show.
func markOf(rows []liveRow) string {
	sum := sha256.New()
	for _, row := range rows {
		_, _ = io.WriteString(sum, row.ID+"\x00"+timeless(row.HTML)+"\x00") // never fails
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

func rowText(data rowEvent) string {
	text, err := json.Marshal(data)
	if err != nil {
		return ""
	}
	return "event: row\ndata: " + string(text) + "\n\n"
}

// rendered renders a row with a template of a page.
func rendered(page, template, id string, data any) (liveRow, error) {
	var b strings.Builder
	err := pages[page].ExecuteTemplate(&b, template, data)
	return liveRow{id, string(visible([]byte(b.String())))}, err
}

// rows returns the rows of a list as they are shown.
func (l listing) rows(v *visit) (all []liveRow, err error) {
	list, err := l.parts(v)
	if err != nil {
		return nil, err
	}
	return rowsOf(identified(list))
}

func rowsOf(list []part) (all []liveRow, err error) {
	for _, p := range list {
		for _, one := range p.Rows {
			row, err := rendered("things", "thing", one.ID, one)
			if err != nil {
				return nil, err
			}
			all = append(all, row)
		}
	}
	return all, nil
}

func (l listing) follow(v *visit) error { return v.followRows(l.rows) }

// change returns the data of the event about a change of an instance that matches the filter of the list, or does not.
func (d *instanceList) change(c api.Change, matches bool) ([]byte, error) {
	data := rowEvent{ID: string(c.ID), Gone: c.Gone, Other: !matches && !c.Gone}
	if !c.Gone {
		var b strings.Builder
		if err := pages["instances"].ExecuteTemplate(&b, "row", d.row(c.Instance)); err != nil {
			return nil, err
		}
		data.HTML = string(visible([]byte(b.String())))
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
		_, err := v.credentials(ctx, v.secret)
		if croft.KindOf(err) == croft.Denied || e.send("event: beat\ndata: {}\n\n") != nil {
			end()
			return
		}
	}
}
