package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"croft"
	"croft/cluster"
)

// maxContracts bounds the number of cached contracts. An implementation never changes, so they stay valid.
const maxContracts = 1000

type contract struct {
	cluster.Contract
	err error // Invalid
}

// read adds the contracts of candidates, and the faults of their templates and images.
func (s *Survey) read(ctx context.Context, w *cluster.World, all []cluster.Candidate) error {
	w.Contracts = map[cluster.ImplementationID]cluster.Contract{}
	w.Faults = map[cluster.ImplementationID]error{}
	var images []cluster.SiteImage
	for _, c := range all {
		id := c.Implementation.ID
		declared, err := s.Contract(ctx, c.Site.Type, c.Implementation)
		if err == nil && c.Implementation.Image != "" {
			if images == nil {
				if images, err = s.c.Catalogue.Images(ctx); err != nil {
					return err
				}
			}
			err = s.image(images, c)
		}
		switch {
		case errors.Is(err, croft.Invalid):
			w.Faults[id] = err
		case err != nil && !errors.Is(err, croft.Unavailable):
			return err
		case err == nil:
			w.Contracts[id] = declared
		}
	}
	return nil
}

// Contract returns the contract of an implementation. Invalid: its template cannot be used.
func (s *Survey) Contract(ctx context.Context, kind cluster.SiteType, i cluster.Implementation) (cluster.Contract,
	error) {
	s.mu.Lock()
	known, found := s.contracts[i.ID]
	s.mu.Unlock()
	if found {
		return known.Contract, known.err
	}
	driver := s.c.Drivers[kind]
	if driver == nil {
		return cluster.Contract{}, croft.Errorf(croft.Unavailable, "this server cannot reach sites of type %s", kind)
	}
	declared, err := driver.Check(ctx, i)
	if err != nil && !errors.Is(err, croft.Invalid) {
		return declared, fmt.Errorf("read revision %d of %s at site %s: %w", i.Revision,
			cluster.ApplianceName(i.Appliance), i.Site, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.contracts) >= maxContracts {
		clear(s.contracts)
	}
	s.contracts[i.ID] = contract{declared, err}
	return declared, err
}

// image rejects an image that the site does not have and that cannot be copied there. Invalid.
func (s *Survey) image(all []cluster.SiteImage, c cluster.Candidate) error {
	name := c.Implementation.Image
	at := slices.IndexFunc(all, func(i cluster.SiteImage) bool { return i.Name == name })
	var image cluster.SiteImage
	if at >= 0 {
		image = all[at]
	} else if s.c.Images != nil {
		own, err := s.c.Images(name)
		if err != nil && !errors.Is(err, croft.NotFound) {
			return err
		}
		image = own
	}
	if image.Name == "" {
		return croft.Errorf(croft.Invalid, "there is no image %s, which the implementation names", name)
	}
	site := c.Site.Name
	here := cmp.Or(image.On[site].Ref, image.On[site+"/"+string(c.Credential.ID)].Ref)
	if here == "" && image.URL == "" && c.Site.Type != cluster.Local {
		return croft.Errorf(croft.Invalid, "image %s is not at the site, and has no source to bring it from", name)
	}
	return nil
}
