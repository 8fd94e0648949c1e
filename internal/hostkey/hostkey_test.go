package hostkey

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft"
)

// TestOpenSSHAgrees derives the public key with OpenSSH's own tool.
func TestOpenSSHAgrees(t *testing.T) {
	private, err := New()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ssh-keygen", "-y", "-f", file).Output()
	if err != nil {
		t.Fatalf("ssh-keygen: %v", err)
	}
	public, err := Public(private)
	if want := strings.TrimSpace(string(out)); err != nil || public != want {
		t.Errorf("got %q and %v, want %q", public, err, want)
	}
}

func TestEveryKeyIsAnother(t *testing.T) {
	a, _ := New()
	if b, _ := New(); a == b {
		t.Error("two keys are the same")
	}
}

func TestWhatIsNoKeyIsInvalid(t *testing.T) {
	for _, text := range []string{"", "ssh-ed25519 AAAA", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"} {
		if _, err := Public(text); !errors.Is(err, croft.Invalid) {
			t.Errorf("%q: got %v, want Invalid", text, err)
		}
	}
}

func TestAPublicKeyStaysAsItIs(t *testing.T) {
	private, err := New()
	if err != nil {
		t.Fatal(err)
	}
	public, err := Public(private)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Public(public); err != nil || again != public {
		t.Errorf("got %q, %v, want %q", again, err, public)
	}
}
