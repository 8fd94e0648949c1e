package gate

import (
	"context"
	"errors"
	"slices"
	"time"

	"croft"
	"croft/compute"
	"croft/internal/mailbox"
)

var _ compute.Volumes = (*Client)(nil)

// ownVolume refuses questions about volumes of other hosts.
func ownVolume(caller croft.HostID, q aboutVolume) error {
	return about(caller, croft.OrderID{Host: q.Host, Instance: q.Volume.Consumer()})
}

func (s *Server) volume(ctx context.Context, caller croft.HostID, q aboutVolume) (volume, error) {
	if err := ownVolume(caller, q); err != nil {
		return volume{}, err
	}
	v, err := s.Volumes.Volume(ctx, caller, q.Volume)
	return volume{v, v.Revision}, err
}

func (s *Server) madeVolume(ctx context.Context, caller croft.HostID, q aboutVolume) (none, error) {
	if err := ownVolume(caller, q); err != nil {
		return none{}, err
	}
	if err := croft.CheckVolumeSize(q.SizeGB); err != nil {
		return none{}, err
	}
	return none{}, s.Volumes.MadeVolume(ctx, caller, q.Volume, q.SizeGB)
}

func (s *Server) failedVolume(ctx context.Context, caller croft.HostID, q aboutVolume) (none, error) {
	if err := ownVolume(caller, q); err != nil {
		return none{}, err
	}
	return none{}, s.Volumes.FailedVolume(ctx, caller, q.Volume, q.Error)
}

func (s *Server) detachedVolume(ctx context.Context, caller croft.HostID, q aboutVolume) (none, error) {
	if err := ownVolume(caller, q); err != nil {
		return none{}, err
	}
	return none{}, s.Volumes.DetachedVolume(ctx, caller, q.Volume, q.Instance)
}

func (s *Server) forgetVolume(ctx context.Context, caller croft.HostID, q aboutVolume) (none, error) {
	if err := ownVolume(caller, q); err != nil {
		return none{}, err
	}
	return none{}, s.Volumes.ForgetVolume(ctx, caller, q.Volume)
}

func (s *Server) tookSnapshot(ctx context.Context, caller croft.HostID, q aboutVolume) (none, error) {
	if err := ownVolume(caller, q); err != nil {
		return none{}, err
	}
	if !slices.Contains([]croft.Method{croft.MethodQuiesced, croft.MethodDisks, croft.MethodOff}, q.Snapshot.Method) {
		return none{}, croft.Errorf(croft.Invalid, "%.80q is no method of a snapshot", q.Snapshot.Method)
	}
	return none{}, s.Volumes.TookSnapshot(ctx, caller, q.Volume, q.Snapshot)
}

func (s *Server) rolledBack(ctx context.Context, caller croft.HostID, q aboutVolume) (none, error) {
	if err := ownVolume(caller, q); err != nil {
		return none{}, err
	}
	return none{}, s.Volumes.RolledBack(ctx, caller, q.Volume, q.At, q.Error)
}

// mayReleaseVolume returns the provider of which the claim of a volume is released: the host, or the shared storage of
// a volume that the host keeps. It refuses a volume that is not to be removed.
func (s *Server) mayReleaseVolume(ctx context.Context, caller croft.HostID, id croft.VolumeID) ([]croft.HostID,
	error) {
	v, err := s.Volumes.Volume(ctx, caller, id)
	switch {
	case errors.Is(err, croft.NotFound):
		return []croft.HostID{caller}, nil
	case err == nil && !v.Removing:
		err = refuse("volume %s is not to be removed", id)
	}
	return []croft.HostID{v.Provider()}, err
}

// watchVolumes streams the changes of the host's volumes.
func (s *Server) watchVolumes(v visit) error {
	if v.request.ProtoMajor < 2 {
		return errHTTP1
	}
	o := s.open(v)
	defer o.close()
	changed := mailbox.New[croft.VolumeID]()
	o.work.Go(func() {
		defer o.hangUp()
		_ = s.Volumes.WatchVolumes(o.ctx, o.caller, func(id croft.VolumeID) { changed.Put(id) })
	})
	o.work.Go(func() {
		_ = changed.Run(o.ctx, func(id croft.VolumeID) {
			if o.send(line{Volume: id}) != nil {
				o.hangUp()
			}
		})
	})
	o.lines(func(line) bool { return true }) // the client sends only heartbeats
	return nil
}

// WatchVolumes implements compute.Volumes.
func (c *Client) WatchVolumes(ctx context.Context, _ croft.HostID, wake func(croft.VolumeID)) error {
	s := keeper{client: c, open: func(ctx context.Context, k *connection, heard func()) {
		c.converse(ctx, k, "WatchVolumes", line{}, nil, func(l line, _ *said) {
			heard()
			if l.Volume != "" {
				wake(l.Volume)
			}
		})
	}}
	return s.run(ctx)
}

// Volume implements compute.Volumes.
func (c *Client) Volume(ctx context.Context, host croft.HostID, id croft.VolumeID) (croft.Volume, error) {
	v, err := ask[volume](ctx, c, "Volume", aboutVolume{Host: host, Volume: id})
	return v.noun(), err
}

// MadeVolume implements compute.Volumes.
func (c *Client) MadeVolume(ctx context.Context, host croft.HostID, id croft.VolumeID, sizeGB int64) error {
	return do(ctx, c, "MadeVolume", aboutVolume{Host: host, Volume: id, SizeGB: sizeGB})
}

// FailedVolume implements compute.Volumes.
func (c *Client) FailedVolume(ctx context.Context, host croft.HostID, id croft.VolumeID, why string) error {
	return do(ctx, c, "FailedVolume", aboutVolume{Host: host, Volume: id, Error: why})
}

// DetachedVolume implements compute.Volumes.
func (c *Client) DetachedVolume(ctx context.Context, host croft.HostID, id croft.VolumeID,
	from croft.InstanceID) error {
	return do(ctx, c, "DetachedVolume", aboutVolume{Host: host, Volume: id, Instance: from})
}

// ForgetVolume implements compute.Volumes.
func (c *Client) ForgetVolume(ctx context.Context, host croft.HostID, id croft.VolumeID) error {
	return do(ctx, c, "ForgetVolume", aboutVolume{Host: host, Volume: id})
}

// TookSnapshot implements compute.Volumes.
func (c *Client) TookSnapshot(ctx context.Context, host croft.HostID, id croft.VolumeID, how croft.Snapshot) error {
	return do(ctx, c, "TookSnapshot", aboutVolume{Host: host, Volume: id, Snapshot: how})
}

// RolledBack implements compute.Volumes.
func (c *Client) RolledBack(ctx context.Context, host croft.HostID, id croft.VolumeID, at time.Time, why string) error {
	return do(ctx, c, "RolledBack", aboutVolume{Host: host, Volume: id, At: at, Error: why})
}
