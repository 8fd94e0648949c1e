package seal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster"
	"croft/cluster/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newFile creates a key file, and returns its path and the ID of the key.
func newFile(t testing.TB) (path, id string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "key")
	id, err := seal.Generate(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, id
}

func load(t testing.TB, paths ...string) *seal.Keys {
	t.Helper()
	k, err := seal.Load(paths...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealed(t testing.TB, k *seal.Keys, secret, about string) cluster.Sealed {
	t.Helper()
	v, err := k.Seal(cluster.NewSecret(secret), about)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func opens(t testing.TB, k *seal.Keys, v cluster.Sealed, about, secret string) {
	t.Helper()
	if got, err := k.Open(v, about); err != nil || got.Reveal() != secret {
		t.Errorf("it opens as %q, %v", got.Reveal(), err)
	}
}

func refuses(t testing.TB, k *seal.Keys, v cluster.Sealed, about string, kind croft.Kind, says string) {
	t.Helper()
	got, err := k.Open(v, about)
	if croft.KindOf(err) != kind || !got.Empty() || !strings.Contains(err.Error(), says) {
		t.Errorf("it opens as %q, %v; want %s: %s", got.Reveal(), err, kind, says)
	}
}

func TestWhatIsSealedIsOpenedWhereItBelongs(t *testing.T) {
	path, _ := newFile(t)
	k := load(t, path)
	for _, secret := range []string{"", "x", "hunter2hunter2", strings.Repeat("ü\x00", 5000)} {
		v := sealed(t, k, secret, "credential\x00a")
		opens(t, load(t, path), v, "credential\x00a", secret)
		refuses(t, k, v, "credential\x00b", croft.Invalid, "moved")
		if again := sealed(t, k, secret, "credential\x00a"); bytes.Equal(v, again) {
			t.Error("the same secret is sealed the same way twice")
		}
		for _, text := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
			if len(secret) > 8 && strings.Contains(string(v), text) {
				t.Error("the sealed value has the secret")
			}
		}
	}
}

func TestWhatWasChangedIsNotOpened(t *testing.T) {
	path, _ := newFile(t)
	k := load(t, path)
	v := sealed(t, k, "hunter2hunter2", "a")
	var parts map[string]any
	if err := json.Unmarshal(v, &parts); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"data", "value"} {
		raw, _ := base64.StdEncoding.DecodeString(parts[field].(string))
		for _, bad := range [][]byte{nil, raw[:10], raw[:len(raw)-1], append(bytes.Clone(raw), 0),
			append(bytes.Clone(raw[:len(raw)-1]), raw[len(raw)-1]^1), append([]byte{raw[0] ^ 1}, raw[1:]...)} {
			other := map[string]any{"key": parts["key"], "data": parts["data"], "value": parts["value"]}
			other[field] = bad
			text, _ := json.Marshal(other)
			refuses(t, k, text, "a", croft.Invalid, "changed")
		}
	}
	for _, bad := range []string{"", "null", "{}", "[]", `"x"`, string(v[:len(v)-3])} {
		refuses(t, k, cluster.Sealed(bad), "a", croft.Invalid, "damaged")
	}
}

func TestTheFirstKeySealsAndAllOpen(t *testing.T) {
	before, was := newFile(t)
	after, id := newFile(t)
	v := sealed(t, load(t, before), "hunter2hunter2", "a")
	both := load(t, after, before)
	opens(t, both, v, "a", "hunter2hunter2")
	refuses(t, load(t, after), v, "a", croft.Unavailable, was)
	refuses(t, load(t), v, "a", croft.Unavailable, "no key")
	next, changed, err := both.Rewrap(v, "a")
	if err != nil || !changed || !strings.Contains(string(next), id) {
		t.Fatalf("wrapped again: %s, %v, %v", next, changed, err)
	}
	opens(t, load(t, after), next, "a", "hunter2hunter2")
	refuses(t, load(t, before), next, "a", croft.Unavailable, id)
	if same, changed, err := both.Rewrap(next, "a"); err != nil || changed || !bytes.Equal(same, next) {
		t.Errorf("once more: %s, %v, %v", same, changed, err)
	}
	if _, _, err := both.Rewrap(v, "b"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("of another record: %v", err)
	}
	if _, err := load(t).Seal(cluster.NewSecret("x"), "a"); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("without a key: %v", err)
	}
	var none *seal.Keys
	if _, err := none.Seal(cluster.NewSecret("x"), "a"); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("without keys: %v", err)
	}
}

