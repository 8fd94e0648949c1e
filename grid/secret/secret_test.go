package secret

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"filippo.io/age"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"croft"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func keeper(list ...age.Identity) *Keeper {
	return &Keeper{Identities: func() ([]age.Identity, error) { return list, nil }}
}

func TestWhatIsSealedIsOpened(t *testing.T) {
	i := identity(t)
	k := keeper(i)
	for _, value := range []string{"", "a", "with\nlines\n", "\x00\xff", strings.Repeat("x", 100_000)} {
		block, err := Seal([]byte(value), []age.Recipient{i.Recipient()})
		if err != nil {
			t.Fatal(err)
		}
		line, err := SealLine([]byte(value), []age.Recipient{i.Recipient()})
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(line, " \n") || !strings.HasPrefix(line, "age:") {
			t.Errorf("the line is %.50q", line)
		}
		for _, sealed := range []string{block, "\n" + strings.TrimSpace(block), line} {
			if got, err := k.Open(t.Context(), sealed); string(got) != value || err != nil {
				t.Errorf("%.20q: got %.20q, %v", value, got, err)
			}
		}
	}
}

func TestValuesThatCannotBeOpened(t *testing.T) {
	i := identity(t)
	sealed, err := SealLine([]byte("the value"), []age.Recipient{identity(t).Recipient()})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := SealLine([]byte("the value"), []age.Recipient{i.Recipient()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, sealed string
		keeper       *Keeper
		kind         croft.Kind
		says         string
	}{
		{"sealed for others", sealed, keeper(i), croft.Denied, "rotate"},
		{"no identities", sealed, keeper(), croft.Denied, "AGE_IDENTITY"},
		{"not sealed", "plain", keeper(i), croft.Invalid, "neither"},
		{"nothing after age:", "age:", keeper(i), croft.Invalid, "grid secret seal"},
		{"no base64", "age:%%%", keeper(i), croft.Invalid, "base64"},
		{"base64 of something else", "age:aGVsbG8gd29ybGQ=", keeper(i), croft.Invalid, "no age file"},
		{"a block that is cut off", "-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n", keeper(i), croft.Invalid,
			"open a sealed value"},
		{"cut off", mine[:len(mine)-24], keeper(i), croft.Invalid, "sealed value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.keeper.Open(t.Context(), c.sealed)
			if croft.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(),
				"the value") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestSopsFiles(t *testing.T) {
	const yaml = "password: ENC[AES256_GCM,data:x,iv:y,tag:z,type:str]\nsops:\n    version: 3.8.1\n"
	for text, want := range map[string]string{
		yaml: "yaml",
		`{"a": "ENC[AES256_GCM,data:x]", "sops": {}}`:                 "json",
		"{\n\t\"data\": \"ENC[AES256_GCM,data:x]\",\n\t\"sops\": {}}": "binary",
		"A=ENC[AES256_GCM,data:x]\nsops_version=3":                    "dotenv",
		"[a]\nb=ENC[AES256_GCM,data:x]\n[sops]\n":                     "ini",
		"sops: a word":    "",
		"ENC[AES256_GCM,": "",
	} {
		if got := sopsType(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	k := keeper()
	k.Repository = fstest.MapFS{"hardpoints/secret/sops.yaml": {Data: []byte(
		"extends: sops\nopen:\n  argv: [sh, -c, 'echo \"$0\"; cat', \"${type}\"]\n  stdin: \"${sealed}\"\n")}}
	if got, err := k.Open(t.Context(), yaml); string(got) != "yaml\n"+yaml || err != nil {
		t.Errorf("by another program: %q, %v", got, err)
	}
	if _, err := exec.LookPath("sops"); err != nil {
		if _, err := keeper().Open(t.Context(), yaml); croft.KindOf(err) != croft.Unavailable ||
			!strings.Contains(err.Error(), "sops") {
			t.Errorf("without sops: %v", err)
		}
	}
}

func sshKey(t *testing.T, passphrase string) (private []byte, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block), string(ssh.MarshalAuthorizedKey(p))
}

func TestIdentities(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("AGE_IDENTITY", "")
	t.Setenv("AGE_IDENTITY_FILE", "")
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	i := identity(t)
	private, public := sshKey(t, "")
	locked, _ := sshKey(t, "passphrase")
	opens := func(what string, files ...string) {
		t.Helper()
		list, err := Identities(files...)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		recipients, err := ParseRecipients("r", "# readers\n\n"+i.Recipient().String()+"\n"+public)
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := SealLine([]byte("x"), recipients)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keeper(list...).Open(t.Context(), sealed); string(got) != "x" || err != nil {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	opens("a file of age-keygen", file("key", "# created\n"+i.String()+"\n", 0o600))
	opens("an SSH key", file("ssh", string(private), 0o400))
	t.Setenv("AGE_IDENTITY_FILE", filepath.Join(home, "key"))
	opens("AGE_IDENTITY_FILE")
	t.Setenv("AGE_IDENTITY_FILE", "")
	t.Setenv("AGE_IDENTITY", i.String())
	opens("AGE_IDENTITY")
	t.Setenv("AGE_IDENTITY", "")
	file(".ssh/id_rsa", string(locked), 0o600)
	file(".ssh/id_ed25519", string(private), 0o600)
	opens("the user's SSH key, beside one with a passphrase")
	for name, c := range map[string]struct{ path, says string }{
		"others may read it":  {file("open", i.String(), 0o640), "chmod 600"},
		"it has a passphrase": {file("locked", string(locked), 0o600), "passphrase"},
		"it is none":          {file("none", "AGE-SECRET-KEY-1ABC", 0o600), "neither"},
		"it is empty":         {file("empty", "", 0o600), "empty"},
		"it is not there":     {filepath.Join(home, "missing"), "no such file"},
	} {
		if _, err := Identities(c.path); err == nil || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), "1ABC") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for line, says := range map[string]string{
		i.String(): "age-keygen -y", "age1abc": "cut off", "nobody": "no recipient",
	} {
		if _, err := ParseRecipients("secrets/recipients", "\n"+line); err == nil || !strings.HasPrefix(err.Error(),
			"secrets/recipients:2: ") ||
			!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), i.String()) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestRotate(t *testing.T) {
	old, fresh := identity(t), identity(t)
	dir := t.TempDir()
	seal := func(value string) string {
		block, err := Seal([]byte(value), []age.Recipient{old.Recipient()})
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	line, err := SealLine([]byte("one line"), []age.Recipient{old.Recipient()})
	if err != nil {
		t.Fatal(err)
	}
	indented := "files:\n- path: /etc/x\n  content: |\n    " + strings.ReplaceAll(strings.TrimSpace(seal("a block")),
		"\n", "\n    ") +
		"\n- path: /etc/y\n  content: \"" + line + "\"\nafter: it\n"
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	write("jobs/web.yaml", indented)
	write("jobs/plain.yaml", "runtime: podman\nnote: \"age: 7\"\n")
	write("secrets/key.age", seal("a file"))
	write(".git/config", seal("not of the cluster"))
	done, err := keeper(old).Rotate(t.Context(), dir, []age.Recipient{fresh.Recipient()})
	if err != nil || len(done) != 2 || done[0] != (Rotated{"jobs/web.yaml", 2}) ||
		done[1] != (Rotated{"secrets/key.age", 1}) {
		t.Fatalf("%+v, %v", done, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "jobs/web.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, found := range sealedForm.Get().FindAllString(string(text), -1) {
		lines := strings.Split(found, "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], "    ")
		}
		value, err := keeper(fresh).Open(t.Context(), strings.Join(lines, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(value))
	}
	if strings.Join(values, ",") != "a block,one line" || !strings.HasSuffix(string(text), "\"\nafter: it\n") {
		t.Errorf("%q in\n%s", values, text)
	}
	if info, err := os.Stat(filepath.Join(dir, "jobs/web.yaml")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v, %v", info, err)
	}
	write("jobs/last.yaml", "x: "+line+"\n")
	before, _ := os.ReadFile(filepath.Join(dir, "secrets/key.age"))
	_, err = keeper(fresh).Rotate(t.Context(), dir, []age.Recipient{fresh.Recipient()})
	after, _ := os.ReadFile(filepath.Join(dir, "secrets/key.age"))
	if croft.KindOf(err) != croft.Denied || !strings.Contains(err.Error(), "jobs/last.yaml: line 1") ||
		string(before) != string(after) {
		t.Errorf("one cannot be opened: %v; changed: %v", err, string(before) != string(after))
	}
}

func FuzzOpen(f *testing.F) {
	f.Add("age:YWdlLWVuY3J5cHRpb24ub3JnL3YxCg==")
	f.Add("-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n-----END AGE ENCRYPTED FILE-----\n")
	f.Add("age-encryption.org/v1\n-> X25519 x\n")
	i, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sealed string) {
		if sopsType(sealed) != "" {
			return
		}
		if value, err := keeper(i).Open(t.Context(), sealed); err == nil {
			t.Errorf("%q is %q, and nobody sealed it", sealed, value)
		}
	})
}
