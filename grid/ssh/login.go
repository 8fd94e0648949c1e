package ssh

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// agentPatience is how long the agent may take for an answer; it may have to ask its user.
const agentPatience = time.Minute

const keyFileMax = 1 << 16

// A login has what one connection logs in with, and what was left out, for the message when that does not do.
type login struct {
	target  *target
	signers []ssh.Signer
	names   []string // of the signers
	left    []string // sentences about what could not be used
	agent   net.Conn
}

func (g *login) close() {
	if g.agent != nil {
		_ = g.agent.Close() // it was asked all that it is asked
	}
}

func (g *login) add(s ssh.Signer, format string, args ...any) {
	for _, had := range g.signers {
		if bytes.Equal(had.PublicKey().Marshal(), s.PublicKey().Marshal()) {
			return
		}
	}
	name := fmt.Sprintf(format, args...)
	s, err := g.target.accept(s)
	if err != nil {
		g.leave("%s: %v", name, err)
		return
	}
	g.signers = append(g.signers, s)
	g.names = append(g.names, name)
}

func (g *login) leave(format string, args ...any) {
	g.left = append(g.left, fmt.Sprintf(format, args...))
}

// tell says what was tried, and what could not be.
func (g *login) tell() string {
	tried := "no key was found"
	if len(g.names) > 0 {
		tried = "tried: " + strings.Join(g.names, ", ")
	}
	return strings.Join(append([]string{tried}, g.left...), "; ")
}

// newLogin gathers what to log in with: the agent's keys, then keys with certificates, then key files. credential may
// be nil.
func newLogin(ctx context.Context, t *target, credential Credential) *login {
	g := &login{target: t}
	files := readKeys(g, t)
	inAgent := g.askAgent(ctx, t, files)
	if credential != nil {
		signers, err := credential.Signers(ctx)
		if err != nil {
			g.leave("no certificate: %v", err)
		}
		for _, s := range signers {
			g.add(s, "certificate %s", certificateName(s.PublicKey()))
		}
	}
	for _, path := range certificateFiles(t, files) {
		g.addCertificate(path, files, inAgent)
	}
	for _, f := range files {
		if f.signer != nil {
			g.add(f.signer, "key %s", f.path)
		}
	}
	return g
}

// A keyFile is a file of the user's with a private key, as far as it could be read.
type keyFile struct {
	path   string
	signer ssh.Signer    // nil: the file cannot be used
	public ssh.PublicKey // nil: not known
}

func readKeys(g *login, t *target) (files []keyFile) {
	for _, path := range t.identities {
		f := keyFile{path: path}
		text, err := readSmall(path)
		if errors.Is(err, fs.ErrNotExist) && !t.chosen {
			continue
		}
		if err == nil {
			f.signer, err = parseKey(text)
		}
		if err == nil {
			err = private(path)
		}
		var locked *ssh.PassphraseMissingError
		switch {
		case errors.As(err, &locked):
			f.public = locked.PublicKey
			g.leave("%s has a passphrase: ssh-add %s", path, path)
		case err != nil:
			g.leave("%s: %v", path, err)
			f.signer = nil
		default:
			f.public = f.signer.PublicKey()
		}
		if pub, err := readPublic(path + ".pub"); f.public == nil && err == nil {
			f.public = pub
		}
		files = append(files, f)
	}
	return files
}

// private is the error of a key file that others may read.
func private(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("others may read this private key (mode %#o): chmod 600 %s", info.Mode().Perm(), path)
	}
	return err
}

// parseKey reads a private key. RSA keys sign with SHA-2 alone, DSA keys are refused.
func parseKey(text []byte) (ssh.Signer, error) {
	key, err := ssh.ParseRawPrivateKey(text)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("a key of this type is not used")
	}
	s, err := ssh.NewSignerFromSigner(signer)
	if err != nil {
		return nil, err
	}
	return modern(s)
}

