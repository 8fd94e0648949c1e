package main

import (
	"cmp"
	"fmt"

	"croft"
	"croft/placement"
	"croft/placementclient"
	"croft/placementclient/keystone"
)

// defaultPlacement is where Placement is when nobody says so, and defaultToken is who
// we are to it.
const (
	defaultPlacement = "http://127.0.0.1:8778"
	defaultToken     = "admin"
)

// PlacementSettings say where Placement is and who we are to it. Its name is exported
// because it is inline in other settings, where fields have to be.
type PlacementSettings struct {
	Endpoint string `yaml:"endpoint"` // empty: defaultPlacement, or with a cloud what its catalogue says
	Cloud    string `yaml:"cloud"`    // empty: the token
	Token    string `yaml:"token"`
}

// client connects to Placement, without asking anything yet. Close it.
func (s PlacementSettings) client() (*placementclient.Client, error) {
	if s.Cloud == "" {
		return placementclient.New(placementclient.Config{
			Endpoint: cmp.Or(s.Endpoint, defaultPlacement), Auth: placementclient.Token(s.Token)})
	}
	cloud, err := keystone.Load(s.Cloud)
	if err != nil {
		return nil, fmt.Errorf("placement.cloud: %w", err)
	}
	return placementclient.New(placementclient.Config{Endpoint: s.Endpoint, Auth: cloud, TLS: cloud.TLS()})
}

// check finds what client would refuse, before anything is made.
func (s PlacementSettings) check() error {
	client, err := s.client()
	if err == nil {
		client.Close()
	}
	return err
}

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
	if _, err := s.Placement.Keystone.load(); err != nil {
		return err
	}
	return checkToken(s.Placement.Listen, s.Placement.Token)
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
