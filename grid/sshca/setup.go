package sshca

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Setup returns instructions that make a server trust the authority, with root access and without it.
func (a *CA) Setup() (string, error) {
	user, err := a.Public(User)
	if err != nil {
		return "", err
	}
	host, err := a.Public(Host)
	if err != nil {
		return "", err
	}
	roles, err := a.Roles()
	if err != nil {
		return "", err
	}
	principals := map[string]bool{}
	for _, r := range roles.Roles {
		for _, p := range r.Principals {
			if !strings.Contains(p, "${") {
				principals[p] = true
			}
		}
	}
	names := strings.Join(slices.Sorted(maps.Keys(principals)), ",")
	if names == "" {
		names = "PRINCIPAL"
	}
	line := func(key ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) }
	return fmt.Sprintf(`With root, on each server:
  copy %[1]s to /etc/ssh/croft_user_ca.pub and %[2]s to /etc/ssh/croft_revoked
  echo '%[3]s' | tr , '\n' > /etc/ssh/croft_principals      # who may log in as root
  croft sshca host NODE ssh_host_ed25519_key.pub > ssh_host_ed25519_key-cert.pub      # where the private keys are
  add to /etc/ssh/sshd_config, and reload sshd:
    TrustedUserCAKeys /etc/ssh/croft_user_ca.pub
    RevokedKeys /etc/ssh/croft_revoked
    HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub
    Match User root
      AuthorizedPrincipalsFile /etc/ssh/croft_principals

Without root, on each server, one line in ~/.ssh/authorized_keys (it knows no revocations):
  cert-authority,principals="%[3]s" %[4]s

On the machines of those who log in, one line in ~/.ssh/known_hosts:
  @cert-authority * %[5]s
`, a.publicFile(User), a.KRLFile(), names, line(user), line(host)), nil
}
