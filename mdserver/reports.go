package mdserver

import (
	"context"
	"sync"
	"time"

	"croft"
)

// reportPause is the minimum interval between two reports of a guest.
const reportPause = time.Second

// Reports stores what guests report about themselves. The data cannot be verified and affects only the guest.
type Reports interface {
	// CloudInit stores how the guest's set-up ended. NotFound: the host has no such instance.
	CloudInit(ctx context.Context, id croft.InstanceID, c croft.CloudInit) error
	// SetPassword stores a guest's password. Conflict: one is stored already.
	SetPassword(ctx context.Context, id croft.InstanceID, password string) error
	// Password returns the stored password; empty: none.
	Password(ctx context.Context, id croft.InstanceID) (string, error)
}

// mostRecent limits the entries of recent, because guests can invent addresses.
const mostRecent = 1024

// recent is a rate limit that keeps a guest from making the host write too often.
type recent struct {
	pause time.Duration

	mu sync.Mutex
	at map[string]time.Time
}

// enter reports whether who may act now, and records the action.
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
