package machine

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"croft"
)

func TestAShellReadsBackWhatIsQuoted(t *testing.T) {
	for _, words := range [][]string{
		{"echo", "plain", "a/b.c:d,e@f%g+h"},
		{"", " ", "\t\n", "'", `"`, `\`, "$HOME", "`id`", "a'b'c", "*", "~", "-n", "=", "#x", "é", "\xff"},
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+Quote(words...)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(words, "\x00") + "\x00"; string(out) != want {
			t.Errorf("Quote(%q): a shell reads %q", words, out)
		}
	}
}

func TestOutputOfThisMachine(t *testing.T) {
	out, err := Output(t.Context(), Local{}, strings.NewReader("in"), "cat")
	if out != "in" || err != nil {
		t.Errorf("cat: %q, %v", out, err)
	}
	_, err = Output(t.Context(), Local{}, nil, "sh", "-c", "echo no >&2; exit 3")
	var exit *Exit
	if !errors.As(err, &exit) || exit.Code != 3 || exit.Error() != "exit code 3: no" {
		t.Errorf("exit 3: %v", err)
	}
	_, err = Output(t.Context(), Local{}, nil, "sh", "-c", "kill -9 $$")
	if !errors.As(err, &exit) || exit.Code != 128+9 {
		t.Errorf("killed: %v", err)
	}
	if _, err = Output(t.Context(), Local{}, nil, "yes"); !errors.Is(err, croft.Invalid) {
		t.Errorf("endless output: %v", err)
	}
	if _, err = Output(t.Context(), Local{}, nil, "/no/such/program"); !errors.Is(err, croft.Unavailable) {
		t.Errorf("no program: %v", err)
	}
}

func TestAProgramOfThisMachineEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	p, err := Local{}.Start(ctx, Command{Argv: []string{"sh", "-c", "sleep 1000 & sleep 1000"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	err = p.Wait()
	var lost *Lost
	if !errors.As(err, &lost) || !errors.Is(err, croft.Unavailable) {
		t.Errorf("given up: %v", err)
	}
}
