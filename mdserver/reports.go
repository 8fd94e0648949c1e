package mdserver

import (
	"context"
	"sync"
	"time"

	"croft"
)

// reportPause is how long a guest waits between two reports.
const reportPause = time.Second

// Reports takes what guests tell of themselves. Nobody can check any of it, and it
// concerns nobody but the guest.
type Reports interface {
	// CloudInit keeps how the guest's set-up ended. NotFound: the host has no such instance.
	CloudInit(ctx context.Context, id croft.InstanceID, c croft.CloudInit) error
	// SetPassword keeps a guest's password. Conflict: there is one already.
	SetPassword(ctx context.Context, id croft.InstanceID, password string) error
	// Password returns it, or nothing.
	Password(ctx context.Context, id croft.InstanceID) (string, error)
}

// mostRecent bounds what recent remembers: addresses can be made up.
const mostRecent = 1024

// recent remembers who did something of late, so that a guest cannot make the host
// write more often than it need.
type recent struct {
	pause time.Duration

	mu sync.Mutex
	at map[string]time.Time
}

// enter tells whether who may do it now, and notes that it does.
func (r *recent) enter(who string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.at[who]) < r.pause {
		return false
	}
	for other, at := range r.at {
		if now.Sub(at) >= r.pause {
			delete(r.at, other)
		}
	}
	if len(r.at) >= mostRecent {
		return false
	}
	if r.at == nil {
		r.at = map[string]time.Time{}
	}
	r.at[who] = now
	return true
}