// modern keeps a signer from signatures that are broken.
func modern(s ssh.Signer) (ssh.Signer, error) {
	switch key := s.PublicKey().(type) {
	case *ssh.Certificate:
		if key.Key.Type() != ssh.KeyAlgoRSA {
			return s, nil
		}
	default:
		if key.Type() == "ssh-dss" {
			return nil, errors.New("DSA keys are broken")
		}
		if key.Type() != ssh.KeyAlgoRSA {
			return s, nil
		}
	}
	with, ok := s.(ssh.AlgorithmSigner)
	if !ok {
		return nil, errors.New("this RSA key can sign with SHA-1 alone")
	}
	return ssh.NewSignerWithAlgorithms(with, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
}

// askAgent adds the agent's keys, and returns all of them, since a certificate in a file may be of one.
func (g *login) askAgent(ctx context.Context, t *target, files []keyFile) []ssh.Signer {
	if t.agent == none || t.agent == "" {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: agentPatience}).DialContext(ctx, "unix", t.agent)
	if err != nil {
		g.leave("the agent does not answer: %v", err)
		return nil
	}
	g.agent = conn
	if err := conn.SetDeadline(time.Now().Add(2 * agentPatience)); err != nil {
		g.leave("the agent cannot be asked: %v", err)
		return nil
	}
	all, err := agent.NewClient(conn).Signers()
	if err != nil {
		g.leave("the agent does not list its keys: %v", err)
		return nil
	}
	wanted := func(key ssh.PublicKey) bool {
		if cert, is := key.(*ssh.Certificate); is {
			key = cert.Key
		}
		for _, f := range files {
			if f.public != nil && bytes.Equal(f.public.Marshal(), key.Marshal()) {
				return true
			}
		}
		return false
	}
	add := func(which bool) {
		for _, s := range all {
			safe, err := modern(s)
			if err == nil && wanted(s.PublicKey()) == which {
				g.add(safe, "the agent's %s", ssh.FingerprintSHA256(s.PublicKey()))
			}
		}
	}
	add(true) // sshd may let us try six keys only
	if !t.only {
		add(false)
	}
	return all
}

// certificateFiles lists where certificates may be: those named, and those beside key files.
func certificateFiles(t *target, files []keyFile) []string {
	list := t.certificates
	for _, f := range files {
		if path := f.path + "-cert.pub"; fileExists(path) {
			list = append(list, path)
		}
	}
	return list
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// addCertificate adds the certificate of a file, if its private key is in a key file or the agent.
func (g *login) addCertificate(path string, files []keyFile, inAgent []ssh.Signer) {
	key, err := readPublic(path)
	if err != nil {
		g.leave("%s: %v", path, err)
		return
	}
	cert, is := key.(*ssh.Certificate)
	if !is {
		g.leave("%s is not a certificate", path)
		return
	}
	if end := time.Unix(int64(min(cert.ValidBefore, 1<<62)), 0); cert.ValidBefore != ssh.CertTimeInfinity &&
		time.Now().After(end) {
		g.leave("%s ended at %s", path, end.UTC().Format(time.RFC3339))
		return
	}
	var owner ssh.Signer
	for _, f := range files {
		if f.signer != nil && bytes.Equal(f.public.Marshal(), cert.Key.Marshal()) {
			owner = f.signer
		}
	}
	for _, s := range inAgent {
		if safe, err := modern(s); err == nil && bytes.Equal(s.PublicKey().Marshal(), cert.Key.Marshal()) {
			owner = safe
		}
	}
	if owner == nil {
		g.leave("%s: its private key is in no key file that can be used, and not in the agent", path)
		return
	}
	s, err := ssh.NewCertSigner(cert, owner)
	if err != nil {
		g.leave("%s: %v", path, err)
		return
	}
	g.add(s, "certificate %s (%s)", certificateName(cert), path)
}

func certificateName(key ssh.PublicKey) string {
	if cert, is := key.(*ssh.Certificate); is {
		return fmt.Sprintf("%q", cert.KeyId)
	}
	return ssh.FingerprintSHA256(key)
}

func readPublic(path string) (ssh.PublicKey, error) {
	text, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	return key, err
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not a file"))
	}
	text, err := io.ReadAll(io.LimitReader(f, keyFileMax+1))
	if err == nil && len(text) > keyFileMax {
		err = fmt.Errorf("more than %d bytes are no key", keyFileMax)
	}
	return text, err
}
