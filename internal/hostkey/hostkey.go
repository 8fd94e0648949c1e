// Package hostkey makes the host key of a guest's SSH server, so that the creator of the guest can verify the very
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

// Public returns the public key of a private key in the form of known_hosts without the host, such as ssh-ed25519 AAAA.
// A public key, which the API of the cloud returns, is returned unchanged. Invalid: the text is neither.
func Public(private string) (string, error) {
	if public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(private)); err == nil {
		return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))), nil
	}
	signer, err := ssh.ParsePrivateKey([]byte(private))
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "the instance's host key cannot be read: %w", err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}
