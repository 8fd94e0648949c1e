package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"croft/control/api"
	"croft/control/controltest"
)

// TestTheClientOfOapiCodegenWorks makes a client in Go.
func TestTheClientOfOapiCodegenWorks(t *testing.T) {
	dir := copied(t, "golang")
	run(t, dir, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", "client.go",
		"openapi.json")
	run(t, dir, "go", "build", "-o", "lifecycle", ".")
	url, _ := controltest.Start(t)
	run(t, dir, "./lifecycle", url, "anna")
}

// TestTheClientOfOpenAPITypescriptWorks makes a client in TypeScript.
func TestTheClientOfOpenAPITypescriptWorks(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed: install the packages nodejs and npm to run this test")
	}
	dir := copied(t, "typescript")
	run(t, dir, "npm", "ci", "--no-audit", "--no-fund")
	run(t, dir, "npx", "openapi-typescript", "openapi.json", "-o", "schema.d.ts")
	run(t, dir, "npx", "tsc", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022",
		"lifecycle.ts")
	url, _ := controltest.Start(t)
	run(t, dir, "node", "lifecycle.js", url, "anna")
}

// copied returns a copy of a directory, with the document in it.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "openapi.json"), api.Document(), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// run runs a program, which must succeed.
func run(t *testing.T, dir, program string, arguments ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, arguments...)
	c.Dir, c.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod")
	if output, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, arguments, err, output)
	}
}
