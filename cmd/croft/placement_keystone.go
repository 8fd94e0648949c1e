package main

import (
	"fmt"

	"croft"
	"croft/placement"
	"croft/placementclient/keystone"
)

// keystoneSettings say whose tokens our own Placement takes beside the administrator's.
type keystoneSettings struct {
	Cloud          string   `yaml:"cloud"`
	Only           bool     `yaml:"only"`
	ReaderProjects []string `yaml:"reader_projects"`
}

func (s keystoneSettings) validate() error {
	if s.Cloud == "" && (s.Only || len(s.ReaderProjects) > 0) {
		return croft.Errorf(croft.Invalid, "placement.keystone.only and reader_projects are about the tokens of a Keystone: name it in placement.keystone.cloud")
	}
	return nil
}

// prepareOwnPlacement checks what our own Placement would be served with, and where it
// takes the tokens of Keystone alone makes one for this process that nobody knows.
func (s *hostSettings) prepareOwnPlacement() error {
	if s.Placement.Keystone.Only {
		s.Placement.Token = newToken()
	}
	_, err := s.Placement.Keystone.load()
	return err
}

// load reads the cloud; nil where none is set.
func (s keystoneSettings) load() (*keystone.Cloud, error) {
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
func (s keystoneSettings) open() (k *placement.Keystone, end func(), err error) {
	cloud, err := s.load()
	if cloud == nil {
		return nil, func() {}, err
	}
	tokens := keystone.NewTokens(cloud)
	return &placement.Keystone{Identity: tokens, URL: cloud.URL(), ReaderProjects: s.ReaderProjects}, tokens.Close, nil
}
