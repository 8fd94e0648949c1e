package sshca

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/adrg/xdg"
	"golang.org/x/crypto/ssh"

	"croft"
	"croft/internal/durable"
	"croft/internal/filelock"
	"croft/internal/plain"
)

const (
	renewBefore    = 5 * time.Minute // before a certificate expires
	requestTimeout = time.Minute
	answerMax      = 64 << 10
)

// A Credential is a key with a certificate, with which grid/ssh logs in. It is renewed when the certificate is valid
// for less than 5 more minutes. The processes of a user share it through its directory.
type Credential struct {
	// Request is the program that gets a certificate, and its arguments, such as ssh ca@host sign --role ops. The
	// program reads the public key on stdin, and writes the certificate on stdout. It is run without a shell.
	Request []string
	Dir     string // contains key and key-cert.pub; created if it is missing

	mu sync.Mutex
}

// KeptIn returns the directory of the credential of a cluster, given the cluster's id.
func KeptIn(cluster string) string { return filepath.Join(xdg.CacheHome, "croft", "sshca", cluster) }

// Signers returns the key with its certificate. Unavailable: there is no valid certificate, and requesting one failed.
func (c *Credential) Signers(ctx context.Context) ([]ssh.Signer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, left := c.kept(); left >= renewBefore {
		return []ssh.Signer{s}, nil
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, croft.Errorf(croft.Invalid, "keep a certificate: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "keep a certificate: %w", err)
	}
	defer lock.Close()
	locked := filelock.Take(lock)
	s, left := c.kept() // another process may have renewed it
	if left >= renewBefore {
		return []ssh.Signer{s}, nil
	}
	if locked == nil {
		var fresh ssh.Signer
		if fresh, err = c.renew(ctx); err == nil {
			return []ssh.Signer{fresh}, nil
		}
	} else {
		err = locked
	}
	if left > 0 {
		return []ssh.Signer{s}, nil // the old certificate is still valid
	}
	return nil, croft.Errorf(croft.Unavailable, "get a certificate: %w", err)
}

func (c *Credential) keyFile() string         { return filepath.Join(c.Dir, "key") }
func (c *Credential) certificateFile() string { return c.keyFile() + "-cert.pub" }

// kept returns the stored key with its certificate, and how much longer the certificate is valid. 0: no valid one is
// stored.
func (c *Credential) kept() (ssh.Signer, time.Duration) {
	key, err := os.ReadFile(c.keyFile())
	if err != nil {
		return nil, 0
	}
	text, err := os.ReadFile(c.certificateFile())
	if err != nil {
		return nil, 0
	}
	s, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return nil, 0
	}
	with, left, err := certified(s, text)
	if err != nil {
		return nil, 0
	}
	return with, left
}

// certified joins a key and the text of its certificate. It returns how much longer the certificate is valid.
func certified(s ssh.Signer, text []byte) (ssh.Signer, time.Duration, error) {
	public, _, _, rest, err := ssh.ParseAuthorizedKey(text)
	cert, is := public.(*ssh.Certificate)
	switch {
	case err != nil || !is || len(bytes.TrimSpace(rest)) > 0:
		return nil, 0, fmt.Errorf("this is not a certificate: %q", plain.Cut(string(text), 80))
	case !bytes.Equal(cert.Key.Marshal(), s.PublicKey().Marshal()):
		return nil, 0, errors.New("the certificate is for another key")
	case cert.CertType != ssh.UserCert:
		return nil, 0, errors.New("the certificate is not a user's")
	}
	now := time.Now()
	end := time.Unix(int64(min(cert.ValidBefore, 1<<40)), 0)
	if !now.Before(end) || int64(min(cert.ValidAfter, 1<<40)) > now.Unix() {
		return nil, 0, fmt.Errorf("the certificate is valid from %s to %s, and here it is %s: is the clock right?",
			unix(min(cert.ValidAfter, 1<<40)).Format(time.RFC3339), end.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	}
	with, err := ssh.NewCertSigner(cert, s)
	return with, end.Sub(now), err
}

// renew makes a new key, and requests its certificate. The stored ones stay until the new certificate has arrived.
func (c *Credential) renew(ctx context.Context) (ssh.Signer, error) {
	if len(c.Request) == 0 {
		return nil, croft.Errorf(croft.Invalid, "no program is configured that gets one")
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "croft")
	if err != nil {
		return nil, err
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Request[0], c.Request[1:]...)
	cmd.Stdin = bytes.NewReader(ssh.MarshalAuthorizedKey(s.PublicKey()))
	cmd.WaitDelay = time.Second
	answer, complaint := &head{}, &head{}
	cmd.Stdout, cmd.Stderr = answer, complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(c.Request, " "), err,
			plain.Cut(complaint.text.String(), 1<<10))
	}
	with, _, err := certified(s, answer.text.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(c.Request, " "), err)
	}
	// A crash between the two writes leaves a key without its certificate, and the next call renews both.
	if err := durable.Write(c.keyFile(), pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	return with, durable.Write(c.certificateFile(), answer.text.Bytes(), 0o644)
}

// head keeps the beginning of what is written to it.
type head struct{ text bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.text.Write(p[:min(len(p), answerMax-h.text.Len())])
	return len(p), nil
}
