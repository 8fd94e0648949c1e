package shell_test

import (
	"os/exec"
	"testing"

	"croft/internal/shell"
)

func TestAShellReadsAQuotedWordBack(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "a", "it's", "''", "a b\n$HOME `id` \\ \"x\"", "-n", "#", "~", "*"} {
		got, err := exec.Command("sh", "-c", "printf %s "+shell.Quote(word)).Output()
		if err != nil || string(got) != word {
			t.Errorf("%q is read as %q: %v", word, got, err)
		}
	}
}
