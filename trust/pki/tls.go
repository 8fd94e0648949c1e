package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"time"

	"croft"
)

// Server returns the TLS configuration of a server with this certificate, for clients with a valid certificate of the
// same authority and partition that accept allows; with optional also for clients without one. Each connection is
// checked.
func (f Files) Server(p croft.PartitionID, optional bool, accept Accept) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}, SessionTicketsDisabled: true,
		ClientAuth: tls.RequireAndVerifyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil // optional: otherwise the handshake has failed already
			}
			return judge(state.PeerCertificates[0], p, accept)
		},
	}
	if optional {
		base.ClientAuth = tls.VerifyClientCertIfGiven
	}
	// Per connection, so that the files are read again.
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := f.Load()
		if err != nil {
			return nil, err
		}
		roots, err := f.Roots()
		if err != nil {
			return nil, err
		}
		fresh := base.Clone()
		fresh.Certificates, fresh.ClientCAs, fresh.GetConfigForClient = []tls.Certificate{*pair}, roots, nil
		return fresh, nil
	}
	return base
}

// Client returns the TLS configuration of a client with this certificate, for servers with a valid certificate
// of the same authority and partition that accept allows. The server's name is not checked: its certificate
// contains its identity.
func (f Files) Client(p croft.PartitionID, accept Accept) *tls.Config {
	config := verifying(f.Roots, p, accept)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.Load() }
	return config
}

// Client returns the TLS configuration of a client without a certificate that trusts these authorities.
func Client(trusted []byte, p croft.PartitionID, accept Accept) *tls.Config {
	return verifying(func() (*x509.CertPool, error) { return pool("the trusted authorities", trusted) }, p, accept)
}

// Pinned returns the TLS configuration of a client that knows only the pin of the authority.
func Pinned(pin string, p croft.PartitionID, accept Accept) *tls.Config {
	config := client()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		roots := x509.NewCertPool()
		for _, c := range state.PeerCertificates {
			if Pin(c) == pin {
				roots.AddCert(c)
				return verify(state.PeerCertificates, roots, p, accept)
			}
		}
		return croft.Errorf(croft.Invalid,
			"the server has no certificate of the given authority: it is the wrong server, or the authority has been replaced since")
	}
	return config
}

// client leaves verification to VerifyConnection, which runs in every handshake: crypto/tls would verify the
// server's address.
func client() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
}

func verifying(roots func() (*x509.CertPool, error), p croft.PartitionID, accept Accept) *tls.Config {
	config := client()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		pool, err := roots()
		if err != nil {
			return err
		}
		return verify(state.PeerCertificates, pool, p, accept)
	}
	return config
}

// verify verifies the certificates of a server.
func verify(shown []*x509.Certificate, roots *x509.CertPool, p croft.PartitionID, accept Accept) error {
	if len(shown) == 0 {
		return croft.Errorf(croft.Invalid, "the server shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return Explain("the server", err)
	}
	return judge(shown[0], p, accept)
}

// judge checks partition and identity of a verified certificate.
func judge(c *x509.Certificate, p croft.PartitionID, accept Accept) error {
	i, err := IdentityOf(c)
	if err != nil {
		return err
	}
	if i.Partition != p {
		return croft.Errorf(croft.Invalid, "the certificate is of another cloud (%s)", i.Partition)
	}
	return accept(i)
}

// Explain describes the problem with the certificate of a peer or, if the peer ended the handshake, with ours. Other
// errors are returned unchanged.
func Explain(who string, err error) error {
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		remote    *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return croft.Errorf(croft.Invalid, "%s has a certificate of an authority that we do not know", who)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && time.Now().Before(invalid.Cert.NotBefore):
		return croft.Errorf(croft.Unavailable,
			"%s has a certificate that counts from %s on: set the clocks, there or here", who,
			invalid.Cert.NotBefore.Format(time.DateTime))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return croft.Errorf(croft.Unavailable,
			"the certificate of %s expired on %s: renew it there, or set the clock", who,
			invalid.Cert.NotAfter.Format(time.DateTime))
	case errors.As(err, &invalid):
		return croft.Errorf(croft.Invalid, "%s has a certificate that is not good for this (%w)", who, invalid)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return croft.Errorf(croft.Invalid, "%s refuses our certificate (%s)", who,
			strings.TrimPrefix(remote.Err.Error(), "tls: "))
	}
	return err
}
