package image

import (
	"context"

	"croft/compute"
)

var _ compute.Cache = (*Cache)(nil)

// Held implements compute.Cache.
func (c *Cache) Held(context.Context) ([]Held, error) {
	contents, err := Look(c.store.dir)
	return contents.Images, err
}

// Remove implements compute.Cache.
func (c *Cache) Remove(_ context.Context, referenceOrDigest string) ([]Held, error) {
	if referenceOrDigest == "" {
		return Prune(c.store.dir, false)
	}
	h, err := Remove(c.store.dir, referenceOrDigest)
	if err != nil {
		return nil, err
	}
	return []Held{h}, nil
}
