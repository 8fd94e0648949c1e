package guest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const scripts = "../../scripts/guest"

func TestShellcheck(t *testing.T) {
	var files []string
	for _, f := range []string{"build", "build-debian", "lib.sh", "tiny/rc", "tiny/dhcp", "tiny/power",
		"tiny/metadata.sh"} {
		files = append(files, filepath.Join(scripts, f))
	}
	args := append([]string{"-x", "-P", scripts, "-P", scripts + "/tiny"}, files...)
	if out, err := exec.CommandContext(t.Context(), "shellcheck", args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestJSONInAWK(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"a scalar has no path", `"x"`, "\tx\n"},
		{"keys are joined by dots", `{"a":{"b":1,"c":"x y"}}`, ".a.b\t1\n.a.c\tx y\n"},
		{"elements are counted", `[true,[null],-1.5e3]`, ".0\ttrue\n.1.0\tnull\n.2\t-1.5e3\n"},
		{"empty things give nothing", ` { "a" : [ ] , "b" : { } } `, ""},
		{"escapes are undone", `{"k":"a\"b\\c\/d\u0041"}`, ".k\ta\"b\\c/dA\n"},
		{"what would break the line is a space", `{"k":"a\nb\tc\u000a"}`, ".k\ta b c\n"},
		{"braces in strings are no braces", `{"k":"}],{\"","l":2}`, ".k\t}],{\"\n.l\t2\n"},
		{"what is not ASCII is kept raw and lost escaped", `["é","\u00e9"]`, ".0\té\n.1\t?\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := awk(t, tt.in)
			if err != nil || got != tt.want {
				t.Errorf("%s gives %q, %v, want %q", tt.in, got, err, tt.want)
			}
		})
	}
	for _, bad := range []string{"", "{", `{"a"}`, `{"a":}`, "[1", "[1,]", `"x`, `"\`, "1 2", "<html>"} {
		if got, err := awk(t, bad); err == nil {
			t.Errorf("%q is no JSON and gives %q", bad, got)
		}
	}
}

func awk(t *testing.T, in string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "awk", "-f", scripts+"/tiny/json.awk")
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.Output()
	return string(out), err
}

func TestBuildersSayWhatIsWrong(t *testing.T) {
	bare := t.TempDir()
	for _, tool := range []string{"dirname", "id"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bare, tool)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		args   []string
		hidden bool // the tools are not in PATH
		want   string
	}{
		{"no output", nil, false, "name the image to write"},
		{"an unknown flag", []string{"--sise", "1", "x"}, false, "unknown flag --sise"},
		{"a flag without its value", []string{"--suite"}, false, "--suite needs a value"},
		{"two outputs", []string{"a", "b"}, false, "one output is enough: a, b"},
		{"an unknown compression", []string{"--compress", "xz", "x"}, false, "--compress is zlib or zstd, not xz"},
		{"missing tools", []string{"x"}, true, "apt-get install -y --no-install-recommends mmdebstrap"},
	}
	for _, program := range []string{"build", "build-debian"} {
		for _, tt := range tests {
			t.Run(program+": "+tt.name, func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), "/bin/sh",
					append([]string{scripts + "/" + program}, tt.args...)...)
				cmd.Env = os.Environ()
				if tt.hidden {
					cmd.Env = append(cmd.Env, "PATH="+bare)
				}
				var words bytes.Buffer
				cmd.Stderr = &words
				if err := cmd.Run(); err == nil || strings.Count(words.String(), "\n") != 1 ||
					!strings.Contains(words.String(), tt.want) {
					t.Errorf("it ended with %v and said %q, want one line with %q", err, words.String(), tt.want)
				}
			})
		}
	}
	if left, _ := filepath.Glob("x*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
