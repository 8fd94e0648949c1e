package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"croft"
	"croft/compute"
)

// kept is the content of the file.
type kept struct {
	Guests map[croft.InstanceID]*guest `json:"guests"`
}

// load reads the file if it exists.
func (h *Hypervisor) load() error {
	if h.config.File == "" {
		return nil
	}
	b, err := os.ReadFile(h.config.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the simulated instances: %w", err)
	}
	var k kept
	if err := json.Unmarshal(b, &k); err != nil {
		return croft.Errorf(croft.Invalid,
			"the simulated instances in %s cannot be read, remove the file to start without any: %w", h.config.File,
			err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, g := range k.Guests {
		if g == nil || g.Machine.ID != id {
			return croft.Errorf(croft.Invalid,
				"the simulated instance %s in %s is damaged, remove the file to start without any", id, h.config.File)
		}
		h.guests[id] = g
		h.used[g.Address] = id
	}
	for id, g := range h.guests {
		if g.Power == compute.PowerOn && time.Now().Before(g.Booted) {
			h.boot(id, g)
		}
	}
	return nil
}

// saved writes the file, if one is configured, and wakes the watchers of id. The caller holds h.mu, so the
// file is always a consistent snapshot of all instances.
func (h *Hypervisor) saved(id croft.InstanceID) error {
	h.changed.Put(id)
	if h.config.File == "" {
		return nil
	}
	b, err := json.Marshal(kept{Guests: h.guests})
	if err != nil {
		return err
	}
	if err := replace(h.config.File, append(b, '\n')); err != nil {
		return fmt.Errorf("keep the simulated instances: %w", err)
	}
	return nil
}

// replace replaces file atomically with b.
func replace(file string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".sim-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// File returns the path of the instance file; empty: instances are in memory only.
func (h *Hypervisor) File() string { return h.config.File }
