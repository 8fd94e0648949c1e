package image

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"croft"
)

// signer is a publisher with its own key.
type signer struct {
	t   *testing.T
	key *openpgp.Entity
}

func newSigner(t *testing.T, change ...func(*packet.Config)) signer {
	t.Helper()
	config := &packet.Config{}
	for _, f := range change {
		f(config)
	}
	key, err := openpgp.NewEntity("publisher", "", "images@example.com", config)
	if err != nil {
		t.Fatal(err)
	}
	return signer{t, key}
}

func (s signer) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// keyring writes the public key into a file.
func (s signer) keyring(armored bool) string {
	var b bytes.Buffer
	if !armored {
		s.check(s.key.Serialize(&b))
		return writeFile(s.t, filepath.Join(s.t.TempDir(), "keyring.gpg"), b.Bytes())
	}
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	s.check(err)
	s.check(s.key.Serialize(w))
	s.check(w.Close())
	return writeFile(s.t, filepath.Join(s.t.TempDir(), "keyring.asc"), b.Bytes())
}

func (s signer) clear(text string) string {
	var b bytes.Buffer
	w, err := clearsign.Encode(&b, s.key.PrivateKey, nil)
	s.check(err)
	_, err = w.Write([]byte(text))
	s.check(err)
	s.check(w.Close())
	return b.String()
}

func (s signer) detached(text string, armored bool, config *packet.Config) string {
	var b bytes.Buffer
	sign := openpgp.DetachSign
	if armored {
		sign = openpgp.ArmoredDetachSign
	}
	s.check(sign(&b, s.key, strings.NewReader(text), config))
	return b.String()
}

// serves answers these paths with these bodies, and other paths with the image.
func (s *server) serves(files map[string]string) {
	s.answers(func(w http.ResponseWriter, r *http.Request) bool {
		body, ok := files[r.URL.Path]
		if ok {
			fmt.Fprint(w, body)
		}
		return ok
	})
}

func TestFetchVerifiesWhoSignedTheList(t *testing.T) {
	content := rawImage(1, 1<<20)
	right := sha(content) + "  disk.img\n"
	wrong := strings.Repeat("0", 64) + "  disk.img\n"
	publisher, stranger := newSigner(t), newSigner(t)
	expired := newSigner(t, func(c *packet.Config) {
		c.Time = func() time.Time { return time.Now().Add(-48 * time.Hour) }
		c.KeyLifetimeSecs = 3600
	})
	then := &packet.Config{Time: func() time.Time { return time.Now().Add(-48 * time.Hour) }}
	inside := publisher.clear(right)
	for _, v := range []struct {
		name, list, signature string
		keyring               string
		kind                  croft.Kind // empty: accepted
		words                 string
	}{
		{"the list has the signature in itself", inside, "", publisher.keyring(false), "", ""},
		{"the keyring is armored", inside, "", publisher.keyring(true), "", ""},
		{"the signature is a file of its own", right, publisher.detached(right, false, nil), publisher.keyring(false),
			"", ""},
		{"the signature is an armored file", right, publisher.detached(right, true, nil), publisher.keyring(false), "",
			""},

		{"somebody else signed the list", stranger.clear(right), "", publisher.keyring(false), croft.Invalid,
			"not signed by a key in"},
		{"somebody else signed in a file", right, stranger.detached(right, true, nil), publisher.keyring(false),
			croft.Invalid, "not signed by a key in"},
		{"the list changed after it was signed", strings.Replace(inside, sha(content), strings.Repeat("0", 64), 1), "",
			publisher.keyring(false), croft.Invalid, "signature is not right"},
		{"the list beside the signature changed", wrong, publisher.detached(right, false, nil),
			publisher.keyring(false), croft.Invalid, "signature is not right"},
		{"the signature is one of another list", right, publisher.detached(wrong, true, nil), publisher.keyring(false),
			croft.Invalid, "signature is not right"},
		{"nobody signed the list", right, "", publisher.keyring(false), croft.Invalid, "contains no signature"},
		{"the signature is none", right, "<html>sorry</html>", publisher.keyring(false), croft.Invalid, "signature"},
		{"the signature is empty", right, " ", publisher.keyring(false), croft.Invalid, "signature"},
		{"the key has expired", right, expired.detached(right, false, then), expired.keyring(false), croft.Invalid,
			"expired"},
		{"a line before the signed part counts for nothing", right + publisher.clear("nothing\n"), "",
			publisher.keyring(false), croft.Invalid, "has no sha256"},
		{"a line after the signed part counts for nothing", publisher.clear("nothing\n") + "\n" + right, "",
			publisher.keyring(false), croft.Invalid, "has no sha256"},
		{"a line among the signature's headers counts for nothing",
			strings.Replace(publisher.clear("nothing\n"), "\n\n", "\n"+right+"\n", 1), "", publisher.keyring(false),
			croft.Invalid, ""},
		{"the keyring is missing", inside, "", "/usr/share/keyrings/ubuntu-none.gpg", croft.NotFound,
			"install the package ubuntu-keyring"},
		{"the keyring is no keyring", inside, "", "/etc/hostname", croft.Invalid, "not a readable OpenPGP keyring"},
		{"the keyring is empty", inside, "", writeFile(t, filepath.Join(t.TempDir(), "empty"), nil), croft.Invalid,
			"not a readable OpenPGP keyring"},
		{"the keyring is a device", inside, "", "/dev/zero", croft.Invalid, "not a regular file"},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, content), newCache(t)
			s.serves(map[string]string{"/SUMS": v.list, "/SUMS.gpg": v.signature})
			ref := s.ref() + "#sums=SUMS&signed-by=" + url.QueryEscape(v.keyring)
			if v.signature != "" {
				ref += "&signature=SUMS.gpg"
			}
			img, err := c.Fetch(t.Context(), ref, nil)
			if v.kind != "" {
				refused(t, c, err, v.kind, v.words)
				if images := cacheHas(t, c); len(images) > 0 {
					t.Errorf("in the cache: %v", images)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			contentIs(t, img.Path, content)
		})
	}
}

