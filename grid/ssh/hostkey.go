package ssh

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"

	"croft"
)

// A verifier decides whether a machine is the one that it is taken for.
type verifier struct {
	target *target
	db     *knownhosts.HostKeyDB
	copies map[string]string // of files of known hosts: their names
	pin    string            // SHA256:...; empty: known_hosts decides
	name   string            // of the machine, in messages
	seen   []string
}

// The algorithms of host keys that are believed, the best first: no DSA, and no RSA with SHA-1.
var keyAlgorithms = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

var certificateAlgorithms = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
	ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
}

// newVerifier reads the files of known hosts. Invalid: one of them cannot be read, or the pin is none.
func newVerifier(t *target, name, pin string) (*verifier, error) {
	if digest, is := strings.CutPrefix(pin, "SHA256:"); pin != "" && (!is || len(digest) != 43) {
		return nil, croft.Errorf(croft.Invalid,
			"%s: host key %q: give a fingerprint as ssh-keygen -l prints it, SHA256: and 43 characters", name, pin)
	}
	var files []string
	for _, f := range t.known {
		if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
			files = append(files, f)
		}
	}
	db, copies, err := readKnownHosts(files)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the known hosts: %w", err)
	}
	return &verifier{target: t, db: db, copies: copies, pin: pin, name: name}, nil
}

// readKnownHosts reads files of known hosts. As OpenSSH does, it passes over lines that it cannot parse, such as keys
// of protocol 1. The package knownhosts reads files alone and refuses such lines, so it gets copies in memory in which
// they are comments.
func readKnownHosts(files []string) (db *knownhosts.HostKeyDB, copies map[string]string, err error) {
	if db, err = knownhosts.NewDB(files...); err == nil {
		return db, nil, nil
	}
	copies = map[string]string{}
	for i, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		fd, err := unix.MemfdCreate("known_hosts", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, nil, fmt.Errorf("copy %s: %w", name, err)
		}
		f := os.NewFile(uintptr(fd), name)
		defer f.Close() // once all are read
		if _, err := f.Write(readableLines(text)); err != nil {
			return nil, nil, fmt.Errorf("copy %s: %w", name, err)
		}
		files[i] = fmt.Sprint("/proc/self/fd/", fd)
		copies[files[i]] = name
	}
	db, err = knownhosts.NewDB(files...)
	return db, copies, err
}

// place is the file and line of a known key, in messages.
func (v *verifier) place(k xknownhosts.KnownKey) string {
	return fmt.Sprintf("%s:%d", cmp.Or(v.copies[k.Filename], k.Filename), k.Line)
}

