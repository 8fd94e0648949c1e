package sshca

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"croft"
	"croft/internal/durable"
)

// A Revocation revokes a certificate, or a key with all of its certificates.
type Revocation struct {
	Time   time.Time `json:"time"`
	Kind   Kind      `json:"kind,omitempty"` // of the certificate; empty: a key
	Serial uint64    `json:"serial,omitempty"`
	ID     string    `json:"id,omitempty"`
	Key    string    `json:"key,omitempty"` // the revoked key, as in authorized_keys
	Reason string    `json:"reason,omitempty"`
}

// RevokedFile returns the path of the list of revocations in the repository, with one line of JSON for each. The other
// lists are made from this file.
func (a *CA) RevokedFile() string { return filepath.Join(a.Dir, "revoked.jsonl") }

// KRLFile returns the path of a key revocation list for sshd's RevokedKeys, made from RevokedFile.
func (a *CA) KRLFile() string { return filepath.Join(a.Dir, "revoked.krl") }

// RevokedKeysFile returns the path of a text file of revoked keys for sshd's RevokedKeys, for servers that must not see
// serial numbers.
func (a *CA) RevokedKeysFile() string { return filepath.Join(a.Dir, "revoked_keys") }

// Revoked reads the list of revocations. Invalid: a line cannot be read.
func (a *CA) Revoked() ([]Revocation, error) {
	text, err := os.ReadFile(a.RevokedFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the list of revocations: %w", err)
	}
	var all []Revocation
	for i, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var r Revocation
		err := json.Unmarshal(line, &r)
		if err == nil {
			err = r.check()
		}
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%s:%d: this is no revocation: %w", a.RevokedFile(), i+1, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// check validates a revocation, since people may edit the file.
func (r Revocation) check() error {
	switch {
	case r.Serial > 0 && r.Key == "" && (r.Kind == User || r.Kind == Host):
		return nil
	case r.Serial == 0 && r.Kind == "" && r.Key != "":
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(r.Key))
		if err == nil && strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) != r.Key {
			err = errors.New("the key is not one line of type and base64")
		}
		return err
	}
	return errors.New("it has to name either a serial number of the kind user or host, or a key")
}

// IsRevoked reports whether a certificate that was issued is revoked.
func IsRevoked(e Issued, revoked []Revocation) bool {
	for _, r := range revoked {
		if r.Serial == e.Serial && r.Kind == e.Kind || r.Kind == "" && r.Key == e.Key {
			return true
		}
	}
	return false
}

// Find returns the revocation for what, which is a serial number, a key id, or a file with a public key or certificate.
// NotFound: the log has no such certificate. Denied: another authority signed the certificate.
func (a *CA) Find(what string) (Revocation, error) {
	r := Revocation{Time: time.Now().UTC().Truncate(time.Second)}
	if text, err := os.ReadFile(what); err == nil {
		return a.findFile(what, text, r)
	}
	number := what
	if i := strings.LastIndexByte(what, '#'); i >= 0 {
		number = what[i+1:]
	}
	serial, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return r, croft.Errorf(croft.Invalid, "%q is not a serial number, not a key id such as eva@ops#7, and there is no "+
			"such file", what)
	}
	all, err := a.Issued()
	if err != nil {
		return r, err
	}
	for _, e := range all {
		if e.Serial == serial && (number == what || e.ID == what) {
			r.Kind, r.Serial, r.ID = e.Kind, e.Serial, e.ID
			return r, nil
		}
	}
	return r, croft.Errorf(croft.NotFound, "%s has no certificate %s: give a file with the certificate or its public key",
		a.logFile(), what)
}

