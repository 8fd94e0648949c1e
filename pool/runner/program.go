package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/plain"
	"croft/internal/shell"
)

// runProgram is the command that runs GitHub's runner with the configuration in its input. The environment passes it
// on, where the runner removes it before the job starts; in an argument every process of the machine could read it.
func runProgram(dir string) string {
	return "cd && cd " + shell.Quote(dir) + ` || exit 9
IFS= read -r ACTIONS_RUNNER_INPUT_JITCONFIG || exit 9
export ACTIONS_RUNNER_INPUT_JITCONFIG
[ "$(id -u)" != 0 ] || export RUNNER_ALLOW_RUNASROOT=1
exec ./run.sh < /dev/null`
}

// probe prints the machine's kind, and whether it has the runner.
func probe(dir string) string {
	return "cd; uname -s; uname -m; if [ -x " + shell.Quote(dir) + "/run.sh ]; then echo present; else echo missing; fi"
}

// installProgram is the command that downloads the runner. Its input has the address, the checksum and, if one is
// needed, a token in one line each.
func installProgram(dir string) string {
	return `set -eu
IFS= read -r url; IFS= read -r sum; IFS= read -r token || token=
cd; mkdir -p ` + shell.Quote(dir) + `; cd ` + shell.Quote(dir) + `
if command -v curl > /dev/null; then
	{ printf 'url = "%s"\n' "$url"; [ -z "$token" ] || printf 'header = "Authorization: Bearer %s"\n' "$token"; } |
		curl -fsSL --retry 3 -K - -o runner.tar.gz
elif [ -z "$token" ]; then
	wget -q -O runner.tar.gz "$url"
else
	echo 'there is no curl on the machine' >&2; exit 9
fi
echo "$sum  runner.tar.gz" | sha256sum -c - > /dev/null 2>&1 ||
	{ rm -f runner.tar.gz; echo 'the checksum of what was downloaded is another one' >&2; exit 9; }
tar -xzf runner.tar.gz; rm runner.tar.gz
test -x run.sh || { echo 'what was downloaded has no run.sh' >&2; exit 9; }`
}

// architectures has GitHub's names of the machines that uname names.
var architectures = map[string]string{"x86_64": "x64", "aarch64": "arm64", "armv7l": "arm"}

var sha256Sum = lazyregexp.New(`^[0-9a-fA-F]{64}$`)

// install installs the runner on a machine whose image does not have it. Its checksum is GitHub's.
func (f *Fleet) install(ctx context.Context, m Machine) error {
	var said bytes.Buffer
	if err := f.Shell.Run(ctx, m, probe(f.Dir), strings.NewReader(""), &said, &said); err != nil {
		return fmt.Errorf("look for the runner on the machine of ticket %d: %w: %.200s", m.Ticket, err,
			plain.Line(said.String()))
	}
	words := strings.Fields(said.String())
	if len(words) < 3 {
		return croft.Errorf(croft.Invalid, "look for the runner on the machine of ticket %d: it says %.200q", m.Ticket,
			said.String())
	}
	words = words[len(words)-3:] // a login script may print something first
	if words[2] == "present" {
		return nil
	}
	all, err := f.GitHub.Downloads(ctx)
	if err != nil {
		return &refusal{fmt.Errorf("find the runner's program: %w", err)}
	}
	i := slices.IndexFunc(all, func(d Download) bool {
		return d.OS == "linux" && words[0] == "Linux" && d.Architecture == architectures[words[1]]
	})
	if i < 0 {
		return croft.Errorf(croft.Invalid, "GitHub has no runner for %.20s on %.20s: put one into the image, at %s", words[0],
			words[1], f.Dir)
	}
	d := all[i]
	if u, err := url.Parse(d.URL); err != nil || u.Scheme != "https" && !loopback(u.Hostname()) ||
		strings.ContainsAny(d.URL+d.Token, "\"\\ \r\n") || !sha256Sum.Get().MatchString(d.SHA256) {
		return croft.Errorf(croft.Invalid, "GitHub names no address with https and a checksum of the runner for %.20s: put "+
			"the runner into the image, at %s", words[1], f.Dir)
	}
	problem := &tail{}
	err = f.Shell.Run(ctx, m, installProgram(f.Dir), strings.NewReader(d.URL+"\n"+d.SHA256+"\n"+d.Token+"\n"), problem,
		problem)
	if exit, ok := errors.AsType[*Exit](err); ok {
		return fmt.Errorf("install the runner on the machine of ticket %d: exit code %d%s", m.Ticket, exit.Code, problem)
	}
	return err
}

// longestLine bounds a line of a program's output.
const longestLine = 1000

// lines is a writer that calls each for every line, without control characters.
type lines struct {
	each func(string)
	part []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, found := bytes.Cut(l.part, []byte("\n"))
		if !found && len(l.part) <= longestLine {
			return len(p), nil
		}
		l.part = rest
		l.each(plain.Line(string(line[:min(len(line), longestLine)])))
	}
}
