package ssh

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"croft"
)

// A knownKey is a line of known_hosts: the name and port of a machine, and its key.
type knownKey struct{ host, kind, key string }

func (k knownKey) String() string { return strings.Join([]string{k.host, k.kind, k.key}, " ") }

// fingerprint is in the form of ssh-keygen -l.
func (k knownKey) fingerprint() string {
	blob, _ := base64.StdEncoding.DecodeString(k.key) // ssh has written it
	sum := sha256.Sum256(blob)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// show has the machine show its host key, without those of some algorithms and without a login. An error of run, or
// errNoKey.
func (a *dialing) show(ctx context.Context, without []string) (knownKey, error) {
	file, err := a.dialer.path("k")
	if err != nil {
		return knownKey{}, err
	}
	args := []string{"-v", "-o", "StrictHostKeyChecking=accept-new", "-o", "UserKnownHostsFile=" + file,
		"-o", "GlobalKnownHostsFile=none", "-o", "HashKnownHosts=no", "-o", "UpdateHostKeys=no", "-o", "CheckHostIP=no",
		"-o", "PreferredAuthentications=none", "-o", "ControlMaster=no", "-o", "ControlPath=none", "-N"}
	args = append(args, alone...)
	if len(without) > 0 {
		args = append(args, "-o", "HostKeyAlgorithms=-"+strings.Join(without, ","))
	}
	// A machine that lets everybody in would keep ssh.
	ctx, cancel := context.WithTimeoutCause(ctx, 2*a.timeout, a.silent())
	defer cancel()
	words, err := a.run(ctx, args...)
	if err == nil {
		words.close()
	}
	text, failed := os.ReadFile(file)
	if parts := strings.Fields(string(text)); failed == nil && len(parts) >= 3 {
		return knownKey{parts[0], parts[1], parts[2]}, nil
	}
	return knownKey{}, cmp.Or(err, errNoKey)
}

// alone has files of known hosts decide alone. Versions of ssh without KnownHostsCommand ignore it.
var alone = []string{"-o", "VerifyHostKeyDNS=no", "-o", "IgnoreUnknown=KnownHostsCommand",
	"-o", "KnownHostsCommand=none"}

var errNoKey = errors.New("it shows no host key")

// hostKey says why ssh did not believe a machine.
func (a *dialing) hostKey(ctx context.Context, words string) error {
	shown := "one"
	if all := shownForm.Get().FindAllStringSubmatch(words, -1); len(all) > 0 {
		shown = strings.Join(all[len(all)-1][1:], " ")
	}
	revoked := strings.Contains(words, "REVOKED HOST KEY") || strings.Contains(words, " revoked by ")
	if m := unknownForm.FindStringSubmatch(words); m != nil && !revoked {
		return a.unknown(ctx, m[1], shown)
	}
	switch offending := matches(offendForm, words); {
	case revoked:
		return a.denied("its host key %s is revoked, by known_hosts or RevokedHostKeys: whoever has it may not be that "+
			"machine", shown)
	case len(offending) > 0:
		return a.denied("its host key has changed: it shows %s, known is %s; it is another machine, or was "+
			"reinstalled: ask its operator, then remove the old line", shown, strings.Join(offending, " and "))
	}
	return a.denied("its host key %s is refused: %s", shown, said(words))
}

// unknown is the error of a host key that no file has. at is the name by which ssh looked for it.
func (a *dialing) unknown(ctx context.Context, at, shown string) error {
	key, err := a.show(ctx, nil)
	if err != nil || key.host != at { // it may be the key of a ProxyJump
		return a.denied("the host key of %s is not known: %s; log in there once with ssh, which asks whether it is right",
			at, shown)
	}
	file := "~/.ssh/known_hosts"
	if len(a.known) > 0 {
		file = a.known[0]
	}
	return a.denied("its host key is not known: %s %s%s; if its operator confirms that, accept it with:\n"+
		"  echo '%s' >> %s", key.kind, key.fingerprint(), a.weak, key, file)
}

func (a *dialing) denied(format string, args ...any) error {
	return croft.Errorf(croft.Denied, "%s: "+format, append([]any{a.name}, args...)...)
}

// checkPin checks the form of a fingerprint. Invalid.
func checkPin(name, pin string) error {
	if digest, is := strings.CutPrefix(pin, "SHA256:"); pin != "" && (!is || len(digest) != 43) {
		return croft.Errorf(croft.Invalid,
			"%s: host key %q: give a fingerprint as ssh-keygen -l prints it, SHA256: and 43 characters", name, pin)
	}
	return nil
}

// pinned returns the options by which ssh believes the host key of a fingerprint and no other one.
func (a *dialing) pinned(ctx context.Context, pin string) ([]string, error) {
	key, err := a.findKey(ctx, pin)
	if err != nil {
		return nil, err
	}
	file, err := a.dialer.path("k")
	if err != nil {
		return nil, err
	}
	text := key.String() + "\n"
	for _, name := range a.known { // they are asked for revoked keys alone
		lines, err := os.ReadFile(name)
		if err != nil {
			continue // as ssh does
		}
		for line := range bytes.Lines(lines) {
			if bytes.HasPrefix(line, []byte("@revoked ")) {
				text += string(line) + "\n"
			}
		}
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, croft.Errorf(croft.Invalid, "%s: keep its host key: %w", a.name, err)
	}
	return append([]string{"-o", "UserKnownHostsFile=" + file, "-o", "GlobalKnownHostsFile=none",
		"-o", "UpdateHostKeys=no", "-o", "HostKeyAlgorithms=" + algorithmsOf(key.kind)}, alone...), nil
}

// findKey looks for the machine's key of a fingerprint, one type after the other.
func (a *dialing) findKey(ctx context.Context, pin string) (knownKey, error) {
	id := fmt.Sprint(a.where, pin)
	a.dialer.mu.Lock()
	key, found := a.dialer.pinned[id]
	a.dialer.mu.Unlock()
	if found {
		return key, nil
	}
	var seen, without []string
	for {
		key, err := a.show(ctx, without)
		var f *failure
		switch {
		case err == nil && key.fingerprint() == pin:
			a.dialer.mu.Lock()
			defer a.dialer.mu.Unlock()
			a.dialer.pinned[id] = key
			return key, nil
		case len(seen) > 0 && errors.As(err, &f) && strings.Contains(f.words, "no matching host key type"),
			err == nil && slices.Contains(without, algorithmsOf(key.kind)):
			return key, a.denied("its host key is not the pinned %s: it shows %s; it is another machine, or was "+
				"reinstalled: ask its operator, then pin the new key", pin, strings.Join(seen, " and "))
		case err != nil:
			return key, a.explain(ctx, err, "")
		}
		seen = append(seen, key.kind+" "+key.fingerprint())
		without = append(without, algorithmsOf(key.kind), key.kind+"-cert-*", "rsa-*-cert-*")
	}
}

// algorithmsOf lists the signature algorithms of a type of keys.
func algorithmsOf(kind string) string {
	if kind == "ssh-rsa" {
		return "rsa-sha2-512,rsa-sha2-256"
	}
	return kind
}
