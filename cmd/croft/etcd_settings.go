package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"

	"croft"
	"croft/etcdstore"
	"croft/internal/pki"
)

// defaultEtcd is where etcd is when nobody says so.
const defaultEtcd = "http://127.0.0.1:2379"

// EtcdSettings say where etcd is and who we are to it. Its name is exported because
// it is inline in other settings, where fields have to be.
type EtcdSettings struct {
	Endpoints    []string `yaml:"endpoints"`
	CA           string   `yaml:"ca"`
	Cert         string   `yaml:"cert"`
	Key          string   `yaml:"key"`
	User         string   `yaml:"user"`
	PasswordFile string   `yaml:"password_file"`

	CAPEM string      `yaml:"-"` // the text of ca, of a cloud that was joined
	TLS   *tls.Config `yaml:"-"` // instead of all files, of a cloud that gave us certificates
}

// etcdFromEnv are the endpoints that ETCDCTL_ENDPOINTS names, as defaults. etcdctl
// lets the scheme out, and means TLS where an authority is named.
func etcdFromEnv(env func(string) string) []string {
	text := env("ETCDCTL_ENDPOINTS")
	if text == "" {
		return []string{defaultEtcd}
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

// config is what to open the store with: the settings, and for what they do not set
// etcdctl's variables.
func (s EtcdSettings) config(env func(string) string) (etcdstore.Config, error) {
	if s.TLS != nil {
		return etcdstore.Config{Endpoints: s.Endpoints, Access: etcdstore.Access{TLS: s.TLS}}, nil
	}
	access := etcdstore.Access{CA: s.CA, CAPEM: s.CAPEM, Cert: s.Cert, Key: s.Key, User: s.User}
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
		password, err = readSecret("etcd.password_file", s.PasswordFile)
	}
	if access.User != "" {
		access.Password = password
	} else if s.PasswordFile != "" && err == nil {
		err = croft.Errorf(croft.Invalid, "etcd.password_file is set and etcd.user is not: say whose password it is")
	}
	return etcdstore.Config{Endpoints: s.Endpoints, Access: access}, err
}

// usesTLS tells whether etcdctl's files, which may be for another cluster, can be meant.
func (s EtcdSettings) usesTLS() bool {
	for _, endpoint := range s.Endpoints {
		if !strings.HasPrefix(endpoint, "https://") {
			return false
		}
	}
	return true
}

// readSecret reads a file that a setting names and that only its owner and group may read.
func readSecret(setting, path string) (string, error) {
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

// open connects to etcd. A part that runs for long may begin an installation there.
func (s EtcdSettings) open(ctx context.Context, mint bool) (*etcdstore.Store, error) {
	c, err := s.config(os.Getenv)
	if err != nil {
		return nil, err
	}
	c.Mint = mint
	return etcdstore.Open(ctx, c)
}

// startEtcd starts an etcd in this process, as c says, and returns what to open the
// store with. One that others reach has to be protected, by certificates of
// our own authority or of another, or to be meant not to be.
func (s *hostSettings) startEtcd(ctx context.Context, c etcdstore.EmbeddedConfig, own *trust) (*etcdstore.Embedded, etcdstore.Config, error) {
	var open etcdstore.Config
	c.Listen = s.Etcd.Listen
	c.Cert, c.Key, c.ClientCA = s.Etcd.ListenCert, s.Etcd.ListenKey, s.Etcd.ListenClientCA
	if own.has(pki.Etcd) {
		f := own.files(pki.Etcd)
		c.Cert, c.Key, c.ClientCA = f.Pair(), f.Pair(), f.CA()
	} else if err := s.checkEtcdListen(); err != nil {
		return nil, open, err
	}
	if s.Etcd.User != "" {
		var err error
		if open, err = s.Etcd.config(func(string) string { return "" }); err != nil {
			return nil, open, err
		}
	}
	etcd, err := etcdstore.StartEmbedded(ctx, c)
	open.Embedded, open.Mint = etcd, true
	return etcd, open, err
}

// checkOwnEtcd is checkEtcdListen for a cloud that has an authority of its own.
func (s *hostSettings) checkOwnEtcd() error {
	if s.ownsEtcdTrust() {
		return nil
	}
	return s.checkEtcdListen()
}

// checkEtcdListen refuses an etcd that whoever reaches it may read and write, unless
// that is said to be meant.
func (s *hostSettings) checkEtcdListen() error {
	if _, _, err := net.SplitHostPort(s.Etcd.Listen); err != nil {
		return croft.Errorf(croft.Invalid, "etcd.listen: %q is not IP:PORT", s.Etcd.Listen)
	}
	if !s.beyond(s.Etcd.Listen) || s.Etcd.ListenCert != "" && s.Etcd.ListenClientCA != "" {
		return nil
	}
	return croft.Errorf(croft.Invalid, "etcd.listen: whoever reaches %s could read and change everything in this cloud; "+
		"set etcd.listen_cert, etcd.listen_key and etcd.listen_client_ca, so that clients have to show a certificate, or, in a network that only your hosts are in, --insecure", s.Etcd.Listen)
}
