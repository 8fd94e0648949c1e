package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/control/api"
	"croft/internal/delay"
)

// retry is the pause before a broken stream is opened again, with jitter of half of it.
const retry = 500 * time.Millisecond

// maxEvent limits the length of a line of a stream.
const maxEvent = 4 << 20

// event is one server-sent event.
type event struct {
	kind string
	id   int64 // 0: none
	data []byte
}

// events passes the events of a stream to each, until the stream ends or each returns false or an error.
func (c *Client) events(ctx context.Context, path string, last int64, each func(event) (more bool, _ error)) error {
	header := http.Header{}
	if last != 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(last, 10))
	}
	return c.stream(ctx, http.MethodGet, path, nil, header, each)
}

// stream sends a request and passes the events of its answer to each.
func (c *Client) stream(ctx context.Context, method, path string, body []byte, header http.Header,
	each func(event) (more bool, _ error)) error {
	header.Set("Accept", "text/event-stream")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := c.send(ctx, method, path, body, header)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxEvent)
	next := event{}
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			one := next
			next = event{}
			if one.id == 0 && one.data == nil {
				continue // the empty line ends a comment
			}
			if more, err := each(one); !more || err != nil {
				return err
			}
		case name == "event":
			next.kind = value
		case name == "id":
			next.id, _ = strconv.ParseInt(value, 10, 64) // 0 if it is not a number
		case name == "data":
			next.data = []byte(value)
		}
	}
	if err := lines.Err(); err != nil {
		return c.unreachable(ctx, err)
	}
	return nil
}

// FollowEvents calls begun with the revision from which no change of an instance is missed. It then calls changed with
// all changes of one revision, one call at a time and in the order of revisions, until ctx ends or the cloud returns an
// error that is not temporary. A change may be reported twice. If changes were lost, it makes this first call again:
// then list again.
func (c *Client) FollowEvents(ctx context.Context, begun func(revision int64), changed func([]api.Change)) error {
	var last int64
	for {
		one := following{last: &last, begun: begun, changed: changed}
		err := c.events(ctx, "/v1/events", last, one.take)
		switch p, is := errors.AsType[*api.Problem](err); {
		case ctx.Err() != nil:
			return ctx.Err()
		case is && p.Code == api.Compacted:
			last = 0
			continue
		case err != nil && croft.KindOf(err) != croft.Unavailable && croft.KindOf(err) != "":
			return err
		}
		if delay.For(ctx, retry/2+rand.N(retry)) != nil {
			return ctx.Err()
		}
	}
}

// StreamEvents follows the changes after a position once, like FollowEvents, until the stream ends. A position that the
// cloud has forgotten is the error Compacted. changed gets the changes of one revision, and that revision.
func (c *Client) StreamEvents(ctx context.Context, in api.EventPosition, begun func(revision int64),
	changed func(revision int64, all []api.Change)) error {
	last, compacted := in.Last, false
	in.Last = 0
	one := following{last: &last, begun: begun}
	one.changed = func(all []api.Change) { changed(all[0].Revision, all) }
	err := c.events(ctx, pathOf("/v1/events", in), last, func(e event) (more bool, _ error) {
		compacted = e.kind == "compacted"
		return one.take(e)
	})
	if compacted {
		return api.NewProblem(api.Compacted, "the changes since then are forgotten: list the instances again")
	}
	return err
}

// following is the state of one stream of events.
type following struct {
	last    *int64       // all changes up to it were passed on
	some    []api.Change // changes of a revision whose last event has not arrived yet
	begun   func(int64)
	changed func([]api.Change)
}

// take collects the changes of a revision, and passes them on at the event that has an ID.
func (f *following) take(e event) (more bool, _ error) {
	switch e.kind {
	case "compacted":
		*f.last = 0
		return false, nil
	case "":
		if *f.last == 0 {
			f.begun(e.id)
		}
	case "instance":
		var c api.Change
		if err := json.Unmarshal(e.data, &c); err != nil {
			return false, croft.Errorf(croft.Unavailable, "an event of the cloud cannot be read: %w", err)
		}
		f.some = append(f.some, c)
	}
	if e.id == 0 {
		return true, nil
	}
	if len(f.some) > 0 {
		f.changed(f.some)
		f.some = nil
	}
	*f.last = e.id
	return true, nil
}
