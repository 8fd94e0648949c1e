package gate

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"croft"
	"croft/internal/mailbox"
)

// session is the server's end of a stream. It ends with its request, when the client is silent or does not
// read, and when the caller is no longer admitted.
type session struct {
	visit
	server  *Server
	control *http.ResponseController
	ctx     context.Context
	end     context.CancelFunc

	mu    sync.Mutex // held while sending or setting the read deadline
	ended bool
	work  sync.WaitGroup
}

// open answers a request with a stream, which ends with its context.
func (s *Server) open(v visit) *session {
	o := &session{visit: v, server: s, control: http.NewResponseController(v.writer)}
	o.ctx, o.end = context.WithCancel(v.request.Context())
	v.writer.Header().Set("Content-Type", "application/x-ndjson")
	o.work.Go(o.beat)
	return o
}

// close ends the stream and waits for its goroutines.
func (o *session) close() {
	o.end()
	o.work.Wait()
}

// beat sends a heartbeat at once and then every few seconds, and checks that the caller is still admitted.
func (o *session) beat() {
	defer o.hangUp()
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		if caller, err := o.server.Caller(o.request); croft.KindOf(err) != croft.Unavailable &&
			(err != nil || caller != o.caller) {
			return
		}
		if o.send(line{}) != nil {
			return
		}
		select {
		case <-o.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// hangUp ends the stream, and a read in progress.
func (o *session) hangUp() {
	o.end()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	_ = o.control.SetReadDeadline(time.Now())
}

// send writes a line; an error if the client does not accept it.
func (o *session) send(l line) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.ctx.Err(); err != nil {
		return err
	}
	_ = o.control.SetWriteDeadline(time.Now().Add(silence))
	_, err := o.writer.Write(encode(l))
	if err == nil {
		err = o.control.Flush()
	}
	return err
}

// await sets the deadline for the client's next line.
func (o *session) await() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		_ = o.control.SetReadDeadline(time.Now().Add(silence))
	}
}

// lines calls each for every line of the client until the stream ends, the client is silent, or each returns false.
func (o *session) lines(each func(line) bool) {
	scanner := bufio.NewScanner(o.request.Body)
	scanner.Buffer(nil, maxLine)
	for o.await(); scanner.Scan(); o.await() {
		var l line
		if json.Unmarshal(scanner.Bytes(), &l) != nil || o.allowance.pay(o.ctx, len(scanner.Bytes())) != nil {
			return
		}
		cleanTexts(&l)
		if !each(l) {
			return
		}
	}
}

// watchOrders streams the host's orders. An order that is pending several times is sent once.
func (s *Server) watchOrders(v visit) error {
	if v.request.ProtoMajor < 2 {
		return errHTTP1
	}
	o := s.open(v)
	defer o.close()
	changed := mailbox.New[croft.InstanceID]()
	o.work.Go(func() {
		defer o.hangUp()
		_ = s.Orders.WatchOrders(o.ctx, o.caller, func(id croft.InstanceID) { changed.Put(id) })
	})
	o.work.Go(func() {
		_ = changed.Run(o.ctx, func(id croft.InstanceID) {
			if o.send(line{Instance: id}) != nil {
				o.hangUp()
			}
		})
	})
	o.lines(func(line) bool { return true }) // the client sends only heartbeats
	return nil
}

// errHTTP1: before HTTP/2 the two directions of a request do not overlap.
var errHTTP1 = croft.Errorf(croft.Invalid, "this method is called over HTTP/2")

// serve holds the host's agent lock and its life while the stream lasts.
func (s *Server) serve(v visit) error {
	if v.request.ProtoMajor < 2 {
		return errHTTP1
	}
	o := s.open(v)
	defer o.close()
	defer o.hangUp() // before waiting
	known, answers := make(chan struct{}), make(chan bool, 1)
	closeKnown := sync.OnceFunc(func() { close(known) })
	begun := false
	o.lines(func(l line) bool {
		switch {
		case !begun:
			if l.Agent == nil || l.Agent.Host != o.caller {
				return false
			}
			begun = true
			me := *l.Agent
			o.work.Go(func() {
				defer o.hangUp()
				_ = s.Registry.Serve(o.ctx, me, known, o.asker(answers))
			})
		case l.Known:
			closeKnown()
		case l.May != nil:
			select {
			case answers <- *l.May:
			default: // no question is pending
			}
		}
		return true
	})
	return nil
}

// asker reports the holder of the agent lock to the client and waits for its answer.
func (o *session) asker(answers <-chan bool) func(*croft.Agent) bool {
	return func(rival *croft.Agent) bool {
		select {
		case <-answers: // an answer without a question
		default:
		}
		if o.send(line{Lock: &agentLock{rival}}) != nil {
			o.hangUp()
			return false
		}
		select {
		case may := <-answers:
			return may
		case <-o.ctx.Done():
			return false
		}
	}
}
