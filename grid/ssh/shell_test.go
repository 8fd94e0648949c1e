package ssh

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Whatever a login shell is, it starts the program with the words that it was given.
func TestAnyLoginShellStartsTheProgram(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"sh", "bash", "dash", "csh", "tcsh", "fish", "zsh", "busybox"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed: scripts/install-deps test installs tcsh and fish", shell)
			continue
		}
		t.Run(shell, func(t *testing.T) {
			words := []string{"a b", "it's", `"q"`, "$HOME `id` $(id)", "two\nlines\n", "end\n\n", "!!", "a!b", `\`, `\\`, `\'`,
				`a\nb`, "%s %d", "*", "~", "#x", "é", "\t", "", "{a,b}", "x=1", ";", "&&", "^", "[a]"}
			for _, argv := range append([][]string{words}, oneByOne(words)...) {
				shell := []string{path, "-c", wrapped("MARK", append([]string{"/usr/bin/printf", `%s\0`}, argv...))}
				if strings.HasSuffix(path, "busybox") {
					shell = slices.Insert(shell, 1, "sh")
				}
				out, err := exec.CommandContext(t.Context(), shell[0], shell[1:]...).Output()
				if want := "MARK\n" + strings.Join(argv, "\x00") + "\x00"; err != nil || string(out) != want {
					t.Errorf("%q: got %q, %v", argv, out, err)
				}
			}
		})
	}
}

func oneByOne(words []string) (all [][]string) {
	for _, w := range words {
		all = append(all, []string{w})
	}
	return all
}