func TestKeyFilesAreChecked(t *testing.T) {
	path, _ := newFile(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, c := range map[string]struct {
		paths []string
		says  string
	}{
		"others may read it":   {[]string{write("read", string(good), 0o640)}, "chmod 600"},
		"others may write it":  {[]string{write("write", string(good), 0o602)}, "chmod 600"},
		"there is none":        {[]string{filepath.Join(dir, "none")}, "no such file"},
		"it is a directory":    {[]string{dir}, "no regular file"},
		"it is empty":          {[]string{write("empty", "", 0o600)}, "no key file"},
		"its key is too short": {[]string{write("short", "a:"+strings.Repeat("A", 40)+"\n", 0o600)}, "no key file"},
		"it has two lines":     {[]string{write("two", string(good)+string(good), 0o600)}, "no key file"},
		"it is named twice":    {[]string{path, write("copy", string(good), 0o400)}, "once"},
	} {
		_, err := seal.Load(c.paths...)
		if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		_, raw, _ := strings.Cut(strings.TrimSpace(string(good)), ":")
		if err != nil && strings.Contains(err.Error(), raw) {
			t.Errorf("%s: the error has the key", name)
		}
	}
	if _, err := seal.Generate(path); croft.KindOf(err) != croft.Conflict {
		t.Errorf("a file was overwritten: %v", err)
	}
	if os.Geteuid() == 0 {
		foreign := write("foreign", string(good), 0o600)
		if err := os.Chown(foreign, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := seal.Load(foreign); croft.KindOf(err) != croft.Invalid {
			t.Errorf("of another user: %v", err)
		}
	}
}

func TestFilesAreReadAtTheFirstUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later")
	none, missing, later := seal.LoadLater(), seal.LoadLater(path), seal.LoadLater(path)
	_, err := none.Seal(cluster.NewSecret("s"), "about")
	if croft.KindOf(err) != croft.Unavailable {
		t.Errorf("without a file: %v", err)
	}
	if _, err = missing.Open(nil, "about"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("without the named file: %v", err)
	}
	if _, err := seal.Generate(path); err != nil {
		t.Fatal(err)
	}
	v, err := later.Seal(cluster.NewSecret("s"), "about")
	if err != nil {
		t.Fatal(err)
	}
	opens(t, load(t, path), v, "about", "s")
	if _, again, err := later.Rewrap(v, "about"); again || err != nil {
		t.Errorf("Rewrap with the same key: %v, %v", again, err)
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	path, _ := newFile(t)
	k := load(t, path)
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("here", "keys", k, "value", *k)
	slog.New(slog.NewTextHandler(&log, nil)).Info("here", "keys", k)
	all := fmt.Sprintf("%v %+v %#v %s %x %d %v %s", k, k, k, k, k, *k, struct{ K *seal.Keys }{k}, text) + log.String()
	if n := strings.Count(all, "[keys]"); n != 11 || strings.Contains(all, "aead") || strings.Contains(all, "cipher") {
		t.Errorf("%d times; printed as %s", n, all)
	}
}

// FuzzOpen opens arbitrary values: Open returns only secrets that were sealed, and never panics.
func FuzzOpen(f *testing.F) {
	path, _ := newFile(f)
	k := load(f, path)
	v := sealed(f, k, "hunter2hunter2", "a")
	f.Add([]byte(v), "a")
	f.Add([]byte(v), "b")
	f.Add([]byte(v[:40]), "a")
	f.Add([]byte(`{"key":"x","data":"","value":""}`), "")
	f.Add([]byte(`null`), "a")
	f.Fuzz(func(t *testing.T, v []byte, about string) {
		got, err := k.Open(v, about)
		switch {
		case err == nil && (got.Reveal() != "hunter2hunter2" || about != "a"):
			t.Errorf("%q opens as %q for %q", v, got.Reveal(), about)
		case err != nil && (!got.Empty() || croft.KindOf(err) == ""):
			t.Errorf("%q: %v", v, err)
		}
	})
}
