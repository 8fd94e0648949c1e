package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"croft"
)

// TestMain runs the agents of a benchmark when a benchmark of these tests starts them.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == runAgents {
		main()
		return
	}
	os.Exit(m.Run())
}

// croftBinary builds the program under measurement.
func croftBinary(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "croft")
	if out, err := exec.Command("go", "build", "-tags", "libvirt_dlopen", "-o", program,
		"croft/cmd/croft").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// bench runs a benchmark, which must leave nothing behind.
func bench(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var out, words bytes.Buffer
	err = run(ctx, append([]string{"-guests-dir", ""}, args...), &out, &words)
	if left, readErr := os.ReadDir(tmp); readErr != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, readErr)
	}
	return out.String(), words.String(), err
}

func TestASmallBenchmark(t *testing.T) {
	program, picture := croftBinary(t), filepath.Join(t.TempDir(), "course.svg")
	out, words, err := bench(t, "-croft", program, "--hosts", "3", "--processes", "2", "--rate", "20", "--for", "1s",
		"--plot", picture)
	if err != nil {
		t.Fatalf("%v: %s", err, words)
	}
	for _, want := range []string{"agents of 3 hosts", "drawn in " + picture} {
		if !strings.Contains(words, want) {
			t.Errorf("it says %q, without %q", words, want)
		}
	}
	for _, want := range []string{
		`^hosts +3, taking orders after`, `^asked +20 requests a second, 20 in all$`, `^ran +20, `,
		`^call to running +p50 [0-9.]+ ms, p99 `,
		`^control +[0-9]+ MiB`, `^agents 2 +[0-9]+ MiB`, `^one agent alone +[0-9]+ MiB`,
		`^etcd +[0-9]+ writes a second, `,
	} {
		if !regexp.MustCompile("(?m)" + want).MatchString(out) {
			t.Errorf("it prints %s, without %s", out, want)
		}
	}
	if strings.Contains(out, "failed") {
		t.Error(out)
	}
	drawn, err := os.ReadFile(picture)
	if err != nil || !bytes.Contains(drawn, []byte("<svg ")) ||
		!regexp.MustCompile(`polyline points="[0-9]`).Match(drawn) {
		t.Errorf("the picture: %.100s, %v", drawn, err)
	}

	t.Chdir(t.TempDir())
	out, words, err = bench(t, "-croft", program, "--hosts", "2", "--processes", "1", "--rate", "0", "--at-once", "2",
		"--for", "200ms", "--plot", "", "-o", "json")
	if err != nil {
		t.Fatalf("%v: %s", err, words)
	}
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Hosts != 2 || r.Load.Rate < 1 {
		t.Errorf("as JSON: %s, %v", out, err)
	}
	if _, err := os.Stat("croft-bench.svg"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a picture nobody asked for: %v", err)
	}
}

func TestBothWaysInOneRun(t *testing.T) {
	program := croftBinary(t)
	out, words, err := bench(t, "-croft", program, "--hosts", "3", "--processes", "1", "--rate", "20", "--for", "1s",
		"--plot", "", "--via", "both")
	if err != nil {
		t.Fatalf("%v: %s", err, words)
	}
	for _, want := range []string{`^way +direct$`, `^way +control$`, `^through control +[0-9.]+ times as many`} {
		if !regexp.MustCompile("(?m)" + want).MatchString(out) {
			t.Errorf("it prints %s, without %s", out, want)
		}
	}
	if n := len(regexp.MustCompile(`(?m)^ran +20, `).FindAllString(out, -1)); n != 2 || strings.Contains(out, "failed") {
		t.Error(out)
	}
}

func TestWhatMakesNoSenseIsRefusedBeforeAnythingStarts(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--hosts 0", "--hosts 0: give 1 to 100000"},
		{"--hosts 2 --processes 3", "--processes 3"},
		{"--rate -1", "--rate -1"},
		{"--for 0s", "--for 0s"},
		{"--via http", `--via "http": give direct, control or both`},
		{"-o tabel", `"tabel"`},
		{"x", `"x" is not a flag`},
		{"--hots 1", "hots"},
	} {
		if _, words, err := bench(t, strings.Fields(c.args)...); croft.KindOf(err) != croft.Invalid ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v %s, want %q", c.args, err, words, c.want)
		}
	}
}
