package secret

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"croft"
)

// TestFilesThatSopsMade encrypts files with the program sops and opens them with the shipped hard point.
func TestFilesThatSopsMade(t *testing.T) {
	sops, err := exec.LookPath("sops")
	if err != nil {
		t.Skip("sops is not installed: scripts/test-sops fetches it and runs this test")
	}
	mine, theirs := identity(t), identity(t)
	keys := filepath.Join(t.TempDir(), "keys.txt")
	if err := os.WriteFile(keys, []byte(mine.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOPS_AGE_KEY_FILE", keys)
	t.Setenv("HOME", t.TempDir())
	seal := func(t *testing.T, kind, value string, to *age.X25519Identity) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), sops, "--encrypt", "--age", to.Recipient().String(), "--input-type",
			kind, "--output-type", kind, "/dev/stdin")
		cmd.Stdin = strings.NewReader(value)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("sops: %v", err)
		}
		if !strings.Contains(string(out), "ENC[AES256_GCM,") || strings.Contains(string(out), "hunter2") {
			t.Fatalf("sops made %s", out)
		}
		return string(out)
	}
	for kind, value := range map[string]string{
		"yaml":   "user: hunter2\nlist:\n    - hunter2\n",
		"json":   "{\n\t\"user\": \"hunter2\"\n}",
		"dotenv": "USER=hunter2\nOTHER=hunter2\n",
		"ini":    "[a]\nuser = hunter2\n",
		"binary": "-----BEGIN KEY-----\nhunter2\x00\xff\n-----END KEY-----\n\n",
	} {
		t.Run(kind, func(t *testing.T) {
			sealed := seal(t, kind, value, mine)
			if got := sopsType(sealed); got != kind {
				t.Errorf("it is taken for %q:\n%s", got, sealed)
			}
			got, err := keeper().Open(t.Context(), sealed)
			if err != nil || strings.TrimSpace(string(got)) != strings.TrimSpace(value) ||
				kind == "binary" && string(got) != value {
				t.Errorf("got %q, %v\nwant %q", got, err, value)
			}
			others := seal(t, kind, value, theirs)
			if _, err := keeper().Open(t.Context(), others); err == nil || strings.Contains(err.Error(), "hunter2") ||
				!strings.Contains(err.Error(), "sops") {
				t.Errorf("sealed for others: %v", err)
			}
			damaged := strings.Replace(sealed, "ENC[AES256_GCM,data:", "ENC[AES256_GCM,data:AAAA", 1)
			if _, err := keeper().Open(t.Context(), damaged); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("damaged: %v (%v)", err, croft.KindOf(err))
			}
		})
	}
}
