package nearest_test

import (
	"testing"

	"croft/internal/nearest"
)

func TestWord(t *testing.T) {
	words := []string{"resources", "required", "VCPU", "PCPU", "MEMORY_MB", "o"}
	for _, c := range []struct{ name, word, want string }{
		{"a word is nearest to itself", "required", "required"},
		{"a letter left out", "resurces", "resources"},
		{"a letter too many", "requiredd", "required"},
		{"neighbours swapped are one edit, not two", "VPCU", "VCPU"},
		{"case does not count", "memory_mb", "MEMORY_MB"},
		{"the first of equals", "XCPU", "VCPU"},
		{"something far-fetched is not proposed", "banana", ""},
		{"a short word allows one edit", "p", "o"},
		{"nothing typed is near nothing", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := nearest.Word(c.word, words); got != c.want {
				t.Errorf("Word(%q) = %q, want %q", c.word, got, c.want)
			}
		})
	}
}

func TestHint(t *testing.T) {
	if got, want := nearest.Hint("lits", []string{"list"}), `; did you mean "list"?`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := nearest.Hint("zzz", []string{"list"}); got != "" {
		t.Errorf("got %q for a word that is near nothing", got)
	}
}
