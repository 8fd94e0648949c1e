package revlock

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/internal/lazyregexp"
	"croft/internal/wording"
)

//go:embed node.sh
var functions string

// A Place is where a cluster keeps its state on a node.
type Place struct {
	Base    string // the state directory; "": /var/lib/croft/grid for root, else ~/.local/state/croft/grid
	Cluster string // the cluster's id
}

var (
	baseForm    = lazyregexp.New(`^(/[A-Za-z0-9_.,:@%+-]+)+$`)
	clusterForm = lazyregexp.New(`^[0-9a-f]{32}$`)
)

// check returns Invalid unless a shell takes both fields literally.
func (p Place) check() error {
	if p.Base != "" && !baseForm.MatchString(p.Base) {
		return croft.Errorf(croft.Invalid, "state_dir %q: give an absolute path of letters, digits and _.,:@%%+-", p.Base)
	}
	if !clusterForm.MatchString(p.Cluster) {
		return croft.Errorf(croft.Invalid, "the cluster's id %q is not 32 hexadecimal digits", p.Cluster)
	}
	return nil
}

// Timeouts of requests to a node: question is for reading or writing a few small files, undoing for undo scripts, which
// may be slow.
const (
	question = time.Minute
	undoing  = 10 * time.Minute
)

// settings are shell variables for the functions of node.sh.
type settings map[string]string

// command returns the command that runs a function of node.sh. The text of node.sh is the start of its standard input.
func (p Place) command(function string, set settings) []string {
	set["base"], set["cluster"] = p.Base, p.Cluster
	text := ""
	for _, key := range []string{"cluster", "base", "mark", "mode", "who", "wait", "quiet", "table", "reason"} {
		text += key + "=" + machine.Quote(oneLine(set[key])) + " "
	}
	return []string{"sh", "-c", `functions=$(head -c "$1"); eval "$functions"; eval "$2"`, "croft",
		strconv.Itoa(len(functions)), text + "; " + function}
}

// ask runs a function of node.sh to its end. It returns what the function printed from the first line that starts with
// the mark, without the mark; earlier output, as of a login shell, is skipped. Unavailable: the node gave a reason, or
// did not answer within patience.
func (p Place) ask(ctx context.Context, m machine.Machine, function string, set settings, limit int,
	patience time.Duration) (string, string, error) {
	if err := p.check(); err != nil {
		return "", "", err
	}
	mark := newWord()
	set["mark"] = mark
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out := &bounded{max: limit, over: cancel}
	complaint := &bounded{max: 4 << 10}
	proc, err := m.Start(limited, machine.Command{Argv: p.command(function, set), Stdin: strings.NewReader(functions),
		Stdout: out, Stderr: complaint})
	if err != nil {
		return "", "", err
	}
	err = proc.Wait()
	if out.dropped {
		return "", "", croft.Errorf(croft.Unavailable, "it answers more than %d bytes, so that its answer is not read: "+
			"does a file that its login shell reads print without end?", limit)
	}
	_, text, found := strings.Cut("\n"+out.text.String(), "\n"+mark+" ")
	if reason, failed := strings.CutPrefix(text, "fail "); failed {
		return "", "", croft.Errorf(croft.Unavailable, "%s", strings.TrimSpace(oneLine(reason)))
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = croft.Errorf(croft.Unavailable, "it has not answered within %s: see there whether the disk of its state "+
			"directory hangs: %w", wording.Duration(patience), err)
	}
	if exit, ok := errors.AsType[*machine.Exit](err); ok && !found {
		exit.Stderr = complaint.text.String()
	}
	if err == nil && !found {
		err = croft.Errorf(croft.Unavailable, "it does not run a POSIX shell: %.200s", oneLine(complaint.text.String()))
	}
	return text, mark, err
}

// newWord returns a random word, which no other output contains.
func newWord() string { return "croft-" + rand.Text() }

// bounded keeps the first max bytes, and calls over at the first byte that it drops.
type bounded struct {
	text    strings.Builder
	max     int
	dropped bool
	over    func()
}

var _ io.Writer = (*bounded)(nil)

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	keep := p[:min(len(p), b.max-b.text.Len())]
	b.text.Write(keep)
	if len(keep) < len(p) && !b.dropped {
		b.dropped = true
		if b.over != nil {
			b.over()
		}
	}
	return len(p), nil
}
