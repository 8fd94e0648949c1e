package gate

import (
	"context"

	"croft"
	"croft/compute"
	"croft/internal/mailbox"
)

var _ compute.Copies = (*Client)(nil)

// ownImage refuses questions about copies on other hosts, and about files that are no image.
func ownImage(caller croft.HostID, q aboutImage) error {
	if err := own(caller, q.Host); err != nil {
		return err
	}
	_, err := croft.ParseImageID(string(q.Image))
	return err
}

func (s *Server) imageCopy(ctx context.Context, caller croft.HostID, q aboutImage) (croft.ImageCopy, error) {
	if err := ownImage(caller, q); err != nil {
		return croft.ImageCopy{}, err
	}
	return s.Images.ImageCopy(ctx, caller, q.Image)
}

func (s *Server) imageSource(ctx context.Context, caller croft.HostID, q aboutImage) (croft.ImageSource, error) {
	if err := ownImage(caller, q); err != nil {
		return croft.ImageSource{}, err
	}
	if q.Instance != "" {
		if _, err := croft.ParseInstanceID(string(q.Instance)); err != nil {
			return croft.ImageSource{}, err
		}
	}
	return s.Images.ImageSource(ctx, caller, q.Image, q.Instance)
}

func (s *Server) madeImage(ctx context.Context, caller croft.HostID, q aboutImage) (none, error) {
	if err := ownImage(caller, q); err != nil {
		return none{}, err
	}
	return none{}, s.Images.MadeImage(ctx, caller, q.Image, q.File)
}

func (s *Server) failedImage(ctx context.Context, caller croft.HostID, q aboutImage) (none, error) {
	if err := ownImage(caller, q); err != nil {
		return none{}, err
	}
	return none{}, s.Images.FailedImage(ctx, caller, q.Image, q.Error, q.Final)
}

func (s *Server) forgetImage(ctx context.Context, caller croft.HostID, q aboutImage) (none, error) {
	if err := ownImage(caller, q); err != nil {
		return none{}, err
	}
	return none{}, s.Images.ForgetImage(ctx, caller, q.Image)
}

// watchImages streams the changes of the orders for copies on the host.
func (s *Server) watchImages(v visit) error {
	if v.request.ProtoMajor < 2 {
		return errHTTP1
	}
	o := s.open(v)
	defer o.close()
	changed := mailbox.New[croft.ImageID]()
	o.work.Go(func() {
		defer o.hangUp()
		_ = s.Images.WatchImages(o.ctx, o.caller, func(id croft.ImageID) { changed.Put(id) })
	})
	o.work.Go(func() {
		_ = changed.Run(o.ctx, func(id croft.ImageID) {
			if o.send(line{Image: id}) != nil {
				o.hangUp()
			}
		})
	})
	o.lines(func(line) bool { return true }) // the client sends only heartbeats
	return nil
}

// WatchImages implements compute.Copies.
func (c *Client) WatchImages(ctx context.Context, _ croft.HostID, wake func(croft.ImageID)) error {
	s := keeper{client: c, open: func(ctx context.Context, k *connection, heard func()) {
		c.converse(ctx, k, "WatchImages", line{}, nil, func(l line, _ *said) {
			heard()
			if l.Image != "" {
				wake(l.Image)
			}
		})
	}}
	return s.run(ctx)
}

// ImageCopy implements compute.Copies.
func (c *Client) ImageCopy(ctx context.Context, host croft.HostID, id croft.ImageID) (croft.ImageCopy, error) {
	return ask[croft.ImageCopy](ctx, c, "ImageCopy", aboutImage{Host: host, Image: id})
}

// ImageSource implements compute.Copies.
func (c *Client) ImageSource(ctx context.Context, host croft.HostID, id croft.ImageID,
	instance croft.InstanceID) (croft.ImageSource, error) {
	return ask[croft.ImageSource](ctx, c, "ImageSource", aboutImage{Host: host, Image: id, Instance: instance})
}

// MadeImage implements compute.Copies.
func (c *Client) MadeImage(ctx context.Context, host croft.HostID, id croft.ImageID, f croft.ImageFile) error {
	return do(ctx, c, "MadeImage", aboutImage{Host: host, Image: id, File: f})
}

// FailedImage implements compute.Copies.
func (c *Client) FailedImage(ctx context.Context, host croft.HostID, id croft.ImageID, why string, final bool) error {
	return do(ctx, c, "FailedImage", aboutImage{Host: host, Image: id, Error: why, Final: final})
}

// ForgetImage implements compute.Copies.
func (c *Client) ForgetImage(ctx context.Context, host croft.HostID, id croft.ImageID) error {
	return do(ctx, c, "ForgetImage", aboutImage{Host: host, Image: id})
}