func TestASignatureThatCannotBeFetchedIsNotDoneWithout(t *testing.T) {
	content := rawImage(1, 1<<20)
	s, c := newServer(t, content), newCache(t)
	s.serves(map[string]string{"/SUMS": sha(content) + "  disk.img\n"})
	other := newServer(t, nil)
	other.answers(status(http.StatusNotFound))
	_, err := c.Fetch(t.Context(), s.ref()+"#sums=SUMS&signed-by="+newSigner(t).keyring(false)+"&signature="+
		url.QueryEscape(other.URL+"/SUMS.gpg"), nil)
	refused(t, c, err, croft.NotFound, "SUMS.gpg", "404")
}

// TestDebiansOwnSignatureIsRight verifies lists in this machine's apt cache, signed with the keys of Debian's
// keyring package.
func TestDebiansOwnSignatureIsRight(t *testing.T) {
	const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	lists, err := filepath.Glob("/var/lib/apt/lists/*_debian_dists_bookworm_InRelease")
	if _, missing := os.Stat(keyring); err != nil || len(lists) == 0 || missing != nil {
		t.Skip("there is no list of Debian's and its keyring on this machine")
	}
	keys, err := readKeyring(keyringDirs, keyring)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signedInside(keys, keyring, read(t, lists[0]))
	if err != nil || !bytes.Contains(text, []byte("\nCodename: bookworm\n")) {
		t.Errorf("%v: %.200s", err, text)
	}
	_, err = signedInside(keys, keyring, bytes.Replace(read(t, lists[0]), []byte("\nCodename: bookworm\n"),
		[]byte("\nCodename: bookwurm\n"), 1))
	refused(t, nil, err, croft.Invalid, "signature is not right")
}

func TestParseReferenceReadsSignatures(t *testing.T) {
	const image = "https://e/a/x.img#sums=SUMS"
	for in, want := range map[string]Reference{
		image + "&signed-by=/k.gpg": {SignedBy: "/k.gpg"},
		image + "&signed-by=%2Fk%26.gpg&signature=SUMS.gpg": {SignedBy: "/k&.gpg",
			Signature: "https://e/a/SUMS.gpg"},
		image + "&signature=https%3A%2F%2Ff%2Fs&signed-by=/a/../k": {SignedBy: "/k", Signature: "https://f/s"},
	} {
		want.URL, want.Sums = "https://e/a/x.img", "https://e/a/SUMS"
		got, err := ParseReference(in)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", in, got, err, want)
		}
		if back, err := ParseReference(got.String()); err != nil || back != want {
			t.Errorf("%s is written %q, which is %+v, %v", in, got, back, err)
		}
	}
	for in, words := range map[string]string{
		image + "&signature=S":                                            "without signed-by",
		image + "&signed-by=keyring.gpg":                                  "not the absolute path",
		image + "&signed-by=/k&signed-by=/l":                              "2 times",
		image + "&sums=OTHER":                                             "2 times",
		image + "&signed-by=/k&signature=file%3A%2F%2F%2Fs":               "not an http or https address",
		image + "&singed-by=/k":                                           `did you mean "signed-by"?`,
		"https://e/x#signed-by=/k":                                        "signed-by= needs sums=",
		"https://e/x#sha256=" + strings.Repeat("a", 64) + "&signed-by=/k": "signed-by= needs sums=",
		"/srv/x#signed-by=/k":                                             "signed-by= needs sums=",
	} {
		_, err := ParseReference(in)
		refused(t, nil, err, croft.Invalid, words)
	}
}

func TestCatalogCarriesSignatures(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "images.yaml"),
		[]byte("x: {url: https://e/x.img, sums: SUMS, signed_by: /k.gpg, signature: SUMS.gpg}\n"))
	c, err := LoadCatalog([]string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Resolve("x")
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Reference()
	if want := "https://e/x.img#sums=SUMS&signed-by=/k.gpg&signature=SUMS.gpg"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got := e.Verification(); got != "the list SUMS, signed by a key in /k.gpg" {
		t.Errorf("verified by %s", got)
	}
	for text, words := range map[string]string{
		"x: {url: https://e/x.img, signed_by: /k.gpg}":         "signed-by= needs sums=",
		"x: {url: https://e/x.img, sums: S, signature: S.gpg}": "without signed-by",
		"x: {url: https://e/x.img, sums: S, signed_by: k.gpg}": "not the absolute path",
		"x: {url: /x, sums: S, signed_by: /k.gpg}":             "sums= is only for http",
	} {
		_, err := LoadCatalog([]string{writeFile(t, filepath.Join(t.TempDir(), "images.yaml"), []byte(text))}, nil)
		refused(t, nil, err, croft.Invalid, words)
	}
}
