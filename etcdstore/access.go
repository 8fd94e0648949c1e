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

	"croft"
	"croft/internal/pemfile"
)

// Access says who we are to etcd and whom we take for it. The zero value is for a
// server that asks nobody, or one whose certificate the system's authorities signed.
type Access struct {
	CA    string // file of the authority of the servers' certificates; the system's where empty
	CAPEM string // the same as text, instead of a file
	Cert  string // files of the certificate and the key that we show to servers
	Key   string

	// TLS is used as it is, instead of the files.
	TLS *tls.Config

	User     string
	Password string
}

// isSecure tells whether the endpoints speak TLS. Invalid: some do and some do not,
// or what is set for TLS would not be used.
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
				"etcd.endpoints has http:// addresses, for which etcd.ca, etcd.cert and etcd.key are of no use: write https://, or remove those")
	}
	return secure > 0, nil
}

// tlsConfig reads the files, so that what is wrong with one is said before anybody is
// called. A certificate that is renewed is shown from the next connection on.
func (a Access) tlsConfig() (*tls.Config, error) {
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

// readCA sets the authorities that config trusts.
func (a Access) readCA(config *tls.Config) error {
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

// probeTime is how long finding out why nobody answers may take, for each endpoint.
const probeTime = time.Second

// refusal asks the endpoints that did not answer once more, in such a way that they,
// or their certificates, say why. Nil: nothing is known beyond that they do not answer.
func (c *Config) refusal(ctx context.Context, config *tls.Config) error {
	for _, endpoint := range c.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			continue
		}
		if config == nil {
			if speaksTLS(ctx, u.Host) {
				return croft.Errorf(croft.Invalid,
					"etcd at %s speaks TLS: write https://%s in etcd.endpoints, and set etcd.ca", endpoint, u.Host)
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

// handshake connects and waits for the first byte, since a server judges our
// certificate only after we judged its.
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
	_ = conn.SetReadDeadline(time.Now().Add(probeTime)) // a connection that is open takes it
	_, err = conn.Read(make([]byte, 1))
	return err
}

// speaksTLS tells whether a server wants TLS, whatever its certificate.
func speaksTLS(ctx context.Context, host string) bool {
	// nothing is said to it
	err := handshake(ctx, host, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	return err == nil || isAlert(err)
}

// isAlert tells whether the other side ended a handshake.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// explain turns the end of a handshake into a sentence; nil where it says nothing.
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
		return croft.Errorf(croft.Invalid, "what answers at %s is not etcd: set etcd.endpoints", endpoint)
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
