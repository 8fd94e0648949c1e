// Package machinetest contains the contract tests that every machine.Machine must pass.
package machinetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/grid/machine"
	"croft/internal/testing/patient"
)

// Run tests a machine. new returns a machine that is ready; lose breaks the connection of the machine that new returned
// last, and is nil if there is no connection to break.
func Run(t *testing.T, new func(t *testing.T) machine.Machine, lose func()) {
	t.Run("a program's end", func(t *testing.T) { end(t, new(t)) })
	t.Run("arguments arrive as they are", func(t *testing.T) { arguments(t, new(t)) })
	t.Run("what cannot be started is an error", func(t *testing.T) { notStarted(t, new(t)) })
	t.Run("streams", func(t *testing.T) { streams(t, new(t)) })
	t.Run("input that does not come", func(t *testing.T) { unread(t, new(t)) })
	t.Run("much input and output at the same time", func(t *testing.T) { both(t, new(t)) })
	t.Run("many at once", func(t *testing.T) { many(t, new(t)) })
	t.Run("a context that ends", func(t *testing.T) { contexts(t, new(t)) })
	t.Run("files", func(t *testing.T) { files(t, new(t)) })
	if lose != nil {
		t.Run("a lost connection", func(t *testing.T) { lost(t, new(t), lose) })
	}
}

// code returns the exit code that an error reports, or -1 if the error is not the end of a program.
func code(err error) int {
	var exit *machine.Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	}
	return -1
}

func end(t *testing.T, m machine.Machine) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 3": 3, "exit 255": 255,
		"kill -TERM $$": 143, "kill -KILL $$": 137, "kill -SEGV $$": 139,
	} {
		_, err := machine.Output(patient.Context(t), m, nil, "sh", "-c", script)
		if code(err) != want {
			t.Errorf("%s: %v, want exit code %d", script, err, want)
		}
	}
	_, err := machine.Output(patient.Context(t), m, nil, "sh", "-c", "echo out; echo no >&2; exit 7")
	if code(err) != 7 || err.Error() != "exit code 7: no" {
		t.Errorf("an Exit has what the program complained of: %v", err)
	}
}

