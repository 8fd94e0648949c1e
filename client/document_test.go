package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheProgramOfTheDocumentCompiles checks the types of the program in docs/api.md.
func TestTheProgramOfTheDocumentCompiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(text), "```go\n")
	program, _, ended := strings.Cut(program, "```\n")
	if !found || !ended {
		t.Fatal("docs/api.md has no program")
	}
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", source).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
