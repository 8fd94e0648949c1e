package images

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/compute"
	"croft/etcdstore/internal/kv"
)

var _ compute.Copies = (*Images)(nil)

// WatchImages implements compute.Copies.
func (s *Images) WatchImages(ctx context.Context, host croft.HostID, wake func(croft.ImageID)) error {
	return s.conn.Follow(ctx, s.keys().copiesOn(host), func() {}, func(stored *mvccpb.KeyValue, _ bool) {
		wake(croft.ImageID(kv.Last(stored.Key)))
	})
}

// ImageCopy implements compute.Copies.
func (s *Images) ImageCopy(ctx context.Context, host croft.HostID, id croft.ImageID) (croft.ImageCopy, error) {
	if err := checkKey(id); err != nil {
		return croft.ImageCopy{}, err
	}
	stored, err := s.conn.Get(ctx, s.keys().copyOn(host, id), "read the order for a copy of image %s", id)
	if err == nil && stored == nil {
		err = croft.Errorf(croft.NotFound, "the host has no order to have a copy of image %s", id)
	}
	if err != nil {
		return croft.ImageCopy{}, err
	}
	return s.decodeCopy(stored)
}

// ImageSource implements compute.Copies.
func (s *Images) ImageSource(ctx context.Context, host croft.HostID, id croft.ImageID,
	instance croft.InstanceID) (source croft.ImageSource, err error) {
	if err := s.needs(ctx, host, id, instance); err != nil {
		return source, err
	}
	i, err := s.Get(ctx, id)
	if errors.Is(err, croft.NotFound) {
		return source, croft.Errorf(croft.NotFound, "the image was removed from the cloud's catalog: request an instance "+
			"of another image, or add it again and request it by its name")
	}
	if err != nil {
		return source, err
	}
	if i.SHA256 == "" || i.State == croft.ImagePending || i.State == croft.ImageFailed {
		return source, croft.Errorf(croft.Conflict, "image %s is %s", i.Name, i.State)
	}
	source = croft.ImageSource{ImageFile: croft.ImageFile{SHA256: i.SHA256, Format: i.Format, SizeBytes: i.SizeBytes,
		DiskBytes: i.DiskBytes}, Key: i.Key, Origin: i.Origin, Public: i.Restricted}
	copies, err := s.Copies(ctx, i)
	if err != nil || len(copies) == 0 {
		return source, err
	}
	known, err := s.others.Hosts(ctx, i.Copies...)
	if err != nil {
		return source, err
	}
	for _, c := range copies {
		if h := known[c.Host]; c.Host != host && c.Made && !c.Removing && h.Alive && h.API != "" {
			source.Hosts = append(source.Hosts, croft.Host{ID: h.ID, Name: h.Name, API: h.API, Alive: true})
		}
	}
	return source, nil
}

// needs returns NotFound unless a host has an order that needs an image: about an instance that is made from it, or has
// it as its CD, or, without an instance, for a copy.
func (s *Images) needs(ctx context.Context, host croft.HostID, id croft.ImageID, instance croft.InstanceID) error {
	if instance == "" {
		c, err := s.ImageCopy(ctx, host, id)
		if err == nil && c.Removing {
			err = croft.Errorf(croft.NotFound, "the host is ordered to remove its copy of image %s", id)
		}
		return err
	}
	stored, err := s.conn.Get(ctx, s.others.Order(host, instance), "read the order of instance %s", instance)
	if err != nil {
		return err
	}
	var order croft.Order
	if stored != nil {
		err = s.conn.Decode(stored.Key, stored.Value, &order)
	}
	named, _ := croft.CatalogImage(order.Spec.Image)
	if cd := order.CD(); cd != nil && named != id {
		named, _ = croft.CatalogImage(cd.Image)
	}
	if err == nil && named != id {
		err = croft.Errorf(croft.NotFound, "no order of the host about instance %s names image %s", instance, id)
	}
	return err
}

