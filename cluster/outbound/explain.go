package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"

	"croft"
	"croft/internal/plain"
)

// Explain says in one sentence why a call to a server failed without a usable response. It names the server, and
// nothing else of the request.
func Explain(server string, err error) string {
	if inner := innermost(err); inner != nil {
		return plain.Cut(server+": "+inner.Error(), 500)
	}
	return plain.Cut(server+" "+reason(err), 500)
}

// NoResponse reports whether a call failed before any HTTP response arrived. A page of a proxy, a redirect that is not
// followed and a body of the wrong form are responses.
func NoResponse(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || certificate(err) != "" {
		return true
	}
	for _, broken := range []error{io.EOF, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE} {
		if errors.Is(err, broken) {
			return true
		}
	}
	network, is := errors.AsType[net.Error](err)
	if !is {
		return false
	}
	if _, is := errors.AsType[*net.OpError](err); is {
		return true
	}
	if _, is := errors.AsType[*net.DNSError](err); is {
		return true
	}
	return network.Timeout()
}

// innermost returns the error of this package in err, or nil.
func innermost(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if croft.KindOf(err) == "" {
		return nil
	}
	return err
}

// reason returns a predicate whose subject is the server.
func reason(err error) string {
	if text := certificate(err); text != "" {
		return text
	}
	var network net.Error
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "does not answer in time"
	case errors.Is(err, context.Canceled):
		return "was not waited for"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refuses connections"
	case errors.As(err, &syntax), errors.As(err, &mistyped), errors.Is(err, io.ErrUnexpectedEOF):
		return "answers something that is not JSON as expected"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "closed the connection without an answer"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "has no address: " + dns.Err
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL
	}
	return "does not answer: " + err.Error()
}

// certificate words the errors of TLS.
func certificate(err error) string {
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("has a certificate for %s, not for %s", names(e.Certificate), e.Host)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "has a certificate that no known authority signed; give the CA certificate"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired {
			return fmt.Sprintf("has a certificate that is valid from %s to %s",
				e.Cert.NotBefore.UTC().Format("2006-01-02"),
				e.Cert.NotAfter.UTC().Format("2006-01-02"))
		}
		return "has an invalid certificate: " + e.Error()
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "has an invalid certificate: " + e.Err.Error()
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "does not speak TLS; is it http:// instead?"
	}
	return ""
}

// names lists the names and addresses in a certificate.
func names(c *x509.Certificate) string {
	all := c.DNSNames
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "nobody"
	}
	return strings.Join(all[:min(len(all), 5)], ", ")
}