func (a *CA) findFile(file string, text []byte, r Revocation) (Revocation, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return r, croft.Errorf(croft.Invalid, "%s is not a public key or certificate: %w", file, err)
	}
	cert, is := key.(*ssh.Certificate)
	if !is {
		r.Key = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
		return r, nil
	}
	for _, k := range Kinds {
		public, err := a.Public(k)
		if err != nil {
			return r, err
		}
		if bytes.Equal(public.Marshal(), cert.SignatureKey.Marshal()) && cert.Serial > 0 {
			r.Kind, r.Serial, r.ID = k, cert.Serial, cert.KeyId
			return r, nil
		}
	}
	return r, croft.Errorf(croft.Denied, "%s was not signed by this authority: revoke its key, in the file with .pub", file)
}

// Revoke adds revocations to the list, and writes the files for sshd again. changed is false if the list had all of
// them before.
func (a *CA) Revoke(ctx context.Context, add []Revocation) (changed bool, err error) {
	lock, err := a.lockRepository() // not lockKeys: a machine that revokes need not have the private keys
	if err != nil {
		return false, fmt.Errorf("revoke: %w", err)
	}
	defer lock.Close()
	all, err := a.Revoked()
	if err != nil {
		return false, err
	}
	for _, r := range add {
		if !had(all, r) {
			all, changed = append(all, r), true
		}
	}
	if changed {
		if err := a.writeRevoked(all); err != nil {
			return false, err
		}
	}
	return changed, a.WriteLists(ctx)
}

// refuseRevoked returns an error if a key was revoked. A new certificate for it would be accepted by servers that do
// not have the list of revocations. Denied: the key was revoked.
func (a *CA) refuseRevoked(key ssh.PublicKey) error {
	all, err := a.Revoked()
	if err != nil {
		return err
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	for _, r := range all {
		if r.Kind == "" && r.Key == line {
			return croft.Errorf(croft.Denied, "the key %s was revoked at %s: make a new key",
				ssh.FingerprintSHA256(key), r.Time.Format(time.RFC3339))
		}
	}
	return nil
}

func had(all []Revocation, r Revocation) bool {
	for _, h := range all {
		if h.Kind == r.Kind && h.Serial == r.Serial && h.Key == r.Key {
			return true
		}
	}
	return false
}

func (a *CA) writeRevoked(all []Revocation) error {
	var text bytes.Buffer
	for _, r := range all {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	return durable.Write(a.RevokedFile(), text.Bytes(), 0o644)
}

// WriteLists writes the files for sshd from the list of revocations. Unavailable: ssh-keygen is missing or fails.
func (a *CA) WriteLists(ctx context.Context) error {
	all, err := a.Revoked()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "croft-krl-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the files contain no secrets
	krl := filepath.Join(dir, "krl")
	var keys strings.Builder
	spec := map[Kind]*strings.Builder{User: {}, Host: {}}
	for _, r := range all {
		if r.Serial > 0 {
			fmt.Fprintf(spec[r.Kind], "serial: %d\n", r.Serial)
		} else {
			keys.WriteString(r.Key + "\n")
			fmt.Fprintf(spec[User], "key: %s\n", r.Key)
		}
	}
	version := strconv.Itoa(len(all))
	for i, k := range Kinds {
		file := filepath.Join(dir, string(k))
		if err := os.WriteFile(file, []byte(spec[k].String()), 0o600); err != nil {
			return err
		}
		argv := []string{"-q", "-k", "-f", krl, "-z", version, "-s", a.publicFile(k), file}
		if i > 0 {
			argv = append([]string{"-u"}, argv...)
		}
		if out, err := exec.CommandContext(ctx, "ssh-keygen", argv...).CombinedOutput(); err != nil {
			return croft.Errorf(croft.Unavailable, "make the revocation list: ssh-keygen: %w: %s", err,
				strings.TrimSpace(string(out)))
		}
	}
	text, err := os.ReadFile(krl)
	if err != nil {
		return err
	}
	if err := durable.Write(a.KRLFile(), text, 0o644); err != nil {
		return err
	}
	return durable.Write(a.RevokedKeysFile(), []byte(keys.String()), 0o644)
}
