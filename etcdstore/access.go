package etcdstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/internal/pemfile"
)

// Embedded is an etcd in this process: an etcdserver.Server.
type Embedded interface {
	Endpoint() string
	Client() *clientv3.Client // calls the server without a connection
}

// Config holds the addresses of etcd, and how long to wait for it.
type Config struct {
	Endpoints   []string      // required, such as http://127.0.0.1:2379, or Embedded
	Embedded    Embedded      // a server in this process, closed after the store
	DialTimeout time.Duration // for the first answer; 3 s by default, 10 s with a login
	Credentials               // credentials for the endpoints
	// Mint allows Open to create an installation if etcd holds none. Only long-running processes set it; a command
	// reports that it found no installation.
	Mint bool
	// SessionTTL is how long unfinished requests of this process are left alone after its death; 30 s by default, in
	// whole seconds.
	SessionTTL time.Duration

	keepalive time.Duration                 // keepaliveTime by default; tests set it
	under     func(clientv3.KV) clientv3.KV // wraps the client's KV; for tests
}

// Credentials holds our credentials for etcd and the authorities that we trust. The zero value suits a server without
// authentication, or one whose certificate is signed by a system authority.
type Credentials struct {
	CA    string // file of the servers' CA certificate; system authorities if empty
	CAPEM string // like CA, as text instead of a file
	Cert  string // files of our client certificate and its key
	Key   string

	// TLS is used unchanged, instead of the files.
	TLS *tls.Config

	User     string
	Password string
}

// isSecure reports whether the endpoints use TLS. Invalid: only some of them do, or TLS settings would be ignored.
func (c *Config) isSecure() (bool, error) {
	secure := 0
	for _, endpoint := range c.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return false,
				croft.Errorf(croft.Invalid,
					"etcd.endpoints: %q is no address of a server, such as http://127.0.0.1:2379", endpoint)
		}
		if u.Scheme == "https" {
			secure++
		}
	}
	switch {
	case secure != 0 && secure != len(c.Endpoints):
		return false,
			croft.Errorf(croft.Invalid, "etcd.endpoints has http:// and https://: use one of them for all members")
	case secure == 0 && (c.CA != "" || c.CAPEM != "" || c.Cert != "" || c.Key != ""):
		return false,
			croft.Errorf(croft.Invalid,
				"etcd.endpoints has http:// addresses, which do not use etcd.ca, etcd.cert and etcd.key: write "+
					"https://, or remove these settings")
	}
	return secure > 0, nil
}

// tlsConfig reads the files immediately, so that errors in them are reported before any connection. A renewed
// certificate is presented from the next connection on.
func (a Credentials) tlsConfig() (*tls.Config, error) {
	if a.TLS != nil {
		config := a.TLS.Clone()
		config.NextProtos = []string{"h2"}
		return config, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if err := a.readCA(config); err != nil {
		return nil, err
	}
	switch {
	case a.Cert == "" && a.Key == "":
		return config, nil
	case a.Key == "":
		return nil, croft.Errorf(croft.Invalid, "etcd.cert is set and etcd.key is not: set the file of its key")
	case a.Cert == "":
		return nil, croft.Errorf(croft.Invalid, "etcd.key is set and etcd.cert is not: set the file of its certificate")
	}
	if err := pemfile.CheckPair("etcd.cert", a.Cert, "etcd.key", a.Key); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		return &pair, err
	}
	return config, nil
}

// readCA sets the authorities trusted by config.
func (a Credentials) readCA(config *tls.Config) error {
	text, name := []byte(a.CAPEM), "the given text"
	if a.CA != "" {
		name = a.CA
		var err error
		if text, err = pemfile.Read("etcd.ca", a.CA); err != nil {
			return err
		}
	}
	if len(text) == 0 {
		return nil
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return croft.Errorf(croft.Invalid, "etcd.ca: %s holds no certificate in PEM", name)
	}
	return nil
}

// probeTime is the time limit, per endpoint, of finding the reason why it does not answer.
const probeTime = time.Second

// refusal probes the endpoints that did not answer, to learn the reason from them or from their certificates. nil: no
// reason is known.
func (c *Config) refusal(ctx context.Context, config *tls.Config) error {
	for _, endpoint := range c.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			continue
		}
		if config == nil {
			if speaksTLS(ctx, u.Host) {
				return croft.Errorf(croft.Invalid,
					"etcd at %s speaks TLS: write https://%s in etcd.endpoints, and set etcd.ca; if it asks for certificates, "+
						"set etcd.cert and etcd.key too (local.yaml in the state directory of croft up has them)", endpoint, u.Host)
			}
			continue
		}
		err = handshake(ctx, u.Host, config)
		switch {
		case c.TLS != nil && isAlert(err):
			return croft.Errorf(croft.Invalid,
				"etcd at %s refuses the certificate of this host (%s): its authority was replaced before the host could renew it, "+
					"or the clock is wrong; a token of `croft token create --host NAME` lets the host join again",
				endpoint,
				alertText(err))
		case croft.KindOf(err) != "":
			return fmt.Errorf("etcd at %s: %w", endpoint, err)
		}
		if err := explain(err, endpoint, c.Cert); err != nil {
			return err
		}
	}
	return nil
}

// handshake connects and waits for the first byte, because a server verifies our certificate only after we have
// verified its own.
func handshake(ctx context.Context, host string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", host)
	if errors.Is(err, io.EOF) {
		return tls.RecordHeaderError{Msg: "closed in the middle of the handshake"}
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(probeTime)) // an open connection accepts a deadline
	_, err = conn.Read(make([]byte, 1))
	return err
}

// speaksTLS reports whether a server uses TLS, whatever its certificate.
func speaksTLS(ctx context.Context, host string) bool {
	// only the handshake is done; nothing is sent
	err := handshake(ctx, host, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	return err == nil || isAlert(err)
}

// isAlert reports whether the peer ended a handshake with an alert.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// explain returns the reason why a handshake failed; nil: the error gives no reason.
func explain(err error, endpoint, cert string) error {
	if err == nil {
		return nil
	}
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &authority):
		return croft.Errorf(croft.Invalid,
			"etcd at %s has a certificate of an authority that we do not know: set etcd.ca to the file of its authority", endpoint)
	case errors.As(err, &name):
		return croft.Errorf(croft.Invalid,
			"etcd at %s has a certificate for other names (%w): use one of those in etcd.endpoints", endpoint, name)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return croft.Errorf(croft.Unavailable,
			"etcd at %s has a certificate that is not valid now (%s): renew it there, or set the clock", endpoint,
			invalid.Detail)
	case errors.As(err, &invalid):
		return croft.Errorf(croft.Invalid, "etcd at %s has a certificate that is not good for a server (%w)", endpoint,
			invalid)
	case errors.As(err, &record):
		return croft.Errorf(croft.Invalid, "etcd at %s does not speak TLS: write http:// in etcd.endpoints", endpoint)
	case isAlert(err) && strings.Contains(err.Error(), "no application protocol"):
		return croft.Errorf(croft.Invalid, "the server at %s is not etcd: set etcd.endpoints", endpoint)
	case isAlert(err) && cert == "":
		return croft.Errorf(croft.Invalid, "etcd at %s wants to see a certificate: set etcd.cert and etcd.key",
			endpoint)
	case isAlert(err):
		return croft.Errorf(croft.Invalid,
			"etcd at %s refuses our certificate (%s): set etcd.cert and etcd.key to a pair that its authority signed for a client", endpoint, alertText(err))
	}
	return nil
}

func alertText(err error) string {
	return strings.TrimPrefix(fmt.Sprint(errors.Unwrap(err)), "tls: ")
}
