package image

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestWhatTheDocumentsNameIsThere checks that each test named in docs/users/images.md exists, in this package, in
// format, in test/images or in test/e2e.
func TestWhatTheDocumentsNameIsThere(t *testing.T) {
	var all []byte
	for _, pattern := range []string{"*_test.go", "format/*_test.go", "../../test/images/*_test.go",
		"../../test/e2e/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			all = append(all, read(t, name)...)
		}
	}
	text, err := os.ReadFile("../../docs/users/images.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllSubmatch(text, -1)
	if len(named) < 20 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, name := range named {
		if !regexp.MustCompile(`(?m)^func ` + string(name[1]) + `\(`).Match(all) {
			t.Errorf("there is no test %s", name[1])
		}
	}
}
