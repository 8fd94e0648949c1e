package ssh

import (
	"context"
	"errors"
	"strings"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/wording"
)

// OpenSSH has one exit code for all failures, and translates none of its messages.
var (
	resetForm    = lazyregexp.New(`(?m)^(?:kex|ssh)_exchange_identification: .*(?:reset|closed)`)
	timeoutForm  = lazyregexp.New(`(?m)^(?:ssh: connect to host .*|Connection.*) timed out`)
	denyForm     = lazyregexp.New(`(?m)^(\S+): Permission denied \((.*)\)|Too many authentication failures`)
	shownForm    = lazyregexp.New(`(?m)^debug1: Server host (?:key|certificate): (\S+) (SHA256:[^\s,]+)`)
	unknownForm  = lazyregexp.New(`(?m)^No .* host key is known for (\S+) and you have requested strict checking`)
	offendForm   = lazyregexp.New(`(?m)^Offending .*key in (.*:[0-9]+)`)
	offerForm    = lazyregexp.New(`(?m)^debug1: Offering public key: (.*?)\r?$`)
	acceptedForm = lazyregexp.New(`(?m)^debug1: Server accepts key: (.*?)\r?$`)
	// complaints about keys of the user
	keyForm = lazyregexp.New(`(?mi)^(Permissions .* too open\.?|Load key .*|no such identity.*|.*signing failed.*|` +
		`.*agent refused.*|Certificate .*|Unable to use.*|.*invalid (?:key length|format).*)\r?$`)
)

// isReset reports whether sshd, rather than something on the way to it, has ended the connection before the handshake.
func isReset(words string) bool {
	at := resetForm.Get().FindStringIndex(words)
	return at != nil && said(words[:at[0]]) == ""
}

// explain turns the error of run into what the caller may rely on. uncertified is why there is no certificate, or
// empty.
func (a *dialing) explain(ctx context.Context, err error, uncertified string) error {
	var f *failure
	switch {
	case croft.KindOf(err) != "":
		return err
	case !errors.As(err, &f):
		return a.unavailable(err)
	}
	switch {
	case strings.Contains(f.words, "Host key verification failed"):
		return a.hostKey(ctx, f.words)
	case denyForm.MatchString(f.words):
		return croft.Errorf(croft.Denied, "%s: %s does not let us in: %s%s", a.name, a.who(f.words), tried(f.words),
			uncertified)
	case timeoutForm.MatchString(f.words):
		return a.unavailable(a.silent())
	case isReset(f.words):
		return a.unavailable(errRefused)
	}
	return a.unavailable(f)
}

func (a *dialing) silent() error {
	return errors.New("no answer within " + wording.Duration(a.timeout))
}

// who is the machine that refused a login: the one that was asked for, or one on the way to it.
func (a *dialing) who(words string) string {
	m := denyForm.FindStringSubmatch(words)
	if m[1] == "" || m[1] == a.user+"@"+a.host {
		return a.target.String()
	}
	return "ProxyJump " + m[1]
}

// tried says with which keys ssh tried to log in, and which it could not use.
func tried(words string) string {
	all := matches(offerForm, words)
	text := "no key was found"
	if len(all) > 0 {
		text = "tried: " + strings.Join(all, ", ")
	}
	for _, complaint := range matches(keyForm, words) {
		text += "; " + complaint
	}
	for _, key := range matches(acceptedForm, words) {
		text += "; it accepts " + key + ", with which ssh could not sign: if the key has a passphrase, ssh-add it"
	}
	return text
}

// matches lists the first groups of all matches.
func matches(form *lazyregexp.Regexp, text string) (all []string) {
	for _, m := range form.Get().FindAllStringSubmatch(text, -1) {
		all = append(all, strings.TrimSpace(m[1]))
	}
	return all
}
