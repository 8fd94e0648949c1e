package sshca

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os/user"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"croft"
	"croft/internal/wording"
)

// keyMax is the maximum length of the text of a public key, in bytes.
const keyMax = 16 << 10

// rsaLeast is the minimum size of an RSA key, in bits.
const rsaLeast = 2048

// ParseKey parses one public key in the format of ssh-keygen. Invalid: the text is not one public key, is a
// certificate, or is a weak key (DSA, or RSA of less than rsaLeast bits).
func ParseKey(text []byte) (ssh.PublicKey, error) {
	if len(text) > keyMax {
		return nil, croft.Errorf(croft.Invalid, "a public key has less than %d bytes", keyMax)
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey(text)
	switch {
	case strings.Contains(string(text), "PRIVATE KEY"):
		return nil, croft.Errorf(croft.Invalid, "this is a private key: give the public one, in the file with .pub")
	case err != nil:
		return nil, croft.Errorf(croft.Invalid, "this is not a public key as ssh-keygen writes it: %w", err)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, croft.Errorf(croft.Invalid, "there is more than one line: give one public key")
	case len(options) > 0:
		return nil, croft.Errorf(croft.Invalid, "there are options before the key: give the public key alone")
	}
	if cert, is := key.(*ssh.Certificate); is {
		return nil, croft.Errorf(croft.Invalid, "this is the certificate %q: give the public key", cert.KeyId)
	}
	if key.Type() == "ssh-dss" {
		return nil, croft.Errorf(croft.Invalid, "DSA keys are broken: make another with ssh-keygen -t ed25519")
	}
	if c, is := key.(ssh.CryptoPublicKey); is {
		if r, is := c.CryptoPublicKey().(*rsa.PublicKey); is && r.N.BitLen() < rsaLeast {
			return nil, croft.Errorf(croft.Invalid, "an RSA key of %d bits is too short: make another with "+
				"ssh-keygen -t ed25519", r.N.BitLen())
		}
	}
	return key, nil
}

// A Request asks for a user's certificate.
type Request struct {
	Key  ssh.PublicKey
	User string
	Role string        // empty: the user's only role
	TTL  time.Duration // 0: the role's default
}

// SignUser signs a user's certificate, if a role allows it. Denied: no role does. Invalid: the request is wrong.
func (a *CA) SignUser(ctx context.Context, r Request) (*ssh.Certificate, error) {
	if !nameForm.MatchString(r.User) {
		return nil, croft.Errorf(croft.Invalid, "%q is not a user's name", r.User)
	}
	roles, err := a.Roles()
	if err != nil {
		return nil, err
	}
	name, role, err := roles.allowed(r.User, r.Role)
	if err != nil {
		return nil, err
	}
	ttl := r.TTL
	if ttl == 0 {
		ttl = role.usual()
	}
	if err := checkTTL(ttl, role.longest(), "the role "+name); err != nil {
		return nil, err
	}
	cert := &ssh.Certificate{Key: r.Key, CertType: ssh.UserCert, KeyId: r.User + "@" + name}
	for _, p := range role.Principals {
		cert.ValidPrincipals = append(cert.ValidPrincipals, strings.ReplaceAll(p, "${user}", r.User))
	}
	cert.Extensions = map[string]string{}
	for _, e := range role.Extensions {
		cert.Extensions[e] = ""
	}
	cert.CriticalOptions = map[string]string{}
	if len(role.SourceAddress) > 0 {
		cert.CriticalOptions["source-address"] = strings.Join(role.SourceAddress, ",")
	}
	if role.ForceCommand != "" {
		cert.CriticalOptions["force-command"] = role.ForceCommand
	}
	return a.sign(ctx, User, cert, ttl)
}

// SignHost signs the certificate of a host's key. names are the names and addresses by which clients reach the host. A
// ttl of 0 means 90 days; the maximum is 366 days. Invalid: the request is wrong. Denied: the ttl is too long.
func (a *CA) SignHost(ctx context.Context, key ssh.PublicKey, node string, names []string,
	ttl time.Duration) (*ssh.Certificate, error) {
	if !nameForm.MatchString(node) {
		return nil, croft.Errorf(croft.Invalid, "%q is not a node's name", node)
	}
	if ttl == 0 {
		ttl = hostTTLDefault
	}
	if err := checkTTL(ttl, hostTTLMax, "a host"); err != nil {
		return nil, err
	}
	cert := &ssh.Certificate{Key: key, CertType: ssh.HostCert, KeyId: node, ValidPrincipals: []string{node}}
	for _, n := range names {
		if !principalForm.MatchString(n) && !strings.HasPrefix(n, "::") || strings.ContainsAny(n, "@/+ ,") {
			return nil, croft.Errorf(croft.Invalid, "%q is not a name or address of a host", n)
		}
		if n != node {
			cert.ValidPrincipals = append(cert.ValidPrincipals, n)
		}
	}
	return a.sign(ctx, Host, cert, ttl)
}

func checkTTL(ttl, most time.Duration, of string) error {
	switch {
	case ttl <= 0:
		return croft.Errorf(croft.Invalid, "a certificate cannot be valid for %s: give a positive time",
			wording.Duration(ttl))
	case ttl < time.Second:
		return croft.Errorf(croft.Invalid, "a certificate is valid for whole seconds, not for %s",
			wording.Duration(ttl))
	case ttl > most:
		return croft.Errorf(croft.Denied, "%s is too long: %s may have at most %s", wording.Duration(ttl), of,
			wording.Duration(most))
	}
	return nil
}

// sign completes and signs a certificate, logs it, and returns it. It appends the serial number to the KeyId.
func (a *CA) sign(ctx context.Context, k Kind, cert *ssh.Certificate, ttl time.Duration) (*ssh.Certificate,
	error) {
	if len(cert.ValidPrincipals) == 0 {
		return nil, croft.Errorf(croft.Invalid, "a certificate without principals would be valid for every user")
	}
	if err := a.refuseRevoked(cert.Key); err != nil {
		return nil, err
	}
	s, end, err := a.signer(ctx, k)
	if err != nil {
		return nil, err
	}
	defer end()
	l, err := a.open()
	if err != nil {
		return nil, err
	}
	defer l.close()
	now := time.Now()
	if cert.Serial, err = l.next(now); err != nil {
		return nil, fmt.Errorf("take a serial number: %w", err)
	}
	cert.KeyId = fmt.Sprintf("%s#%d", cert.KeyId, cert.Serial)
	cert.ValidAfter = uint64(now.Add(-backdated).Unix())
	cert.ValidBefore = uint64(now.Add(ttl).Unix())
	if err := cert.SignCert(rand.Reader, s); err != nil {
		return nil, croft.Errorf(croft.Unavailable, "sign: %w", err)
	}
	e := Issued{
		Time: now.UTC().Truncate(time.Second), Serial: cert.Serial, Kind: k, ID: cert.KeyId,
		Principals: cert.ValidPrincipals, From: unix(cert.ValidAfter), To: unix(cert.ValidBefore),
		Key: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(cert.Key))),
	}
	if me, err := user.Current(); err == nil {
		e.By = me.Username
	}
	if err := l.add(e); err != nil {
		return nil, err // a certificate is handed out only after it is logged
	}
	return cert, nil
}

func unix(seconds uint64) time.Time { return time.Unix(int64(seconds), 0).UTC() }

// Text returns a certificate in the format of OpenSSH, with its key id as the comment.
func Text(cert *ssh.Certificate) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(cert))) + " " + cert.KeyId + "\n"
}
