package revlock

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"croft"
	"croft/grid/machine"
)

var markForm = regexp.MustCompile(`croft-[A-Z2-7]{20,}`) // the form of newWord

// A liar is a node that runs nothing and gives any answer. MARK in the answer stands for the random word, which the
// node received.
type liar struct {
	answer string
	code   int
	parts  int // the answer is written in this many parts
}

func (l liar) Start(_ context.Context, c machine.Command) (machine.Process, error) {
	_, err := io.Copy(io.Discard, c.Stdin)
	if err != nil {
		return nil, err
	}
	mark := markForm.FindString(strings.Join(c.Argv, " "))
	if mark == "" {
		return nil, fmt.Errorf("it is told no word: %q", c.Argv)
	}
	text := strings.ReplaceAll(l.answer, "MARK", mark)
	if _, err := io.WriteString(c.Stderr, text[:min(len(text), 100)]); err != nil {
		return nil, err
	}
	for size := max(len(text)/max(l.parts, 1), 1); text != ""; {
		n := min(size, len(text))
		if _, err := io.WriteString(c.Stdout, text[:n]); err != nil {
			return nil, err
		}
		text = text[n:]
	}
	return liar{code: l.code}, nil
}

func (l liar) Wait() error {
	if l.code != 0 {
		return &machine.Exit{Code: l.code}
	}
	return nil
}

// checkText checks that a text of a node cannot move a terminal's cursor or start a new line there.
func checkText(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) }); i >= 0 {
		t.Errorf("%s has a control character at %d: %.200q", what, i, text)
	}
	if len(text) > 1<<10 {
		t.Errorf("%s has %d bytes", what, len(text))
	}
}

func checkState(t *testing.T, s State) {
	t.Helper()
	for what, text := range map[string]string{"the revision": s.Revision, "the previous one": s.Previous,
		"the plan": s.Plan, "by": s.By, "boot": s.Boot, "the boot now": s.BootNow, "phase": string(s.Phase)} {
		checkText(t, what, text)
	}
	for _, name := range s.With {
		checkText(t, "with", name)
	}
	if s.Epoch < 0 || s.Epoch > maxEpoch {
		t.Errorf("the epoch is %d", s.Epoch)
	}
	for _, r := range []string{s.Revision, s.Previous} {
		if r != "" && !revisionForm.MatchString(r) {
			t.Errorf("the revision is %q", r)
		}
	}
	// A state that is stored and read again is the same.
	again, err := parseState(s.text(), s.BootNow)
	if err != nil {
		t.Errorf("what is stored cannot be read: %v\n%q", err, s.text())
	}
	if again.Epoch != s.Epoch || again.Revision != s.Revision || again.Previous != s.Previous ||
		again.Phase != s.Phase {
		t.Errorf("stored: %+v, read: %+v", s, again)
	}
}

func FuzzWhatANodeAnswers(f *testing.F) {
	const rev = "revision git:0123456789012345678901234567890123456789\nepoch 3\nphase applying\nwith a b\nby me\n"
	for _, answer := range []string{
		"", "MARK", "MARK \nMARK end", "MARK fail \x1b[2J\x07no\nsuch",
		"noise\nMARK boot b\nMARK rev\n" + rev + "\nMARK end\n",
		"MARK boot \x1b]0;x\x07\nMARK rev\nepoch 99999999999999999999\nMARK end",
		"MARK holder 1 2 3 me\x1b[31m\u009b\nMARK reader 1 2\nMARK unwatched a\nMARK end", "MARK unwatched \r\x1b[A\nMARK applied\n{}\nMARK firewall\nx\nMARK end",
		"MARK rev\nrevision git:zz\nMARK end", "MARK rev\nby \x1b[2J\nplan \u0085\nwith \x1b a\nMARK end",
		"MARK verdict confirmed 1", "MARK verdict back 9999999999999999999999", "MARK given back\n1 \x1b[2J\n0 ok\n",
		"MARK given busy\n", "MARK broken held\n", "MARK broken free\n", "MARK rev\nepoch -1\nMARK end",
	} {
		f.Add(answer, 0, 1)
		f.Add(answer, 1, 7)
	}
	f.Fuzz(func(t *testing.T, answer string, code, parts int) {
		m := liar{answer, code, parts & 0xff}
		p := Place{Cluster: strings.Repeat("0", 32)}
		fails := func(err error) {
			if err != nil {
				checkText(t, "the error", strings.NewReplacer("\n", "", "\t", "").Replace(err.Error()))
			}
		}
		v, err := Look(t.Context(), m, p, "t")
		fails(err)
		if err == nil {
			checkState(t, v.State)
			for _, h := range append(v.Holders, v.Unwatched...) {
				checkText(t, "a title", h)
			}
		}
		for _, do := range []func() error{
			func() error { _, err := Confirm(t.Context(), m, p, "id"); return err },
			func() error { _, _, err := Recall(t.Context(), m, p, "id", time.Second); return err },
			func() error { _, err := Break(t.Context(), m, p, "who", "why"); return err },
		} {
			fails(do())
		}
		list, err := GiveBack(t.Context(), m, p)
		fails(err)
		for _, g := range list {
			checkText(t, "a title", g.Title)
		}
	})
}

// endless is a node that answers with a gigabyte unless it is stopped.
type endless struct{ written *int }

func (e endless) Start(ctx context.Context, c machine.Command) (machine.Process, error) {
	for line := []byte(strings.Repeat("x", 1<<20)); *e.written < 1<<30 && ctx.Err() == nil; *e.written += len(line) {
		if _, err := c.Stdout.Write(line); err != nil {
			return nil, err
		}
	}
	return liar{}, nil
}

func TestAnEndlessAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	p := Place{Cluster: strings.Repeat("0", 32)}
	for name, c := range map[string]struct {
		ask   func(m machine.Machine) error
		bound int
	}{
		"look":    {func(m machine.Machine) error { _, err := Look(t.Context(), m, p, ""); return err }, maxApplied},
		"confirm": {func(m machine.Machine) error { _, err := Confirm(t.Context(), m, p, "id"); return err }, 1 << 20},
	} {
		written := 0
		if err := c.ask(endless{&written}); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		if written > c.bound+2<<20 {
			t.Errorf("%s: %d bytes were taken, and the bound is %d", name, written, c.bound)
		}
	}
}
