package direct

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"os"
	"strings"

	"croft"
	"croft/etcdstore"
)

// DefaultEtcd is the address of etcd if none is configured.
const DefaultEtcd = "http://127.0.0.1:2379"

// EtcdSettings hold the addresses of etcd and the client's credentials for it. The type is exported because it is
// embedded inline in other settings, whose fields must be exported.
type EtcdSettings struct {
	Endpoints    []string `yaml:"endpoints"` // empty: not set, which differs from set to DefaultEtcd
	CA           string   `yaml:"ca"`
	Cert         string   `yaml:"cert"`
	Key          string   `yaml:"key"`
	User         string   `yaml:"user"`
	PasswordFile string   `yaml:"password_file"`

	CAPEM string      `yaml:"-"` // text of CA, for a joined cloud
	TLS   *tls.Config `yaml:"-"` // replaces all files, for a cloud that issued certificates to this host
	// SealKeys are files of keys that seal secrets of clusters in this etcd. They are known only if the etcd was found
	// through this machine's note, so one cloud's secrets are never sealed with another cloud's key.
	SealKeys []string `yaml:"-"`
	// FenceFile is the file of the fence agents of the hosts of this etcd. It is known in the same cases.
	FenceFile string `yaml:"-"`
}

// EndpointsFromEnv returns the endpoints in ETCDCTL_ENDPOINTS, none if it is not set. etcdctl permits endpoints without
// a scheme, and uses TLS for them if an authority is configured.
func EndpointsFromEnv(env func(string) string) []string {
	text := env("ETCDCTL_ENDPOINTS")
	if text == "" {
		return []string{}
	}
	scheme := "http://"
	if env("ETCDCTL_CACERT") != "" || env("ETCDCTL_CERT") != "" {
		scheme = "https://"
	}
	var all []string
	for endpoint := range strings.SplitSeq(text, ",") {
		if endpoint = strings.TrimSpace(endpoint); !strings.Contains(endpoint, "://") {
			endpoint = scheme + endpoint
		}
		all = append(all, endpoint)
	}
	return all
}

// SetDefault sets the default address if nothing has set an address.
func (s *EtcdSettings) SetDefault() {
	if len(s.Endpoints) == 0 {
		s.Endpoints = []string{DefaultEtcd}
	}
}

// Config returns the configuration of the store. It comes from the settings, and from etcdctl's variables where they
// are unset.
func (s EtcdSettings) Config(env func(string) string) (etcdstore.Config, error) {
	if s.TLS != nil {
		return etcdstore.Config{Endpoints: s.Endpoints, Credentials: etcdstore.Credentials{TLS: s.TLS}}, nil
	}
	access := etcdstore.Credentials{CA: s.CA, CAPEM: s.CAPEM, Cert: s.Cert, Key: s.Key, User: s.User}
	if s.usesTLS() {
		if access.CA == "" && access.CAPEM == "" {
			access.CA = env("ETCDCTL_CACERT")
		}
		if access.Cert == "" && access.Key == "" {
			access.Cert, access.Key = env("ETCDCTL_CERT"), env("ETCDCTL_KEY")
		}
	}
	password := env("ETCDCTL_PASSWORD")
	if access.User == "" {
		var with string
		access.User, with, _ = strings.Cut(env("ETCDCTL_USER"), ":")
		if with != "" {
			password = with
		}
	}
	var err error
	if s.PasswordFile != "" {
		password, err = ReadSecret("etcd.password_file", s.PasswordFile)
	}
	if access.User != "" {
		access.Password = password
	} else if s.PasswordFile != "" && err == nil {
		err = croft.Errorf(croft.Invalid, "etcd.password_file is set and etcd.user is not: set both")
	}
	return etcdstore.Config{Endpoints: s.Endpoints, Credentials: access}, err
}

// usesTLS reports whether to use etcdctl's certificate files, which may belong to another cluster.
func (s EtcdSettings) usesTLS() bool {
	for _, endpoint := range s.Endpoints {
		if !strings.HasPrefix(endpoint, "https://") {
			return false
		}
	}
	return true
}

// ReadSecret reads the file that a setting names; only its owner and group may have read permission.
func ReadSecret(setting, path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", croft.Errorf(croft.Invalid, "%s: there is no file %s", setting, path)
	}
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "%s: %w", setting, err)
	}
	if info.Mode().IsRegular() && info.Mode()&0o007 != 0 {
		return "", croft.Errorf(croft.Invalid, "%s: everybody may read %s: chmod o= %s", setting, path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "%s: %w", setting, err)
	}
	if secret := strings.TrimRight(string(text), "\r\n"); secret != "" {
		return secret, nil
	}
	return "", croft.Errorf(croft.Invalid, "%s: %s is empty", setting, path)
}

// Open connects to etcd. mint allows long-running parts to create an installation there.
func (s EtcdSettings) Open(ctx context.Context, mint bool) (*etcdstore.Store, error) {
	c, err := s.Config(os.Getenv)
	if err != nil {
		return nil, err
	}
	c.Mint = mint
	return etcdstore.Open(ctx, c)
}

// Authority returns the text of the authority that verifies etcd's certificates; empty for the system's
// authorities, or without TLS.
func (s EtcdSettings) Authority() (string, error) {
	c, err := s.Config(os.Getenv)
	if err != nil || c.CA == "" {
		return "", err
	}
	text, err := os.ReadFile(c.CA)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "etcd.ca: %w", err)
	}
	return string(text), nil
}
