package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"croft"
	"croft/internal/durable"
)

// memory is the state that a watch keeps between runs. Times in it belong to one boot and one directory. After a boot
// of the machine, and in a copy of the directory, the watch forgets them, and every waiting time starts again.
//
// A leader recognizes its record by a key that is new in each record. So of two directories with the same memory, the
// one that replaces the record first leads, and the other finds a key that it does not know.
type memory struct {
	Key       string `json:"key"`            // of the last record that this controller made
	Next      string `json:"next,omitempty"` // of a later record whose outcome is not known
	ClockBoot string `json:"clock"`
	Place     string `json:"place"` // identifies the directory, to detect a copy
	// when the watch started in this boot, or noticed the end of a suspension
	Since   time.Duration      `json:"since"`
	Slept   time.Duration      `json:"slept,omitempty"` // how long the machine was suspended before Since
	Seen    string             `json:"seen"`            // the value of the record that was read last
	SeenAt  time.Duration      `json:"seen_at"`
	Leader  time.Duration      `json:"leader"`  // since when this controller leads, if it does
	Renewed time.Duration      `json:"renewed"` // when it started to make its last record
	Until   time.Duration      `json:"until"`   // until when it leads without a renewal; 0: it does not lead
	Nodes   map[string]*recall `json:"nodes"`
}

// recall is what the memory keeps about a node.
type recall struct {
	Silent bool            `json:"silent,omitempty"` // it had missed three beats in the last round
	Back   []time.Duration `json:"back,omitempty"`   // when it came back from silence
	OutAt  time.Duration   `json:"out_at,omitempty"`
	Fenced time.Duration   `json:"fenced,omitempty"` // when a fence said that it is off
}

func (s *Store) memoryFile() string { return filepath.Join(s.dir, "watch.json") }

// memory reads the stored memory. Without a file it returns an empty memory without a key.
func (s *Store) memory() (*memory, error) {
	m := &memory{}
	text, err := os.ReadFile(s.memoryFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the memory of the watch: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(text, m); err != nil {
			return nil, croft.Errorf(croft.Invalid,
				"%s is damaged: %w; remove it, and the watch starts from scratch",
				s.memoryFile(), err)
		}
	}
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	if m.ClockBoot != s.clock.Boot || m.Place != "" && m.Place != place {
		m = &memory{Key: m.Key, Next: m.Next, ClockBoot: s.clock.Boot, Since: s.clock.Now(), Slept: s.clock.slept()}
	}
	m.Place = place
	if m.Nodes == nil {
		m.Nodes = map[string]*recall{}
	}
	return m, nil
}

// place returns the identity of the store's directory; a copy has a different one.
func (s *Store) place() (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(s.dir, &stat); err != nil {
		return "", fmt.Errorf("read the memory of the watch: %s: %w", s.dir, err)
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino), nil
}

// remember stores the memory.
func (s *Store) remember(m *memory) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return durable.Write(s.memoryFile(), append(text, '\n'), 0o600)
}

// of returns the memory of a node, which it creates if needed.
func (m *memory) of(node string) *recall {
	if m.Nodes[node] == nil {
		m.Nodes[node] = &recall{}
	}
	return m.Nodes[node]
}

// owns reports whether this controller made a record, or tried to.
func (m *memory) owns(r LeaderRecord) bool {
	return r.Value != "" && r.Key != "" && (r.Key == m.Key || r.Key == m.Next)
}

// observe records the nodes that came back, and forgets old flaps and removed nodes.
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
