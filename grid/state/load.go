package state

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"croft"
	"croft/grid/unit"
)

// ClusterFile marks the directory of a cluster.
const ClusterFile = "cluster.yaml"

// Load reads the directory of a cluster. Errors: NotFound if it is none; Invalid, several joined, for what is wrong
// in its files, each with file and line.
func Load(ctx context.Context, dir string) (*State, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, croft.Errorf(croft.NotFound, "open the cluster's directory: %w", err)
	}
	defer root.Close()
	if _, err := root.Lstat(ClusterFile); errors.Is(err, fs.ErrNotExist) {
		return nil, croft.Errorf(croft.NotFound, "%s is no directory of a cluster: it has no %s; give another one with "+
			"-C, or make one with grid init", dir, ClusterFile)
	}
	s := &State{Dir: dir}
	return s, ctx.Err()
}

// Nodes returns every node with what is to run there, by id. Secrets are opened by secrets; with nil they stay closed,
// and the units are the same but for the contents of those files. Errors: Invalid with file and line; those of secrets.
func (s *State) Nodes(ctx context.Context, secrets Secrets) ([]unit.Node, error) {
	return nil, ctx.Err()
}
