package gate

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"croft"
)

// orders holds the instances that the host was woken for and that had an order at its last look. An order that
// disappears while the connection is lost is woken too.
type orders struct {
	mu  sync.Mutex
	ids map[croft.InstanceID]bool
}

func (o *orders) add(id croft.InstanceID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ids == nil {
		o.ids = map[croft.InstanceID]bool{}
	}
	o.ids[id] = true
}

func (o *orders) remove(id croft.InstanceID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.ids, id)
}

func (o *orders) all() []croft.InstanceID {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []croft.InstanceID
	for id := range o.ids {
		all = append(all, id)
	}
	return all
}

// WatchOrders implements compute.Orders.
func (c *Client) WatchOrders(ctx context.Context, _ croft.HostID, wake func(croft.InstanceID)) error {
	s := keeper{client: c, open: func(ctx context.Context, k *connection, heard func()) {
		wakeAll := sync.OnceFunc(func() {
			for _, id := range c.known.all() {
				wake(id)
			}
		})
		c.converse(ctx, k, "WatchOrders", line{}, nil, func(l line, _ *said) {
			heard()
			wakeAll()
			if l.Instance != "" {
				c.known.add(l.Instance)
				wake(l.Instance)
			}
		})
	}}
	return s.run(ctx)
}

// follow calls each for every line of a stream until it ends or is silent. each may block.
func (c *Client) follow(ctx context.Context, k *connection, name string, body io.Reader, each func(line)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := time.AfterFunc(silence, cancel)
	defer patience.Stop()
	answer, err := c.post(ctx, k, name, body)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	scanner := bufio.NewScanner(answer.Body)
	scanner.Buffer(nil, maxLine)
	for patience.Reset(silence); scanner.Scan(); patience.Reset(silence) {
		var l line
		if json.Unmarshal(scanner.Bytes(), &l) != nil {
			return
		}
		patience.Stop()
		each(l)
	}
}

// Serve implements compute.Registry.
func (c *Client) Serve(ctx context.Context, me croft.Agent, known <-chan struct{},
	locked func(rival *croft.Agent) bool) error {
	s := keeper{client: c, open: func(ctx context.Context, k *connection, heard func()) {
		c.converse(ctx, k, "Serve", line{Agent: &me}, known, func(l line, out *said) {
			heard()
			if l.Lock != nil {
				out.answer(locked(l.Lock.Rival))
			}
		})
	}}
	return s.run(ctx)
}

// converse opens a stream with a first line and calls hear for every line of the server, until the stream ends
// or is silent.
func (c *Client) converse(ctx context.Context, k *connection, name string, first line, known <-chan struct{},
	hear func(line, *said)) {
	ctx, cancel := context.WithCancel(ctx)
	body, out := io.Pipe()
	s := &said{ctx: ctx, out: out, answers: make(chan bool)}
	var saying sync.WaitGroup
	saying.Go(func() {
		defer cancel()
		s.say(first, known)
		_ = out.Close()
	})
	c.follow(ctx, k, name, body, func(l line) { hear(l, s) })
	cancel()
	_ = body.Close() // ends a write in progress
	saying.Wait()
}

// said is the client's end of a stream.
type said struct {
	ctx     context.Context
	out     io.Writer
	answers chan bool
}

// answer sends whether this agent may have the agent lock.
func (s *said) answer(may bool) {
	select {
	case s.answers <- may:
	case <-s.ctx.Done():
	}
}

// say sends the first line, heartbeats, answers, and that the host is known.
func (s *said) say(next line, known <-chan struct{}) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		if _, err := s.out.Write(encode(next)); err != nil {
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			next = line{}
		case may := <-s.answers:
			next = line{May: &may}
		case <-known:
			known, next = nil, line{Known: true}
		}
	}
}
