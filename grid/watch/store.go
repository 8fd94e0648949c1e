package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"croft"
	"croft/internal/durable"
	"croft/internal/filelock"
	"croft/internal/lazyregexp"
)

// A Store is the directory in which a controller keeps the beats that it received and its memory. Receivers of beats
// and the watch share it. A node's record is read and written under the node's lock.
type Store struct {
	dir   string
	clock Clock
}

var nodeForm = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// record is the stored last beat of a node.
type record struct {
	Beat
	ClockBoot string        `json:"clock"` // the boot of this controller
	Arrived   time.Duration `json:"arrived"`
	Granted   time.Duration `json:"granted"`

	// Before is the count of the last beat, from the same boot of the node, that is known to have arrived before this
	// controller started to make its leader's record. 0: none is known.
	Before uint64 `json:"before,omitempty"`
}

// OpenStore opens the store in dir, and creates the directory if needed, with no access for other users.
func OpenStore(dir string, clock Clock) (*Store, error) {
	s := &Store{dir, clock}
	for _, sub := range []string{"beats", "revoked"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of the watch: %w", err)
		}
	}
	return s, nil
}

// Path returns the path of a file in the store's directory.
func (s *Store) Path(name string) string { return filepath.Join(s.dir, name) }

// locked calls do while the node's record is locked. Conflict: another process has had the lock for seconds.
func (s *Store) locked(node string, do func() error) error {
	if !nodeForm.MatchString(node) {
		return croft.Errorf(croft.Invalid, "%q is no name of a node: it has 1 to 63 of a-z 0-9 . _ -", node)
	}
	file, err := os.OpenFile(filepath.Join(s.dir, "beats", node+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock the record of %s: %w", node, err)
	}
	defer file.Close()
	if err := filelock.Take(file); errors.Is(err, filelock.ErrTaken) {
		return croft.Errorf(croft.Conflict, "lock the record of %s: %w", node, err)
	} else if err != nil {
		return fmt.Errorf("lock the record of %s: %w", node, err)
	}
	return do()
}

// read returns a node's record; nil: the node has never sent a beat, or a crash left the record incomplete.
func (s *Store) read(node string) (*record, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "beats", node+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the record of %s: %w", node, err)
	}
	var r record
	if json.Unmarshal(text, &r) != nil {
		return nil, nil
	}
	if r.ClockBoot != s.clock.Boot { // its arrival has no time on the clock of this boot
		r.Arrived, r.Granted, r.Before = 0, 0, 0
	}
	return &r, nil
}

// write replaces a node's record. It does not sync: after a crash of the machine the record would not count anyway.
func (s *Store) write(node string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "beats", node+".json")
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return fmt.Errorf("write the record of %s: %w", node, err)
	}
	return os.Rename(file+".new", file)
}

// Receive records a line that arrived with the key of a node, and returns the reply. longest is the longest lease that
// it grants. The error is a fault of this controller.
func (s *Store) Receive(node, line string, longest time.Duration) (reply Reply, err error) {
	b, err := ParseBeat(line)
	if err != nil {
		return Bad, nil //nolint:nilerr // the node gets the reply
	}
	err = s.locked(node, func() error {
		old, err := s.read(node)
		if err != nil {
			return err
		}
		if old != nil && old.Boot == b.Boot && b.Count <= old.Count {
			reply = Old
			return nil
		}
		r := record{Beat: b, ClockBoot: s.clock.Boot, Arrived: s.clock.Now()}
		m, err := s.memory()
		if err != nil {
			return err
		}
		if old != nil {
			r.Granted = old.Granted
		}
		if old != nil && old.Boot == b.Boot && old.ClockBoot == r.ClockBoot {
			r.Before = old.Before
			if old.Arrived <= m.Renewed {
				r.Before = old.Count
			}
		}
		if reply, err = s.grant(node, r, m, longest); err != nil {
			return err
		}
		if reply == Granted(b.Lease) {
			r.Granted = r.Arrived
		}
		return s.write(node, r)
	})
	return reply, err
}

// grant decides whether a node gets its lease. It checks revocations and the end of leadership under the node's lock,
// so the watch can rely on the time of the last lease.
func (s *Store) grant(node string, r record, m *memory, longest time.Duration) (Reply, error) {
	revoked, err := s.revoked(node)
	switch {
	case err != nil:
		return "", err
	case revoked:
		return Revoked, nil
	case r.Lease == 0:
		return Taken, nil
	case r.Lease > longest:
		return TooLong, nil
	case s.clock.Now() >= m.Until || !r.witnessed(m.Until-m.Renewed):
		return Standby, nil
	}
	return Granted(r.Lease), nil
}

// tick is the time in which the count of a beat grows by one, if the node asks for leases: its count is its uptime.
const tick = 10 * time.Millisecond

// witnessed reports whether, by the node's own clock, less than a term has passed since this controller started to make
// its record. The controller's clock alone cannot be trusted, because it stops while its virtual machine is paused. A
// lease starts when the node sent the beat, on the same clock. So it ends at most a term and a lease after the record,
// no matter how long this controller and the beat were delayed.
func (r record) witnessed(term time.Duration) bool {
	return r.Before != 0 && r.Count-r.Before < uint64(term/tick)
}

func (s *Store) revoked(node string) (bool, error) {
	_, err := os.Lstat(filepath.Join(s.dir, "revoked", node))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// revoke ensures that a node gets no more leases, if its last beat arrived at the time last. Conflict: a later beat has
// arrived.
func (s *Store) revoke(node string, last time.Duration) error {
	return s.locked(node, func() error {
		r, err := s.read(node)
		if err != nil {
			return err
		}
		if r != nil && r.Arrived > last {
			return croft.Errorf(croft.Conflict, "%s has sent a beat meanwhile", node)
		}
		return durable.Write(filepath.Join(s.dir, "revoked", node), nil, 0o600)
	})
}

// restore lets a node get leases again.
func (s *Store) restore(node string) error {
	return s.locked(node, func() error {
		err := os.Remove(filepath.Join(s.dir, "revoked", node))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// allRevoked returns the nodes whose leases are revoked.
func (s *Store) allRevoked() ([]string, error) {
	list, err := os.ReadDir(filepath.Join(s.dir, "revoked"))
	if err != nil {
		return nil, fmt.Errorf("read which leases are revoked: %w", err)
	}
	var nodes []string
	for _, one := range list {
		if !strings.HasPrefix(one.Name(), ".") {
			nodes = append(nodes, one.Name())
		}
	}
	return nodes, nil
}
