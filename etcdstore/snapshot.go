package etcdstore

import (
	"context"
	"errors"
	"io"
)

// Snapshot writes the whole content of etcd to w, with a checksum at its end. It is the state of one member at one
// moment, and includes all acknowledged writes.
func (s *conn) Snapshot(ctx context.Context, w io.Writer) (size int64, err error) {
	// A member that lags would miss acknowledged writes; it answers this read only once it has caught up.
	if _, err := s.etcd.Get(ctx, homeKey); err != nil {
		return 0, s.wrap(err, "read %s", homeKey)
	}
	stream, err := s.etcd.Snapshot(ctx)
	if err != nil {
		return 0, s.wrap(err, "take a snapshot")
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	if size, err = io.Copy(w, stream); err != nil {
		return size, s.wrap(err, "take a snapshot")
	}
	return size, nil
}
