package direct

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft/internal/settings"
)

// TestScheduleYAMLHoldsTheDefaults checks the file in the source's top directory. It documents the settings, and
// schedule reads it when run there, so it must change nothing.
func TestScheduleYAMLHoldsTheDefaults(t *testing.T) {
	t.Parallel()
	const file = "../../../schedule.yaml"
	noEnvironment := func(string) (string, bool) { return "", false }
	got, _, err := settings.Load(Settings{}, settings.Source{File: file, Env: noEnvironment})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Defaults(), got); diff != "" {
		t.Errorf("%s differs from the defaults: %s", file, diff)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	for line := range strings.Lines(string(text)) {
		set := !strings.HasPrefix(strings.TrimSpace(line), "#") && strings.TrimSpace(line) != ""
		if set && !strings.HasSuffix(strings.TrimSpace(line), ":") && !strings.HasPrefix(line,
			"timeout") && !strings.HasPrefix(strings.TrimSpace(before), "#") {
			t.Errorf("no comment says what this is: %s", line)
		}
		before = line
	}
}
