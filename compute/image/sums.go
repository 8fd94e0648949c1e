package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"

	"croft"
	"croft/compute/image/format"
)

// maxSums limits the size of a list of checksums; the longest known ones have some 100 KiB.
const maxSums = 4 << 20

// publisher obtains checksums from an image's publisher.
type publisher struct {
	client   *client
	keyrings []string // directories of allowed keyrings
}

// checksum fetches the publisher's list and returns the checksum of the image.
func (p publisher) checksum(ctx context.Context, ref Reference) (digest, error) {
	text, err := p.fetch(ctx, ref.Sums)
	if err == nil && ref.SignedBy != "" {
		text, err = p.signed(ctx, ref, text)
	}
	if err != nil {
		return digest{}, fmt.Errorf("list of checksums %s: %w", Reference{URL: ref.Sums}.Name(), err)
	}
	d, ok := findSum(text, ref.URL, ref.Sums)
	if !ok {
		return digest{},
			croft.Errorf(croft.Invalid,
				"the list of checksums %s has no sha256 or sha512 of %s: check both addresses, or give #sha256=HEX",
				Reference{URL: ref.Sums}.Name(), ref.file())
	}
	return d, nil
}

// fetch fetches a list of checksums, or its signature.
func (p publisher) fetch(ctx context.Context, address string) ([]byte, error) {
	ctx, watch := p.client.watch(ctx)
	defer watch.stop()
	req, err := p.client.request(ctx, address)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.do(req, false)
	if err != nil {
		return nil, watch.explain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp)
	}
	text, err := io.ReadAll(io.LimitReader(watch.reader(resp.Body), maxSums+1))
	if err != nil {
		return nil, watch.explain(err)
	}
	if len(text) > maxSums {
		return nil, croft.Errorf(croft.Invalid, "it is longer than %s, too long for such a list", format.Bytes(maxSums))
	}
	return text, nil
}

// signed returns the part of a list of checksums that is signed by a key in the reference's keyring. Invalid:
// there is no such part.
func (p publisher) signed(ctx context.Context, ref Reference, text []byte) ([]byte, error) {
	keys, err := readKeyring(p.keyrings, ref.SignedBy)
	if err != nil {
		return nil, err
	}
	if ref.Signature == "" {
		return signedInside(keys, ref.SignedBy, text)
	}
	signature, err := p.fetch(ctx, ref.Signature)
	if err != nil {
		return nil, fmt.Errorf("signature %s: %w", Reference{URL: ref.Signature}.Name(), err)
	}
	return text, checkDetached(keys, ref.SignedBy, text, signature)
}

// maxKeyring limits the size of a keyring; Debian's with all its developers has some 30 MiB, and keyrings of archives
// have a few KiB.
const maxKeyring = 64 << 20

// signedInside returns only the signed text: the text around it is not protected.
func signedInside(keys openpgp.EntityList, keyring string, text []byte) ([]byte, error) {
	block, _ := clearsign.Decode(text)
	if block == nil {
		return nil, croft.Errorf(croft.Invalid, "it contains no signature: name the file with the signature with "+
			"signature=URL")
	}
	if _, err := block.VerifySignature(keys, nil); err != nil {
		return nil, badSignature(keyring, err)
	}
	return block.Plaintext, nil
}

func checkDetached(keys openpgp.EntityList, keyring string, text, signature []byte) error {
	check := openpgp.CheckDetachedSignature
	if bytes.HasPrefix(bytes.TrimSpace(signature), []byte("-----BEGIN PGP")) {
		check = openpgp.CheckArmoredDetachedSignature
	}
	if _, err := check(keys, bytes.NewReader(text), bytes.NewReader(signature), nil); err != nil {
		return badSignature(keyring, err)
	}
	return nil
}

// badSignature returns an error that says why a signature is rejected, and how to fix it.
func badSignature(keyring string, err error) error {
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return croft.Errorf(croft.Invalid,
			"it is not signed by a key in %s: name the publisher's keyring, or do not use the image", keyring)
	case errors.Is(err, pgperrors.ErrKeyExpired) || errors.Is(err, pgperrors.ErrSignatureExpired):
		return croft.Errorf(croft.Invalid, "its signature has expired by %s: update the package that has the keyring",
			keyring)
	}
	return croft.Errorf(croft.Invalid, "its signature is not right (%w): do not use the image", err)
}

// keyringDirs are the directories for keyrings, independent of the other readable files of this host.
var keyringDirs = []string{"/usr/share/keyrings", "/etc/croft/keyrings"}

// readKeyring reads the keys of a file, binary or armored, in one of the directories.
func readKeyring(dirs []string, name string) (openpgp.EntityList, error) {
	f, fi, err := openIn(dirs, name)
	if croft.KindOf(err) == croft.NotFound {
		return nil, croft.Errorf(croft.NotFound, "the keyring %s is not on this host: install %s", name,
			keyringPackage(name))
	}
	if err != nil {
		return nil, fmt.Errorf("keyring %s: %w", name, err)
	}
	defer f.Close()
	if fi.Size() > maxKeyring {
		return nil, croft.Errorf(croft.Invalid, "the keyring %s has %s, too much for one", name,
			format.Bytes(fi.Size()))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyring))
	if err != nil {
		return nil, fmt.Errorf("read the keyring %s: %w", name, err)
	}
	read := openpgp.ReadKeyRing
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("-----BEGIN PGP")) {
		read = openpgp.ReadArmoredKeyRing
	}
	keys, err := read(bytes.NewReader(text))
	if err == nil && len(keys) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil,
			croft.Errorf(croft.Invalid, "%s is not a readable OpenPGP keyring (%w): make one with gpg --export",
				name, err)
	}
	return keys, nil
}

// keyringPackage returns the package that contains a keyring, as named by Debian and Ubuntu.
func keyringPackage(name string) string {
	base := filepath.Base(name)
	for prefix, pkg := range map[string]string{"debian-archive": "debian-archive-keyring",
		"ubuntu-": "ubuntu-keyring"} {
		if strings.HasPrefix(base, prefix) {
			return "the package " + pkg
		}
	}
	return "the package that has it, or put it there"
}