// both reads the order for a copy and its image. errGone: there is nothing to record any more.
func (s *Images) both(ctx context.Context, host croft.HostID, id croft.ImageID) (c croft.ImageCopy, i croft.Image,
	err error) {
	if c, err = s.ImageCopy(ctx, host, id); errors.Is(err, croft.NotFound) || err == nil && c.Removing {
		return c, i, errGone
	}
	if err != nil {
		return c, i, err
	}
	if i, err = s.Get(ctx, id); errors.Is(err, croft.NotFound) {
		err = errGone
	}
	return c, i, err
}

// MadeImage implements compute.Copies.
func (s *Images) MadeImage(ctx context.Context, host croft.HostID, id croft.ImageID, f croft.ImageFile) error {
	for {
		c, i, err := s.both(ctx, host, id)
		if errors.Is(err, errGone) {
			return nil
		}
		if err != nil {
			return err
		}
		converted := i.Convert && i.State == croft.ImagePending // its upload had other bytes
		switch {
		case f.SHA256 == "" || !croft.IsImageFormat(f.Format) || f.SizeBytes < 1 || f.DiskBytes < 1:
			return croft.Errorf(croft.Invalid, "image %s: the description of its file is incomplete", id)
		case !converted && i.SHA256 != "" && f.SHA256 != i.SHA256, i.Format != "" && f.Format != i.Format:
			return croft.Errorf(croft.Invalid, "image %s: the file has other bytes than the image", id)
		case i.State == croft.ImagePending && croft.ImageGB(f.SizeBytes) > i.ChargedGB:
			return croft.Errorf(croft.Invalid, "image %s: the file has %d GiB, more than the %d that are charged for it", id,
				croft.ImageGB(f.SizeBytes), i.ChargedGB)
		}
		made, next, key := c, i, s.keys().copyOn(host, id)
		made.Convert, made.MostBytes, next.Convert = false, 0, false
		made.Made, made.Error, made.SHA256, made.Format, made.SizeBytes = true, "", f.SHA256, f.Format, f.SizeBytes
		if i.State == croft.ImagePending || i.State == croft.ImageLost {
			next.State, next.Error, next.SHA256, next.Format = croft.ImageReady, "", f.SHA256, f.Format
			next.SizeBytes, next.DiskBytes, next.Expires = f.SizeBytes, f.DiskBytes, time.Time{}
			next.ChargedGB = min(i.ChargedGB, croft.ImageGB(f.SizeBytes))
		}
		_, err = s.write(ctx, i, next, kv.Txn{If: []clientv3.Cmp{kv.Unchanged(key, c.Revision)},
			Then: []clientv3.Op{clientv3.OpPut(key, kv.Encode(made))}})
		if err == nil {
			err = s.endSnapshot(ctx, c)
		}
		if !errors.Is(err, croft.Conflict) {
			return err
		}
	}
}

// endSnapshot removes the snapshot from which a copy was saved. If it fails, Mend of schedule/images does it.
func (s *Images) endSnapshot(ctx context.Context, c croft.ImageCopy) error {
	if c.Snapshot == "" {
		return nil
	}
	return s.others.EndSnapshot(ctx, c.Host, c.Snapshot)
}

// FailedImage implements compute.Copies.
func (s *Images) FailedImage(ctx context.Context, host croft.HostID, id croft.ImageID, why string, final bool) error {
	for {
		c, i, err := s.both(ctx, host, id)
		if errors.Is(err, errGone) {
			return nil
		}
		if err != nil {
			return err
		}
		if final && i.State == croft.ImagePending {
			next := i
			next.State, next.Error, next.ChargedGB, next.Expires = croft.ImageFailed, why, 0, time.Time{}
			if _, err = s.DropCopies(ctx, i, next, i.Copies...); err == nil {
				err = s.endSnapshot(ctx, c)
			}
		} else if c.Error == why {
			return nil
		} else {
			next := c
			next.Error = why
			err = s.writeCopy(ctx, c, next)
		}
		if !errors.Is(err, croft.Conflict) {
			return err
		}
	}
}

// ForgetImage implements compute.Copies.
func (s *Images) ForgetImage(ctx context.Context, host croft.HostID, id croft.ImageID) error {
	c, err := s.ImageCopy(ctx, host, id)
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	if err == nil && !c.Removing {
		err = croft.Errorf(croft.Conflict, "the copy of image %s is not to be removed", id)
	}
	if err != nil {
		return err
	}
	return s.forget(ctx, c)
}
