// Package hostkey makes the host key of a guest's SSH server, so that whoever made the guest can verify the very
// first connection to it.
package hostkey

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"strings"

	"golang.org/x/crypto/ssh"

	"croft"
)

// New returns a private key: ed25519, in OpenSSH's PEM, which sshd, cloud-init and dropbear's converter can read.
func New() (string, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(block)), nil
}

// Public returns the public key of a private key as written in known_hosts after the host, such as
// ssh-ed25519 AAAA. Invalid: it is not a private key.
func Public(private string) (string, error) {
	signer, err := ssh.ParsePrivateKey([]byte(private))
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "the instance's host key cannot be read: %w", err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}
