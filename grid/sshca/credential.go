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
	Dir     string // contains keys and certificates; created if it is missing

	mu sync.Mutex
}

// KeptIn returns the directory of the credential of a cluster, given the cluster's id.
func KeptIn(cluster string) string { return filepath.Join(xdg.CacheHome, "croft", "sshca", cluster) }

// KeyFile returns the file of the key, with its certificate next to it. Unavailable: there is no valid certificate, and
// requesting one failed.
func (c *Credential) KeyFile(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if file, left := c.kept(); left >= renewBefore {
		return file, nil
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return "", croft.Errorf(croft.Invalid, "keep a certificate: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "keep a certificate: %w", err)
	}
	defer lock.Close()
	err = filelock.Take(lock)
	file, left := c.kept() // another process may have renewed it
	if left >= renewBefore {
		return file, nil
	}
	if err == nil {
		fresh := c.keyFiles()[0]
		if file == fresh {
			fresh = c.keyFiles()[1]
		}
		if err = c.renew(ctx, fresh); err == nil {
			return fresh, nil
		}
	}
	if left > 0 {
		return file, nil // the old certificate is still valid
	}
	return "", croft.Errorf(croft.Unavailable, "get a certificate: %w", err)
}

// keyFiles returns the files for keys. A new key replaces the older one, so that an ssh that is reading the newer one
// does not find the certificate of another key.
func (c *Credential) keyFiles() [2]string {
	return [2]string{filepath.Join(c.Dir, "key"), filepath.Join(c.Dir, "key2")}
}

func certificateOf(keyFile string) string { return keyFile + "-cert.pub" }

// kept returns the stored key whose certificate is valid longest, and for how much longer. 0: no valid one is stored.
func (c *Credential) kept() (file string, left time.Duration) {
	for _, f := range c.keyFiles() {
		if l := validity(f); l > left {
			file, left = f, l
		}
	}
	return file, left
}

// validity returns how much longer the certificate of a stored key is valid. 0: it is not.
func validity(keyFile string) time.Duration {
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return 0
	}
	text, err := os.ReadFile(certificateOf(keyFile))
	if err != nil {
		return 0
	}
	s, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return 0
	}
	left, err := certified(s.PublicKey(), text)
	if err != nil {
		return 0
	}
	return left
}

// certified returns how much longer the certificate of a key is valid, given its text.
func certified(key ssh.PublicKey, text []byte) (time.Duration, error) {
	public, _, _, rest, err := ssh.ParseAuthorizedKey(text)
	cert, is := public.(*ssh.Certificate)
	switch {
	case err != nil || !is || len(bytes.TrimSpace(rest)) > 0:
		return 0, fmt.Errorf("this is not a certificate: %q", plain.Cut(string(text), 80))
	case !bytes.Equal(cert.Key.Marshal(), key.Marshal()):
		return 0, errors.New("the certificate is for another key")
	case cert.CertType != ssh.UserCert:
		return 0, errors.New("the certificate is not a user's")
	}
	now := time.Now()
	end := time.Unix(int64(min(cert.ValidBefore, 1<<40)), 0)
	if !now.Before(end) || int64(min(cert.ValidAfter, 1<<40)) > now.Unix() {
		return 0, fmt.Errorf("the certificate is valid from %s to %s, and here it is %s: is the clock right?",
			unix(min(cert.ValidAfter, 1<<40)).Format(time.RFC3339), end.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	}
	return end.Sub(now), nil
}

// renew makes a new key, and requests its certificate. The files stay as they are until the certificate has arrived.
func (c *Credential) renew(ctx context.Context, file string) error {
	if len(c.Request) == 0 {
		return croft.Errorf(croft.Invalid, "no program is configured that gets one")
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "croft")
	if err != nil {
		return err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Request[0], c.Request[1:]...)
	cmd.Stdin = bytes.NewReader(ssh.MarshalAuthorizedKey(key))
	cmd.WaitDelay = time.Second
	answer, complaint := &head{}, &head{}
	cmd.Stdout, cmd.Stderr = answer, complaint
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c.Request, " "), err,
			plain.Cut(complaint.text.String(), 1<<10))
	}
	if _, err := certified(key, answer.text.Bytes()); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(c.Request, " "), err)
	}
	// A crash between the two writes leaves a key without its certificate, and the next call renews both.
	if err := durable.Write(file, pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	return durable.Write(certificateOf(file), answer.text.Bytes(), 0o644)
}

// head keeps the beginning of the bytes that are written to it.
type head struct{ text bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.text.Write(p[:min(len(p), answerMax-h.text.Len())])
	return len(p), nil
}
