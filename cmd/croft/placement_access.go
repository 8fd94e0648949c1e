package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

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
	CA       string `yaml:"ca"`
	Cert     string `yaml:"cert"`
	Key      string `yaml:"key"`

	TLS *tls.Config `yaml:"-"` // instead of the files, of a cloud that gave us certificates
}

// client connects to Placement, without asking anything yet. Close it.
func (s PlacementSettings) client() (*placementclient.Client, error) {
	if s.Cloud == "" {
		config, err := s.tls()
		if err != nil {
			return nil, err
		}
		return placementclient.New(placementclient.Config{
			Endpoint: cmp.Or(s.Endpoint, defaultPlacement), Auth: placementclient.Token(s.Token), TLS: config})
	}
	cloud, err := keystone.Load(s.Cloud)
	if err != nil {
		return nil, fmt.Errorf("placement.cloud: %w", err)
	}
	return placementclient.New(placementclient.Config{Endpoint: s.Endpoint, Auth: cloud, TLS: cloud.TLS()})
}

// tls is how we speak to an endpoint with https://; nil where nothing is said of it.
func (s PlacementSettings) tls() (*tls.Config, error) {
	if s.TLS != nil || s.CA == "" && s.Cert == "" && s.Key == "" {
		return s.TLS, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		text, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "placement.ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, croft.Errorf(croft.Invalid, "placement.ca: %s holds no certificate in PEM", s.CA)
		}
	}
	if s.Cert == "" && s.Key == "" {
		return config, nil
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		return &pair, err
	}
	if _, err := load(nil); err != nil {
		return nil, croft.Errorf(croft.Invalid, "placement.cert and placement.key name no certificate and its key: %w", err)
	}
	config.GetClientCertificate = load
	return config, nil
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
