package compute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"croft"
	"croft/internal/durable"
)

// Reports stores the reports of guests in their instances' directories, so that a report outlives the agent and is
// removed with the instance. The agent includes reports in observations.
type Reports struct{ agent *Agent }

// Reports returns the agent's store of reports.
func (a *Agent) Reports() Reports { return Reports{a} }

// guestReport is everything that one guest has reported.
type guestReport struct {
	CloudInit *croft.CloudInit `json:"cloud_init,omitempty"`
	Password  string           `json:"password,omitempty"`
}

// CloudInit stores how the guest's set-up ended, replacing an earlier report. NotFound: the host has no such instance.
func (r Reports) CloudInit(ctx context.Context, id croft.InstanceID, c croft.CloudInit) error {
	return r.change(ctx, id, func(t *guestReport) error {
		t.CloudInit = &c
		return nil
	})
}

// age marks the report of the guest's set-up as one of an earlier boot, before the guest is started again.
func (r Reports) age(ctx context.Context, id croft.InstanceID) error {
	if !r.read(id).CloudInit.Current() {
		return nil
	}
	return r.change(ctx, id, func(t *guestReport) error {
		if t.CloudInit != nil {
			t.CloudInit.Earlier = true
		}
		return nil
	})
}

// SetPassword stores a guest's password. NotFound: the host has no such instance. Conflict: it has a password already.
func (r Reports) SetPassword(ctx context.Context, id croft.InstanceID, password string) error {
	return r.change(ctx, id, func(t *guestReport) error {
		if t.Password != "" {
			return croft.Errorf(croft.Conflict, "instance %s has a password already", id)
		}
		t.Password = password
		return nil
	})
}

// Password returns the password that SetPassword stored; empty: none is stored.
func (r Reports) Password(_ context.Context, id croft.InstanceID) (string, error) {
	return r.read(id).Password, nil
}

// change reads, changes and writes a guest's reports, and wakes the agent.
func (r Reports) change(ctx context.Context, id croft.InstanceID, do func(*guestReport) error) error {
	r.agent.reporting.Lock()
	defer r.agent.reporting.Unlock()
	t := r.read(id)
	if err := do(&t); err != nil {
		return err
	}
	if err := r.write(id, t); err != nil {
		return err
	}
	r.agent.reporters.Put(id)
	return nil
}

// read returns the stored reports; empty if they cannot be read, which affects only the guest.
func (r Reports) read(id croft.InstanceID) (t guestReport) {
	text, err := os.ReadFile(r.file(id))
	if err != nil || json.Unmarshal(text, &t) != nil {
		return guestReport{}
	}
	return t
}

// write replaces the file atomically: after a crash it has the old or the new content.
func (r Reports) write(id croft.InstanceID, t guestReport) error {
	text, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("keep what instance %s reported: %w", id, err)
	}
	err = durable.Write(r.file(id), text, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return croft.Errorf(croft.NotFound, "instance %s has no files on this host", id)
	}
	if err != nil {
		return croft.Errorf(croft.Unavailable, "keep what instance %s reported: %w", id, err)
	}
	return nil
}

func (r Reports) file(id croft.InstanceID) string {
	return filepath.Join(r.agent.dir(id), "told.json")
}

// Ready returns why the host does not take orders; nil: it takes orders.
func (a *Agent) Ready(context.Context) error {
	if why := a.troubles.lock.Load(); why != nil {
		return errors.New("this agent does nothing: " + *why)
	}
	if a.known.Load() {
		return nil
	}
	if err := a.troubles.known.Load(); err != nil {
		return errors.Join(errors.New("the host does not take orders yet"), *err)
	}
	return errors.New("the host does not take orders yet")
}

// HypervisorReady returns the error of the last request to the hypervisor, at most ResyncEvery old. If that
// failed, it asks the hypervisor again.
func (a *Agent) HypervisorReady(ctx context.Context) error {
	if a.troubles.hypervisor.Load() == nil {
		return nil
	}
	_, err := a.Hypervisor.List(ctx)
	return err
}
