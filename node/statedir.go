package node

import (
	"errors"

	"croft/compute"
)

// withStateDir calls do while no croft runs in the state directory.
func withStateDir(path string, do func(*compute.StateDir) error) (err error) {
	dir, err := compute.OpenStateDir(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return do(dir)
}
