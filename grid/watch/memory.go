package watch

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"croft"
	"croft/internal/durable"
)

// memory is what a watch remembers from one run to the next. Moments are of one boot; in another one they are
// forgotten, and everything that waits for time to pass waits anew.
type memory struct {
	Key       string             `json:"key"` // of this directory, for ever: by it a leader knows itself
	ClockBoot string             `json:"clock_boot"`
	Since     time.Duration      `json:"since"` // when the watch first looked in this boot
	Seen      string             `json:"seen"`  // the leader's mark that was seen last
	SeenAt    time.Duration      `json:"seen_at"`
	Leader    time.Duration      `json:"leader"` // since when this controller leads, if it does
	Until     time.Duration      `json:"until"`  // until when it does without asking again; 0: it does not
	Nodes     map[string]*recall `json:"nodes"`
}

// recall is what is remembered of a node.
type recall struct {
	Silent bool            `json:"silent,omitempty"` // it missed three beats when it was looked at last
	Back   []time.Duration `json:"back,omitempty"`   // when it came back
	OutAt  time.Duration   `json:"out_at,omitempty"`
	Fenced time.Duration   `json:"fenced,omitempty"` // when a fence said that it is off
}

func (s *Store) memoryFile() string { return filepath.Join(s.dir, "watch.json") }

// memory reads what is remembered. Nothing yet is an empty memory without a key.
func (s *Store) memory() (*memory, error) {
	m := &memory{}
	text, err := os.ReadFile(s.memoryFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what the watch remembers: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(text, m); err != nil {
			return nil, croft.Errorf(croft.Invalid,
				"%s is not what the watch wrote: %w; remove it, and the watch begins anew",
				s.memoryFile(), err)
		}
	}
	if m.ClockBoot != s.clock.Boot {
		m = &memory{Key: m.Key, ClockBoot: s.clock.Boot, Since: s.clock.Now()}
	}
	if m.Nodes == nil {
		m.Nodes = map[string]*recall{}
	}
	return m, nil
}

// remember writes the memory.
func (s *Store) remember(m *memory) error {
	m.Key = cmp.Or(m.Key, rand.Text())
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return durable.Write(s.memoryFile(), append(text, '\n'), 0o600)
}

// of returns what is remembered of a node.
func (m *memory) of(node string) *recall {
	if m.Nodes[node] == nil {
		m.Nodes[node] = &recall{}
	}
	return m.Nodes[node]
}

// observe notes who came back, and forgets what is long ago or gone.
func (m *memory) observe(now time.Duration, r Rules, nodes []Node) {
	known := map[string]bool{}
	for _, n := range nodes {
		known[n.Name] = true
		one := m.of(n.Name)
		silent := n.Beats && now-n.Last >= missed*r.Every
		if one.Silent && !silent {
			one.Back = append(one.Back, now)
		}
		one.Silent = silent
		one.Back = slices.DeleteFunc(one.Back, func(at time.Duration) bool { return now-at >= flapFor*r.Grace })
	}
	for name := range m.Nodes {
		if !known[name] {
			delete(m.Nodes, name)
		}
	}
}
