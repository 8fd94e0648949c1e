package revlock

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"croft"
	"croft/internal/durable"
	"croft/internal/filelock"
)

// A Memory is a local file with the greatest epoch that was seen of each node. It detects that a node's state went
// back, for example because an old disk was put in: such a node would accept a revision that is older than the one that
// others rely on.
type Memory struct{ File string }

func (m Memory) read() map[string]int64 {
	epochs := map[string]int64{}
	if text, err := os.ReadFile(m.File); err == nil {
		_ = json.Unmarshal(text, &epochs) // an unreadable file counts as empty
	}
	return epochs
}

// Check compares a node's epoch with the remembered one. Conflict: it is smaller.
func (m Memory) Check(node string, epoch int64) error {
	if had := m.read()[node]; epoch < had {
		return croft.Errorf(croft.Conflict, "%s had the epoch %d when it was last seen from here, and has %d: its state went "+
			"back or was lost (an old disk, a live system that restarted); look at it, then give --adopt", node, had, epoch)
	}
	return nil
}

// Note remembers the epochs of nodes. It is safe for concurrent processes.
func (m Memory) Note(epochs map[string]int64) error {
	if err := os.MkdirAll(filepath.Dir(m.File), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(m.File+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := filelock.TakeWithin(lock, time.Minute); err != nil {
		return fmt.Errorf("lock %s: %w", m.File, err)
	}
	all := m.read()
	for node, epoch := range epochs {
		all[node] = epoch
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return durable.Write(m.File, text, 0o600)
}
