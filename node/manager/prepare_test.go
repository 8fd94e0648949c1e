package manager

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"croft"
	"croft/node/settings"
)

func TestThePageThatBrowsersAreLedToHasAnAddress(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pools.yaml")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := settings.Defaults()
	s.Pool.File = file
	for page, want := range map[string]error{"": nil, "https://cloud.example:8781/ui/pools": nil,
		"http://10.0.0.1:8781/ui": nil, "pools": croft.Invalid, "//cloud.example/ui": croft.Invalid,
		"javascript:alert(1)": croft.Invalid, "https://": croft.Invalid} {
		s.Pool.Page = page
		if _, _, err := prepare(&s, slog.New(slog.DiscardHandler)); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", page, err, want)
		}
	}
}
