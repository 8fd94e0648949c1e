package image

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"croft"
	"croft/image/format"
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
	d, ok := findSum(text, ref.file())
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

// findSum finds a file in a list of checksums in the format of sha256sum and sha512sum ("HEX  NAME", "HEX
// *NAME") or in the BSD format ("SHA256 (NAME) = HEX"), optionally in a PGP signature. A list of one bare
// checksum is valid for any file. If a file has several, the longest wins.
func findSum(text []byte, file string) (digest, bool) {
	var found digest
	lines, bare := 0, digest{}
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, 64<<10)
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		lines++
		name, hex := splitSum(line)
		d, ok := digestOf(hex)
		if !ok {
			continue
		}
		if name == "" {
			bare = d
		}
		if path.Base(name) == file && len(d.hex) > len(found.hex) {
			found = d
		}
	}
	if scanner.Err() != nil {
		return digest{}, false
	}
	if found.hex == "" && lines == 1 {
		found = bare
	}
	return found, found.hex != ""
}

// splitSum splits one line; name is empty if the line has only a checksum.
func splitSum(line string) (name, hex string) {
	if i := strings.Index(line, " ("); i > 0 {
		if j := strings.LastIndex(line, ") = "); j > i {
			return line[i+2 : j], strings.TrimSpace(line[j+4:])
		}
	}
	hex, name, _ = strings.Cut(line, " ")
	return strings.TrimPrefix(strings.TrimSpace(name), "*"), hex
}
