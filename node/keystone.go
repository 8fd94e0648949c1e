package node

import (
	"fmt"

	"croft/node/settings"
	"croft/placement"
	"croft/placementclient/keystone"
)

// prepareOwnPlacement checks what our own Placement would be served with, and where it
// takes the tokens of Keystone alone makes one for this process that nobody knows.
func prepareOwnPlacement(s *settings.Settings, r *settings.Reach) error {
	if s.Placement.Keystone.Only {
		r.Placement.Token = newToken()
	}
	_, err := loadKeystone(s.Placement.Keystone)
	return err
}

// load reads the cloud; nil where none is set.
func loadKeystone(s settings.Keystone) (*keystone.Cloud, error) {
	if s.Cloud == "" {
		return nil, nil
	}
	cloud, err := keystone.Load(s.Cloud)
	if err != nil {
		return nil, fmt.Errorf("placement.keystone.cloud: %w", err)
	}
	return cloud, nil
}

// open is what our own Placement asks about tokens; nil where it asks nobody.
func openKeystone(s settings.Keystone) (k *placement.Keystone, end func(), err error) {
	cloud, err := loadKeystone(s)
	if cloud == nil {
		return nil, func() {}, err
	}
	tokens := keystone.NewTokens(cloud)
	return &placement.Keystone{Identity: tokens, URL: cloud.URL(), ReaderProjects: s.ReaderProjects}, tokens.Close, nil
}
