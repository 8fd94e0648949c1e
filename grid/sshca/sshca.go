// Package sshca is a file-based certificate authority for SSH. The rules for certificates are in the directory ca/ of
// the repository. The private keys and the log of issued certificates are in a directory outside of the repository, on
// the machine that signs.
//
// Serial numbers never repeat. A certificate is handed out only after it has been logged on the disk.
package sshca

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"croft"
	"croft/internal/durable"
)

// Kind is the kind of certificates that an authority signs.
type Kind string

// The kinds: certificates of users, who log in, and of hosts, to which they log in.
const (
	User Kind = "user"
	Host Kind = "host"
)

// Kinds lists both kinds.
var Kinds = []Kind{User, Host}

// A CA signs certificates of users and of hosts, with a key for each.
type CA struct {
	Dir  string // ca/ of the repository: KIND.pub, roles.yaml, and the lists of revocations
	Keys string // directory of KIND_ca, serial, issued.log and its index; outside of the repository
	// Agent is the socket of an ssh-agent that has the private keys; empty: they are in Keys.
	Agent string
	// Passphrase asks for the passphrase of a key; nil: only keys without one can be used.
	Passphrase func(ctx context.Context, key string) ([]byte, error)
}

func (a *CA) publicFile(k Kind) string  { return filepath.Join(a.Dir, string(k)+".pub") }
func (a *CA) privateFile(k Kind) string { return filepath.Join(a.Keys, string(k)+"_ca") }

// Public returns the public key of an authority. NotFound: it does not exist yet. Invalid: the key cannot be used.
func (a *CA) Public(k Kind) (ssh.PublicKey, error) {
	file := a.publicFile(k)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, croft.Errorf(croft.NotFound, "there is no %s: make an authority with croft sshca init", file)
	} else if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the authority: %w", err)
	}
	key, _, _, rest, err := ssh.ParseAuthorizedKey(text)
	if err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, croft.Errorf(croft.Invalid, "%s is not one public key", file)
	}
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoSKECDSA256:
		return key, nil
	}
	return nil, croft.Errorf(croft.Invalid, "%s has a key of type %s: an authority signs with ed25519 or ECDSA", file,
		key.Type())
}

// Init makes the keys of both authorities and the files of ca/, each only if it is missing. made lists the new files.
// passphrase encrypts new private keys; nil: they are not encrypted. Conflict: a private key exists without its public
// key. Invalid: the private keys would be inside the repository.
func (a *CA) Init(ctx context.Context, passphrase []byte) (made []string, err error) {
	if err := a.apart(); err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(a.Dir, 0o755), os.MkdirAll(a.Keys, 0o700)); err != nil {
		return nil, croft.Errorf(croft.Invalid, "make an authority: %w", err)
	}
	// Two concurrent runs would each write a key pair. One lock excludes runs that share the repository, the other one
	// runs that share the directory of keys.
	for _, lock := range []func() (*os.File, error){a.lockRepository, a.lockKeys} {
		f, err := lock()
		if err != nil {
			return nil, fmt.Errorf("make an authority: %w", err)
		}
		defer f.Close()
	}
	for _, k := range Kinds {
		is, err := a.initKey(k, passphrase)
		if err != nil {
			return made, err
		}
		made = append(made, is...)
	}
	roles := a.rolesFile()
	if _, err := os.Stat(roles); errors.Is(err, fs.ErrNotExist) {
		if err := durable.Write(roles, []byte(firstRoles), 0o644); err != nil {
			return made, err
		}
		made = append(made, roles)
	}
	if _, err := os.Stat(a.RevokedFile()); errors.Is(err, fs.ErrNotExist) {
		if err := a.writeRevoked(nil); err != nil {
			return made, err
		}
		made = append(made, a.RevokedFile())
	}
	if _, err := os.Stat(a.KRLFile()); errors.Is(err, fs.ErrNotExist) {
		if err := a.WriteLists(ctx); err != nil { // sshd refuses all logins if its RevokedKeys file is missing
			return made, err
		}
		made = append(made, a.KRLFile(), a.RevokedKeysFile())
	}
	return made, nil
}

// Missing reports whether Init would make a key.
func (a *CA) Missing() bool {
	for _, k := range Kinds {
		if _, err := os.Stat(a.publicFile(k)); err != nil {
			return true
		}
	}
	return false
}

// apart checks that the private keys are not inside the repository, which is the parent directory of ca/. Invalid.
func (a *CA) apart() error {
	repository, err := filepath.Abs(filepath.Dir(a.Dir))
	if err != nil {
		return err
	}
	keys, err := filepath.Abs(a.Keys)
	if err != nil {
		return err
	}
	if keys = resolved(keys); within(resolved(repository), keys) {
		return croft.Errorf(croft.Invalid, "%s lies in the repository %s: keep private keys outside of it (--keys)", a.Keys,
			repository)
	}
	return nil
}

