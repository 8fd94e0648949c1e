// Package secret seals and opens the values in a cluster's files that only chosen recipients may read.
//
// A sealed value is an age file: armored text between BEGIN and END lines, base64 after "age:", or binary. An age
// identity or an SSH key opens it, in memory only: an opened value is never an argument of a program, never in a file
// and never in a message. A file that sops encrypted is opened by the program sops, which is a hard point of the kind
// secret.
package secret

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"filippo.io/age"
	"filippo.io/age/armor"

	"croft"
	"croft/grid/hardpoint"
	"croft/grid/machine"
	"croft/grid/state"
)

//go:embed points/*.yaml
var points embed.FS

const (
	prefix = "age:"
	begin  = armor.Header
	end    = armor.Footer
	binary = "age-encryption.org/"

	// maxValue is the size, in bytes, of the largest value that is sealed or opened.
	maxValue = 1 << 20
)

// A Keeper opens sealed values. Its methods are safe for concurrent use.
type Keeper struct {
	// Identities returns the identities that open age files. It is called once, when the first age file is opened.
	Identities func() ([]age.Identity, error)

	// Repository may contain hardpoints/secret/sops.yaml, which replaces the shipped way to call sops. nil: no
	// replacement.
	Repository fs.FS

	once       sync.Once
	identities []age.Identity
	err        error
}

var _ state.Secrets = (*Keeper)(nil)

// Open opens a sealed value. Invalid: the value is not sealed, or it is damaged. Denied: no identity here is one of its
// recipients. No error contains the opened value.
func (k *Keeper) Open(ctx context.Context, sealed string) ([]byte, error) {
	if kind := sopsType(sealed); kind != "" {
		return k.openSops(ctx, sealed, kind)
	}
	r, err := reader(sealed)
	if err != nil {
		return nil, err
	}
	k.once.Do(func() { k.identities, k.err = k.Identities() })
	if k.err != nil {
		return nil, k.err
	}
	if len(k.identities) == 0 {
		return nil, croft.Errorf(croft.Denied, "open a sealed value: no identity is known here: %s", hint)
	}
	return decrypt(r, k.identities)
}

func decrypt(r io.Reader, identities []age.Identity) ([]byte, error) {
	opened, err := age.Decrypt(r, identities...)
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return nil, croft.Errorf(croft.Denied,
			"open a sealed value: none of the %d identities here is a recipient: ask a recipient to seal it again "+
				"(croft grid secret rotate)", len(identities))
	}
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "open a sealed value: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxValue+1))
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "open a sealed value: it is damaged: %w", err)
	}
	if len(text) > maxValue {
		return nil, croft.Errorf(croft.Invalid, "open a sealed value: it has more than %d bytes", maxValue)
	}
	return text, nil
}

// reader returns the age file in a sealed value, in any of the three forms.
func reader(sealed string) (io.Reader, error) {
	trimmed := strings.TrimSpace(sealed)
	switch {
	case strings.HasPrefix(sealed, binary):
		return strings.NewReader(sealed), nil
	case strings.HasPrefix(trimmed, begin):
		return armor.NewReader(strings.NewReader(trimmed)), nil
	case strings.HasPrefix(trimmed, prefix):
		text, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(trimmed[len(prefix):]), ""))
		if err != nil || !bytes.HasPrefix(text, []byte(binary)) {
			return nil, croft.Errorf(croft.Invalid, "open a sealed value: after age: there is no age file in base64; "+
				"croft grid secret seal makes one")
		}
		return bytes.NewReader(text), nil
	}
	return nil, croft.Errorf(croft.Invalid, "open a sealed value: it is neither a file of age nor of sops")
}

// sopsType returns the format of a file that sops encrypted; "": sops did not encrypt it.
func sopsType(text string) string {
	switch {
	case !strings.Contains(text, "ENC[AES256_GCM,"):
		return ""
	case strings.HasPrefix(strings.TrimSpace(text), "{") && strings.Contains(text, `"sops"`):
		if strings.HasPrefix(strings.Join(strings.Fields(text), ""), `{"data":"ENC[`) {
			return "binary"
		}
		return "json"
	case strings.HasPrefix(text, "sops:") || strings.Contains(text, "\nsops:"):
		return "yaml"
	case strings.Contains(text, "sops_"):
		return "dotenv"
	case strings.Contains(text, "[sops]"):
		return "ini"
	}
	return ""
}

func (k *Keeper) openSops(ctx context.Context, sealed, kind string) ([]byte, error) {
	shipped, err := fs.Sub(points, "points")
	if err != nil {
		return nil, err
	}
	p, err := hardpoint.Library{Kind: "secret", Verbs: []string{"open"}, Shipped: shipped,
		Repository: k.Repository}.Load("sops")
	if err != nil {
		return nil, err
	}
	result, err := p.Run(ctx, machine.Local{}, "open", hardpoint.Values{"type": kind, "sealed": sealed}, nil)
	if err != nil {
		return nil, fmt.Errorf("open a file of sops: %w", err)
	}
	return []byte(result.Text), nil
}

// Seal seals a value for recipients. It returns armored text between BEGIN and END lines, which ends in a newline.
// Invalid: there are no recipients, or the value is too large.
func Seal(value []byte, recipients []age.Recipient) (string, error) {
	var b bytes.Buffer
	text := armor.NewWriter(&b)
	if err := encrypt(text, value, recipients); err != nil {
		return "", err
	}
	if err := text.Close(); err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	return b.String(), nil
}

// SealLine is like Seal, but returns "age:" and base64 on one line.
func SealLine(value []byte, recipients []age.Recipient) (string, error) {
	var b bytes.Buffer
	if err := encrypt(&b, value, recipients); err != nil {
		return "", err
	}
	return prefix + base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

func encrypt(to io.Writer, value []byte, recipients []age.Recipient) error {
	if len(recipients) == 0 {
		return croft.Errorf(croft.Invalid, "seal: there are no recipients: name some in %s or with --to",
			RecipientsFile)
	}
	if len(value) > maxValue {
		return croft.Errorf(croft.Invalid, "seal: %d bytes are more than %d", len(value), maxValue)
	}
	w, err := age.Encrypt(to, recipients...)
	if err != nil {
		return croft.Errorf(croft.Invalid, "seal: %w", err)
	}
	if _, err := w.Write(value); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	return w.Close()
}
