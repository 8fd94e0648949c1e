package node

import (
	"fmt"

	"croft/node/settings"
	"croft/placement"
	"croft/placementclient/keystone"
)

// prepareOwnPlacement checks the settings of our own Placement. If that accepts only tokens of Keystone, this
// process gets a generated one that nobody else knows.
func prepareOwnPlacement(s *settings.Settings, r *settings.Reach) error {
	if s.Placement.Keystone.Only {
		r.Placement.Token = newToken()
	}
	_, err := loadKeystone(s.Placement.Keystone)
	return err
}

// loadKeystone reads the cloud; nil: none is configured.
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

// openKeystone is what our own Placement verifies tokens with; nil: it verifies none.
func openKeystone(s settings.Keystone) (k *placement.Keystone, end func(), err error) {
	cloud, err := loadKeystone(s)
	if cloud == nil {
		return nil, func() {}, err
	}
	tokens := keystone.NewTokens(cloud)
	return &placement.Keystone{Identity: tokens, URL: cloud.URL(), ReaderProjects: s.ReaderProjects}, tokens.Close, nil
}