// resolved follows the symlinks of the part of a path that exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolved(parent), filepath.Base(path))
	}
	return path
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

func (a *CA) initKey(k Kind, passphrase []byte) (made []string, err error) {
	_, privateErr := os.Stat(a.privateFile(k))
	_, publicErr := os.Stat(a.publicFile(k))
	switch {
	case publicErr == nil:
		return nil, nil // the private key may be in an agent, or on another machine
	case privateErr == nil:
		return nil, croft.Errorf(croft.Conflict, "%s is there, and %s is not: write it with ssh-keygen -y -f %[1]s, or "+
			"move the old key away", a.privateFile(k), a.publicFile(k))
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	comment := "croft " + string(k) + " CA"
	block, err := ssh.MarshalPrivateKeyWithPassphrase(key, comment, passphrase)
	if len(passphrase) == 0 {
		block, err = ssh.MarshalPrivateKey(key, comment)
	}
	if err != nil {
		return nil, err
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))) + " " + comment + "\n"
	if err := durable.Write(a.privateFile(k), pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	if err := durable.Write(a.publicFile(k), []byte(line), 0o644); err != nil {
		return nil, err
	}
	return []string{a.privateFile(k), a.publicFile(k)}, nil
}

// signer returns the signer of a kind, and a function that releases its resources. Denied: other users may read the
// private key, or the passphrase is wrong. Conflict: the private key does not match the public key.
func (a *CA) signer(ctx context.Context, k Kind) (ssh.Signer, func(), error) {
	public, err := a.Public(k)
	if err != nil {
		return nil, nil, err
	}
	if a.Agent != "" {
		return a.agentSigner(ctx, k, public)
	}
	file := a.privateFile(k)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, croft.Errorf(croft.NotFound, "there is no %s: name the directory of the private keys (--keys), "+
			"or sign by an agent (--agent)", file)
	} else if err != nil {
		return nil, nil, croft.Errorf(croft.Invalid, "read the authority's key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, nil, croft.Errorf(croft.Denied, "others may read the authority's key (mode %#o): chmod 600 %s, and "+
			"consider whether it is still a secret", info.Mode().Perm(), file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, croft.Errorf(croft.Invalid, "read the authority's key: %w", err)
	}
	s, err := a.decrypt(ctx, file, text)
	if err != nil {
		return nil, nil, err
	}
	if !bytes.Equal(s.PublicKey().Marshal(), public.Marshal()) {
		return nil, nil, croft.Errorf(croft.Conflict, "%s is not the private key of %s", file, a.publicFile(k))
	}
	return s, func() {}, nil
}

func (a *CA) decrypt(ctx context.Context, file string, text []byte) (ssh.Signer, error) {
	s, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) && a.Passphrase != nil {
		var word []byte
		if word, err = a.Passphrase(ctx, file); err != nil {
			return nil, err
		}
		s, err = ssh.ParsePrivateKeyWithPassphrase(text, word)
		clear(word)
		if err != nil {
			return nil, croft.Errorf(croft.Denied, "open %s: the passphrase is wrong", file)
		}
	}
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "open %s: %w", file, err)
	}
	return s, nil
}

// agentPatience is how long an agent may take. It may have to ask its user for confirmation.
const agentPatience = 2 * time.Minute

func (a *CA) agentSigner(ctx context.Context, k Kind, public ssh.PublicKey) (ssh.Signer, func(), error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.Agent)
	if err != nil {
		return nil, nil, croft.Errorf(croft.Unavailable, "ask the agent for the authority's key: %w", err)
	}
	end := func() { _ = conn.Close() } // an error after the last request does not matter
	if err := conn.SetDeadline(time.Now().Add(agentPatience)); err != nil {
		end()
		return nil, nil, err
	}
	all, err := agent.NewClient(conn).Signers()
	if err != nil {
		end()
		return nil, nil, croft.Errorf(croft.Unavailable, "ask the agent for the authority's key: %w", err)
	}
	for _, s := range all {
		if bytes.Equal(s.PublicKey().Marshal(), public.Marshal()) {
			return s, end, nil
		}
	}
	end()
	return nil, nil, croft.Errorf(croft.NotFound, "the agent has no key of %s: ssh-add %s", a.publicFile(k),
		a.privateFile(k))
}

// Fingerprint returns a key's type and its fingerprint in the format of OpenSSH.
func Fingerprint(key ssh.PublicKey) string {
	return fmt.Sprintf("%s %s", key.Type(), ssh.FingerprintSHA256(key))
}
