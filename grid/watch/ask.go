package watch

import (
	"context"
	"sync"
	"time"

	"croft/grid/state"
)

const (
	asks   = 8                // machines that are dialed at once
	asking = 15 * time.Second // timeout of one dial
)

// answers are the answers of one round, by node.
type answers map[string]*answer

type answer struct {
	direct  Answer
	through map[string]Answer
	fenced  Answer
}

func (a answers) of(node string) *answer {
	if a[node] == nil {
		a[node] = &answer{through: map[string]Answer{}}
	}
	return a[node]
}

// fill copies the answers about a node into n.
func (a answers) fill(n *Node) {
	one := a[n.Name]
	if one == nil {
		return
	}
	n.Direct, n.Through = one.direct, one.through
	if one.fenced != Unknown {
		n.Fenced = one.fenced
	}
}

// dial asks all questions concurrently.
func (w *Watch) dial(ctx context.Context, s *state.State, list []Dial, a answers) {
	var mu sync.Mutex
	var all sync.WaitGroup
	turns := make(chan struct{}, asks)
	ask := func(do func(context.Context) Answer, keep func(Answer)) {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			limited, cancel := context.WithTimeout(ctx, asking)
			defer cancel()
			got := do(limited)
			if ctx.Err() != nil {
				got = Unknown // the dial was canceled
			}
			mu.Lock()
			defer mu.Unlock()
			keep(got)
		})
	}
	for _, d := range list {
		n, one := s.Node(d.Node), a.of(d.Node)
		ask(func(ctx context.Context) Answer { return w.Prober.Direct(ctx, n) }, func(got Answer) { one.direct = got })
		for _, via := range d.Via {
			other := s.Node(via)
			ask(func(ctx context.Context) Answer { return w.Prober.Through(ctx, other, n) },
				func(got Answer) { one.through[via] = got })
		}
	}
	all.Wait()
}

// fence asks the fence of dead nodes. A Yes is remembered and counts until the node sends a beat.
func (w *Watch) fence(ctx context.Context, s *state.State, nodes []string, a answers) {
	if w.Fence == nil || len(nodes) == 0 {
		return
	}
	if err := w.lead.confirm(ctx); err != nil {
		w.Log.Error("confirm before a fence that this controller leads", "err", err)
		return
	}
	for _, name := range nodes {
		got, err := w.Fence.Fence(ctx, s.Node(name))
		if err != nil {
			w.Log.Error("fence a node", "node", name, "err", err)
			got = No
		}
		a.of(name).fenced = got
		if got != Yes {
			continue
		}
		if err := w.lead.remember(func(m *memory) { m.of(name).Fenced = w.Store.clock.Now() }); err != nil {
			w.Log.Error("remember that a node is off", "node", name, "err", err)
		}
	}
}
