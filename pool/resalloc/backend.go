package resalloc

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"croft"
	"croft/compute"
	"croft/internal/command"
	"croft/pool"
)

// Backend runs managers of pools, as `croft serve pool` does.
type Backend struct {
	// Serve runs a manager until ctx ends. It keeps its state in dir, and locks dir by open.
	Serve func(ctx context.Context, s Settings, dir string, open OpenState, log *slog.Logger) error
	// Open opens the store of a manager that is not running, in its state directory, which the caller has locked. end
	// closes the store.
	Open func(ctx context.Context, s Settings, dir string) (store Store, end func() error, err error)
}

// OpenState locks the directory of a manager's state.
type OpenState func(ctx context.Context, dir string) (*compute.StateDir, error)

// Store is where a manager keeps its state.
type Store struct {
	pool.Store
	Partition croft.PartitionID
}

// failed wraps an error so that the exit code is 1, whatever its kind.
func failed(err error) error {
	if _, done := errors.AsType[*command.Exited](err); err == nil || done {
		return err
	}
	return &command.Exited{Code: 1, Err: err}
}

// Settings are the settings of `croft serve pool` that server.yaml contains.
type Settings struct {
	Etcd                  []string // endpoints; empty: the manager runs its own etcd
	Pools                 string   // path of pools.yaml
	Logs                  string   // directory
	Listen, Address       string
	Tokens, Cert, Key, CA string // files
	Insecure              bool
	Level                 slog.Level
	Pace                  time.Duration // between livechecks; see pool.Config
	Began                 time.Time     // see pool.Config
}
