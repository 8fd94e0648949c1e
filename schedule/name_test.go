package schedule

import (
	"strings"
	"testing"

	"croft"
)

func TestCheckName(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
	}{
		{"a word", "web", ""},
		{"digits and dashes", "web-1", ""},
		{"the longest", strings.Repeat("a", 63), ""},
		{"too long", strings.Repeat("a", 64), "at most 63"},
		{"nothing", "", "is not a host name"},
		{"capitals", "Web", "is not a host name"},
		{"a dash at the end", "web-", "is not a host name"},
		{"a dot", "web.example", "is not a host name"},
		{"a line of its own", "web\n", "is not a host name"},
		{"a UUID", aggregate1, "looks like a UUID"},
		{"a UUID without dashes", strings.ReplaceAll(aggregate1, "-", ""), "looks like a UUID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckName(c.text)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an invalid name with %q", err, c.want)
			}
		})
	}
}

func TestDefaultNameIsAName(t *testing.T) {
	id := croft.NewInstanceID()
	if err := CheckName(DefaultName(id)); err != nil {
		t.Error(err)
	}
	if got, want := DefaultName("0f1e2d3c-1111-4111-8111-111111111111"), "vm-0f1e2d3c-1111"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
