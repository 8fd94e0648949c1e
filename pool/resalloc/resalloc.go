// Package resalloc has what users of resalloc know, on croft's pools: its programs, with
// their verbs, flags, output and exit codes, and its protocol, XML-RPC. It can be deleted
// whole: only the program's table of names, and the server of pools for the protocol, refer
// to it.
package resalloc

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/compute"
	"croft/pool"
)

// Names are the names of the programs, by which the binary is called.
var Names = []string{"resalloc", "resalloc-maint", "resalloc-server", "resalloc-check-vm-ip", "resalloc-wait-for-ssh"}

// Backend runs managers of pools, as `croft pool serve` does.
type Backend struct {
	// Serve runs a manager until ctx ends. It keeps its state in dir, which open locks.
	Serve func(ctx context.Context, s Settings, dir string, open OpenState, log *slog.Logger) error
	// Open opens the store of a manager that does not run, in the directory of its
	// state, which the caller has locked. end closes it.
	Open func(ctx context.Context, s Settings, dir string) (store Store, end func() error, err error)
}

// OpenState locks the directory of a manager's state.
type OpenState func(ctx context.Context, dir string) (*compute.StateDir, error)

// Store is where a manager keeps its state.
type Store interface {
	pool.Store
	Partition() croft.PartitionID
}

// Command returns the program with a name, nil where there is none.
func Command(name string, b Backend) *cobra.Command {
	switch name {
	case "resalloc":
		return clientCommand()
	case "resalloc-maint":
		return maintCommand(b)
	case "resalloc-server":
		return serverCommand(b)
	case "resalloc-check-vm-ip":
		return checkCommand()
	case "resalloc-wait-for-ssh":
		return waitCommand()
	}
	return nil
}

// VersionTemplate is the form of what --version prints: the client says that it is one.
func VersionTemplate(name string) string {
	if name == "resalloc" {
		name += " (client)"
	}
	return name + " {{.Version}}\n"
}

// failed gives an error the exit code 1, whatever its kind.
func failed(err error) error {
	if _, done := errors.AsType[*args.Exited](err); err == nil || done {
		return err
	}
	return &args.Exited{Code: 1, Err: err}
}
