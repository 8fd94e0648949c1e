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

// DefaultPlacement is where Placement is when nobody says so, and defaultToken is who
// we are to it.
const (
	DefaultPlacement = "http://127.0.0.1:8778"
	DefaultToken     = "admin"
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

// Client connects to Placement, without asking anything yet. Close it.
func (s PlacementSettings) Client() (*placementclient.Client, error) {
	if s.Cloud == "" {
		config, err := s.tls()
		if err != nil {
			return nil, err
		}
		return placementclient.New(placementclient.Config{
			Endpoint: cmp.Or(s.Endpoint, DefaultPlacement), Auth: placementclient.Token(s.Token), TLS: config})
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
		return nil, croft.Errorf(croft.Invalid, "placement.cert and placement.key name no certificate and its key: %w",
			err)
	}
	config.GetClientCertificate = load
	return config, nil
}

// Check finds what client would refuse, before anything is made.
func (s PlacementSettings) Check() error {
	client, err := s.Client()
	if err == nil {
		client.Close()
	}
	return err
}
