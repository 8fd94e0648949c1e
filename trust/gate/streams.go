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

// session is a stream at its server's end. It ends where its request does, where the
// other end is silent or does not listen, and where the caller is no longer welcome.
type session struct {
	visit
	server  *Server
	control *http.ResponseController
	ctx     context.Context
	end     context.CancelFunc

	mu    sync.Mutex // held while something is sent, or the deadline of reading is set
	ended bool
	work  sync.WaitGroup
}

// open answers a request with a stream. The stream ends with its context.
func (s *Server) open(v visit) *session {
	o := &session{visit: v, server: s, control: http.NewResponseController(v.writer)}
	o.ctx, o.end = context.WithCancel(v.request.Context())
	v.writer.Header().Set("Content-Type", "application/x-ndjson")
	o.work.Go(o.beat)
	return o
}

// close ends the stream and waits for what belongs to it.
func (o *session) close() {
	o.end()
	o.work.Wait()
}

// beat says that this end lives, at once and then every few seconds, and asks whether
// the other one is still welcome.
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

// hangUp ends the stream, and with it a reading under way.
func (o *session) hangUp() {
	o.end()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	_ = o.control.SetReadDeadline(time.Now())
}

// send writes a line, unless the other end does not take it.
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

// await has the other end say something within the time.
func (o *session) await() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		_ = o.control.SetReadDeadline(time.Now().Add(silence))
	}
}

// lines calls each for every line of the other end until it ends, is silent, or each
// has enough.
func (o *session) lines(each func(line) bool) {
	scanner := bufio.NewScanner(o.request.Body)
	scanner.Buffer(nil, maxLine)
	for o.await(); scanner.Scan(); o.await() {
		var l line
		if json.Unmarshal(scanner.Bytes(), &l) != nil || o.allowance.pay(o.ctx, len(scanner.Bytes())) != nil ||
			!each(l) {
			return
		}
	}
}

// watchOrders tells the host of its orders. What it has not taken yet is told once.
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
	o.lines(func(line) bool { return true }) // it only says that it lives
	return nil
}

// errHTTP1: in older versions the two directions of a request do not overlap.
var errHTTP1 = croft.Errorf(croft.Invalid, "this method is called over HTTP/2")

// serve lets the host have its agent lock and its life while the stream lasts.
func (s *Server) serve(v visit) error {
	if v.request.ProtoMajor < 2 {
		return errHTTP1
	}
	o := s.open(v)
	defer o.close()
	defer o.hangUp() // before what is waited for
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
			cleanAgent(&me)
			o.work.Go(func() {
				defer o.hangUp()
				_ = s.Registry.Serve(o.ctx, me, known, o.asker(answers))
			})
		case l.Known:
			closeKnown()
		case l.May != nil:
			select {
			case answers <- *l.May:
			default: // nobody asked
			}
		}
		return true
	})
	return nil
}

// asker tells the other end who holds the agent lock and waits for its answer.
func (o *session) asker(answers <-chan bool) func(*croft.Agent) bool {
	return func(rival *croft.Agent) bool {
		select {
		case <-answers: // to what was not asked
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