// readableLines empties the lines that cannot be parsed, and keeps the numbers of the others.
func readableLines(text []byte) []byte {
	lines := bytes.Split(text, []byte("\n"))
	for i, line := range lines {
		marker, hosts, _, _, _, err := ssh.ParseKnownHosts(line)
		if err != nil || marker != "" && marker != "cert-authority" && marker != "revoked" ||
			slices.ContainsFunc(hosts, unreadablePattern) {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// unreadablePattern reports whether a name in known_hosts looks hashed and is not |1|SALT|HASH as OpenSSH writes it.
func unreadablePattern(host string) bool {
	if !strings.HasPrefix(host, "|") {
		return false
	}
	parts := strings.Split(host, "|")
	return len(parts) != 4 || parts[1] != "1" || slices.ContainsFunc(parts[2:], func(part string) bool {
		_, err := base64.StdEncoding.DecodeString(part)
		return err != nil
	})
}

// algorithms lists the algorithms to ask for: those first in which this machine is known. A pinned key is a key, never
// a certificate.
func (v *verifier) algorithms() []string {
	allowed := func(a string) bool { return slices.Contains(v.target.hostKeys, a) }
	if v.pin != "" {
		return slices.DeleteFunc(slices.Clone(keyAlgorithms), func(a string) bool { return !allowed(a) })
	}
	var first []string
	for _, key := range v.keys() {
		if key.Cert {
			first = append(slices.Clone(certificateAlgorithms), first...)
		} else {
			first = append(first, algorithmsOf(key.Type())...)
		}
	}
	var list []string
	for _, a := range append(first, keyAlgorithms...) {
		if !slices.Contains(list, a) && allowed(a) {
			list = append(list, a)
		}
	}
	return list
}

// keys are the known keys of the machine, also those of any port, and of authorities.
func (v *verifier) keys() []knownhosts.PublicKey {
	keys := v.db.HostKeys(v.target.knownAs)
	if anyPort := v.anyPort(); anyPort != "" {
		keys = append(keys, v.db.HostKeys(anyPort)...)
	}
	return keys
}

// anyPort is the machine's name without its port, which OpenSSH looks for too; empty: it is that name.
func (v *verifier) anyPort() string {
	host, port, _ := net.SplitHostPort(v.target.knownAs)
	if port == "22" {
		return ""
	}
	return net.JoinHostPort(host, "22")
}

// algorithmsOf lists the signature algorithms of a type of keys.
func algorithmsOf(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	if slices.Contains(keyAlgorithms, keyType) {
		return []string{keyType}
	}
	return nil
}

// errOther means that the machine has shown a key of a type that is not the pinned one; it may have that too.
var errOther = errors.New("another key than the pinned one")

// check implements ssh.HostKeyCallback. Denied: the machine cannot be believed.
func (v *verifier) check(_ string, remote net.Addr, key ssh.PublicKey) error {
	cert, is := key.(*ssh.Certificate)
	own := key
	if is {
		own = cert.Key
	}
	if err := v.target.longEnough(own); err != nil {
		return v.denied("its host key is refused: %w", err)
	}
	if v.pin != "" {
		return v.checkPin(remote, key)
	}
	if !is {
		return v.checkKey(remote, key)
	}
	for _, address := range []string{v.target.knownAs, v.anyPort()} {
		if address != "" && v.isAuthority(address, cert.SignatureKey) {
			if !slices.Contains(v.target.authorities, cert.Signature.Format) {
				return v.denied(
					"its host certificate %q is signed by %s, which CASignatureAlgorithms leaves out",
					cert.KeyId,
					cert.Signature.Format,
				)
			}
			if err := v.db.HostKeyCallback()(address, remote, key); err != nil {
				return v.denied("its host certificate %q is not valid here: %w", cert.KeyId, err)
			}
			return nil
		}
	}
	return v.checkKey(remote, cert.Key) // as OpenSSH does: an unknown authority proves nothing, the key may
}

func (v *verifier) checkPin(remote net.Addr, key ssh.PublicKey) error {
	if cert, is := key.(*ssh.Certificate); is {
		key = cert.Key
	}
	got := ssh.FingerprintSHA256(key)
	v.seen = append(v.seen, key.Type()+" "+got)
	var revoked *xknownhosts.RevokedError
	if err := v.db.HostKeyCallback()(v.target.knownAs, remote, key); errors.As(err, &revoked) {
		return v.revoked(revoked)
	}
	if got != v.pin {
		return errOther
	}
	return nil
}

// checkKey compares a key that no certificate vouches for with the known ones.
func (v *verifier) checkKey(remote net.Addr, key ssh.PublicKey) error {
	var wanted []xknownhosts.KnownKey
	for _, address := range []string{v.target.knownAs, v.anyPort()} {
		if address == "" {
			continue
		}
		err := v.db.HostKeyCallback()(address, remote, key)
		var revoked *xknownhosts.RevokedError
		var other *xknownhosts.KeyError
		switch {
		case errors.As(err, &revoked):
			return v.revoked(revoked)
		case err == nil && v.isHost(address, key):
			return nil
		case errors.As(err, &other) && address == v.target.knownAs:
			for _, w := range other.Want {
				if v.isHost(address, w.Key) {
					wanted = append(wanted, w)
				}
			}
		case err != nil && other == nil:
			return v.denied("its host key cannot be checked: %w", err)
		}
		if len(wanted) > 0 {
			break // what is said of this port counts
		}
	}
	if len(wanted) == 0 {
		return v.unknown(key)
	}
	return v.changed(key, wanted)
}

// isAuthority reports whether a key is that of an authority for the address.
func (v *verifier) isAuthority(address string, key ssh.PublicKey) bool {
	return v.has(address, key, true)
}

// isHost reports whether a key is listed as the host's own. The package knownhosts takes one of an authority for that.
func (v *verifier) isHost(address string, key ssh.PublicKey) bool { return v.has(address, key, false) }

func (v *verifier) has(address string, key ssh.PublicKey, cert bool) bool {
	return slices.ContainsFunc(v.db.HostKeys(address), func(k knownhosts.PublicKey) bool {
		return k.Cert == cert && bytes.Equal(k.Marshal(), key.Marshal())
	})
}

func (v *verifier) denied(format string, args ...any) error {
	return croft.Errorf(croft.Denied, "%s: "+format, append([]any{v.name}, args...)...)
}

func (v *verifier) revoked(r *xknownhosts.RevokedError) error {
	return v.denied("its host key %s is revoked by %s; whoever has it may not be that machine",
		ssh.FingerprintSHA256(r.Revoked.Key), v.place(r.Revoked))
}

func (v *verifier) unknown(key ssh.PublicKey) error {
	file := "~/.ssh/known_hosts"
	if len(v.target.known) > 0 {
		file = v.target.known[0]
	}
	weak := ""
	if v.target.weak != "" {
		weak = fmt.Sprintf(" (%s has no effect here)", v.target.weak)
	}
	return v.denied("its host key is not known: %s %s%s; if its operator confirms that, accept it with:\n"+
		"  echo '%s' >> %s", key.Type(), ssh.FingerprintSHA256(key), weak,
		knownhosts.Line([]string{v.target.knownAs}, key), file)
}

func (v *verifier) changed(key ssh.PublicKey, wanted []xknownhosts.KnownKey) error {
	var known []string
	for _, w := range wanted {
		known = append(known, fmt.Sprintf("%s %s (%s)", w.Key.Type(), ssh.FingerprintSHA256(w.Key), v.place(w)))
	}
	return v.denied("its host key has changed: it shows %s %s, known is %s; it is another machine, or was installed "+
		"anew: ask its operator, then remove the old line", key.Type(), ssh.FingerprintSHA256(key),
		strings.Join(known, " and "))
}

// notPinned is the error when the machine has no key with the pinned fingerprint.
func (v *verifier) notPinned() error {
	return v.denied("its host key is not the pinned %s: it shows %s; it is another machine, or was installed anew: "+
		"ask its operator, then pin the new key", v.pin, strings.Join(v.seen, " and "))
}