func arguments(t *testing.T, m machine.Machine) {
	var all strings.Builder
	for b := 1; b < 256; b++ {
		all.WriteByte(byte(b))
	}
	given := []string{"", " ", "\n", "'", "''", `"`, `\`, `\\`, "$HOME", "`id`", "$(id)", "*", "~", "-n", "!", "!!", "a=b",
		"#", ";", "&", "|", "%s", "é", "\xff\xfe", "a\tb", "a\r\nb\n", all.String(), strings.Repeat("x'", 5000)}
	out, err := machine.Output(patient.Context(t), m, nil,
		append([]string{"sh", "-c", `printf '%s\0' "$@"`, "it's"}, given...)...)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	for i := range max(len(got), len(given)) {
		if i >= len(got) || i >= len(given) || got[i] != given[i] {
			t.Fatalf("argument %d of %d: sent %q, arrived %q", i, len(given), given[i:], got[i:])
		}
	}
}

func notStarted(t *testing.T, m machine.Machine) {
	for name, argv := range map[string][]string{
		"a program that is not there": {"/no/such/program"},
		"a name that is a directory":  {"/"},
		"an argument with a zero":     {"echo", "a\x00b"},
	} {
		_, err := machine.Output(patient.Context(t), m, nil, argv...)
		var lost *machine.Lost
		if err == nil || errors.As(err, &lost) {
			t.Errorf("%s: %v, want an error that is not Lost", name, err)
		}
	}
}

func streams(t *testing.T, m machine.Machine) {
	ctx := patient.Context(t)
	if out, err := machine.Output(ctx, m, nil, "cat"); out != "" || err != nil {
		t.Errorf("no input is an empty one: %q, %v", out, err)
	}
	if out, err := machine.Output(ctx, m, strings.NewReader("a\x00\xff\r\n"), "cat"); err != nil ||
		out != "a\x00\xff\r\n" {
		t.Errorf("bytes arrive as they are: %q, %v", out, err)
	}
	if _, err := machine.Output(ctx, m, strings.NewReader(strings.Repeat("x", 4<<20)), "true"); err != nil {
		t.Errorf("a program need not read its input: %v", err)
	}
	var out, complaint bytes.Buffer
	p, err := m.Start(ctx, machine.Command{Argv: []string{"sh", "-c", "printf o; printf e >&2"}, Stdout: &out,
		Stderr: &complaint})
	if err == nil {
		err = p.Wait()
	}
	if err != nil || out.String() != "o" || complaint.String() != "e" {
		t.Errorf("two streams: %q, %q, %v", out.String(), complaint.String(), err)
	}
	broken := errors.New("broken")
	if _, err := machine.Output(ctx, m, io.MultiReader(strings.NewReader("in"), &failing{broken}), "sh", "-c",
		"cat >/dev/null; exit 0"); !errors.Is(err, broken) {
		t.Errorf("input that cannot be read: %v", err)
	}
	p, err = m.Start(ctx, machine.Command{Argv: []string{"yes"}, Stdout: &failing{broken}})
	if err == nil {
		err = p.Wait()
	}
	if err == nil {
		t.Error("output that cannot be written is no error")
	}
	if _, err := machine.Output(ctx, m, nil, "yes"); !errors.Is(err, croft.Invalid) {
		t.Errorf("endless output: %v", err)
	}
}

// unread checks that a program can end although it has not read its input and the input is still blocked.
func unread(t *testing.T, m machine.Machine) {
	ctx := patient.Context(t)
	never, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, want := range []int{0, 3} {
		out, err := machine.Output(ctx, m, blocked(never), "sh", "-c", fmt.Sprintf("echo done; exit %d", want))
		if out != "done\n" || code(err) != want || want == 0 && err != nil {
			t.Errorf("a program that ends with %d without its input: %q, %v", want, out, err)
		}
	}
}

// failing is a stream whose reads and writes fail.
type failing struct{ err error }

func (f *failing) Read([]byte) (int, error)  { return 0, f.err }
func (f *failing) Write([]byte) (int, error) { return 0, f.err }

// pattern returns size bytes without a short period.
func pattern(size int) []byte {
	b := make([]byte, 0, size+8)
	for i := 0; len(b) < size; i++ {
		b = fmt.Appendf(b, "%d\n", i)
	}
	return b[:size]
}

func both(t *testing.T, m machine.Machine) {
	const size = 32 << 20
	in := pattern(size)
	sum := sha256.New()
	counted := &counting{to: sum}
	p, err := m.Start(patient.Context(t), machine.Command{Argv: []string{"sh", "-c", "tee /dev/stderr"},
		Stdin: bytes.NewReader(in), Stdout: counted, Stderr: io.Discard})
	if err == nil {
		err = p.Wait()
	}
	if err != nil || counted.n != size || !bytes.Equal(sum.Sum(nil), digest(in)) {
		t.Errorf("%d of %d bytes came back, %v", counted.n, size, err)
	}
}

func digest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}

type counting struct {
	to io.Writer
	n  int
}

func (c *counting) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.to.Write(p)
}

func many(t *testing.T, m machine.Machine) {
	ctx := patient.Context(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			want := fmt.Sprintf("%d", i)
			out, err := machine.Output(ctx, m, strings.NewReader(want), "sh", "-c", "cat; exit "+want)
			if out != want || code(err) != i {
				t.Errorf("program %d: %q, %v", i, out, err)
			}
		})
	}
	all.Wait()
}

func contexts(t *testing.T, m machine.Machine) {
	ctx, cancel := context.WithCancel(patient.Context(t))
	defer cancel()
	said := &signalling{heard: make(chan struct{})}
	p, err := m.Start(ctx, machine.Command{Argv: []string{"sh", "-c", "echo begun; cat"}, Stdin: blocked(ctx),
		Stdout: said})
	if err != nil {
		t.Fatal(err)
	}
	<-said.heard
	cancel()
	err = p.Wait()
	var lost *machine.Lost
	if !errors.As(err, &lost) || !errors.Is(err, croft.Unavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v, want Lost", err)
	}
	if _, err := m.Start(ctx, machine.Command{Argv: []string{"true"}}); !errors.Is(err, croft.Unavailable) {
		t.Errorf("the context has ended before: %v, want Unavailable", err)
	}
	if _, err := machine.Output(patient.Context(t), m, nil, "true"); err != nil {
		t.Errorf("the machine can be used afterwards: %v", err)
	}
}

// blocked returns input that blocks until ctx ends.
func blocked(ctx context.Context) io.Reader { return &blocking{ctx} }

type blocking struct{ ctx context.Context }

func (b *blocking) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, io.EOF
}

// signalling closes heard at the first write.
type signalling struct {
	heard chan struct{}
	once  sync.Once
}

func (s *signalling) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.heard) })
	return len(p), nil
}

func lost(t *testing.T, m machine.Machine, lose func()) {
	ctx := patient.Context(t)
	said := &signalling{heard: make(chan struct{})}
	p, err := m.Start(ctx, machine.Command{Argv: []string{"sh", "-c", "echo begun; cat"}, Stdin: blocked(ctx),
		Stdout: said})
	if err != nil {
		t.Fatal(err)
	}
	<-said.heard
	lose()
	err = p.Wait()
	var lost *machine.Lost
	if !errors.As(err, &lost) || !errors.Is(err, croft.Unavailable) {
		t.Errorf("%v, want Lost", err)
	}
	_, err = m.Start(ctx, machine.Command{Argv: []string{"true"}})
	if !errors.Is(err, croft.Unavailable) || errors.As(err, new(*machine.Lost)) {
		t.Errorf("a program after that: %v, want Unavailable and not Lost: nothing was started", err)
	}
}
