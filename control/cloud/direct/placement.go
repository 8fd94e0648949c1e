package direct

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"croft"
	"croft/placementclient"
	"croft/placementclient/keystone"
)

// DefaultPlacement is the address of Placement if none is configured, and defaultToken our token for it.
const (
	DefaultPlacement = "http://127.0.0.1:8778"
	DefaultToken     = "admin"
)

// PlacementSettings hold the address of Placement and the client's credentials for it. The type is exported because it
// is embedded inline in other settings, whose fields must be exported.
type PlacementSettings struct {
	Endpoint string `yaml:"endpoint"` // empty: DefaultPlacement, or with a cloud the endpoint in its catalogue
	Cloud    string `yaml:"cloud"`    // empty: the token is used
	Token    string `yaml:"token"`
	CA       string `yaml:"ca"`
	Cert     string `yaml:"cert"`
	Key      string `yaml:"key"`

	TLS *tls.Config `yaml:"-"` // replaces the files, for a cloud that issued certificates to this host
}

// Client returns a client of Placement, and sends nothing yet. The caller must close it.
func (s PlacementSettings) Client() (*placementclient.Client, error) {
	if s.Cloud == "" {
		config, err := s.tls()
		if err != nil {
			return nil, err
		}
		return placementclient.New(placementclient.Config{
			Endpoint: cmp.Or(s.Endpoint, DefaultPlacement), Auth: placementclient.StaticToken(s.Token), TLS: config})
	}
	cloud, err := keystone.Load(s.Cloud)
	if err != nil {
		return nil, fmt.Errorf("placement.cloud: %w", err)
	}
	return placementclient.New(placementclient.Config{Endpoint: s.Endpoint, Auth: cloud, TLS: cloud.TLS()})
}

// tls returns the configuration for an https:// endpoint; nil: nothing is configured.
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
		return nil, croft.Errorf(croft.Invalid, "placement.cert and placement.key name no certificate and its key: %w",
			err)
	}
	config.GetClientCertificate = load
	return config, nil
}

// Check returns the errors that Client would return, before anything is created.
func (s PlacementSettings) Check() error {
	client, err := s.Client()
	if err == nil {
		client.Close()
	}
	return err
}
