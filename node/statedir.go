package node

import (
	"errors"

	"croft/compute"
)

// withStateDir does something while no croft runs in a state directory.
func withStateDir(path string, do func(*compute.StateDir) error) (err error) {
	dir, err := compute.OpenStateDir(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return do(dir)
}
