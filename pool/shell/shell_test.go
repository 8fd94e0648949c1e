package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/internal/testing/patient"
	"croft/pool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runner(t *testing.T) (*Runner, string) {
	t.Helper()
	dir := t.TempDir()
	r, err := New(Config{Dir: dir, Mark: "test-" + strconv.Itoa(os.Getpid()) + "-" + filepath.Base(dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, dir
}

func start(command string) pool.Hook {
	return pool.Hook{Kind: pool.HookNew, Resource: 7, Command: command, Limit: time.Minute, Output: pool.OutputData}
}

func TestOutputIsKeptInWholeLines(t *testing.T) {
	long := strings.Repeat("x", 600)
	for _, c := range []struct{ name, command, want string }{
		{"what was printed", "echo one; echo two", "one\ntwo\n"},
		{"also without a newline at the end", "printf one", "one"},
		{"nothing is nothing", "true", ""},
		{"stderr is no data", "echo no >&2; echo yes", "yes\n"},
		{"bytes are not changed", `printf '\377\000\n'`, "\xff\x00\n"},
		{"lines that fit", "echo short; echo " + long + "; echo later", "short\n<< trimmed >>\n"},
		{"the beginning of a first line that does not", "echo " + long, long[:512] + "<< trimmed >>\n"},
		{"512 bytes exactly", "echo " + long[:511], long[:511] + "\n"},
		{"513 bytes are too many", "echo " + long[:512], long[:512] + "<< trimmed >>\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := runner(t)
			got, err := r.Run(t.Context(), start(c.command))
			if err != nil || string(got) != c.want || got == nil {
				t.Errorf("got %q, %v\nwant %q", got, err, c.want)
			}
		})
	}
}

func TestHowACommandEndedIsSaid(t *testing.T) {
	for _, c := range []struct{ name, command, want string }{
		{"with a status", "echo x; exit 3", "the command ended with status 3"},
		{"by a signal", "kill -9 $$", "the command ended by signal"},
		{"not to be found", "no-such-command-at-all", "the command ended with status 127"},
		{"with the last line of its standard error", "echo first >&2; echo out; echo 'no quota' >&2; echo >&2; exit 1",
			"the command ended with status 1: no quota"},
		{"also without a newline, and nothing that steers a terminal", `printf 'a\nred \033[31mtext' >&2; exit 1`,
			"the command ended with status 1: red "},
		{"cut where it is long", "head -c 9000 /dev/zero | tr '\\0' x >&2; exit 1",
			"the command ended with status 1: " + strings.Repeat("x", maxLine)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := runner(t)
			_, err := r.Run(t.Context(), start(c.command))
			if want := strings.Replace(c.want, "ended by", "was ended by", 1); err == nil ||
				!strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

func TestTheEnvironmentIsTheServersAndTheHooks(t *testing.T) {
	t.Setenv("OURS", "ours")
	r, _ := runner(t)
	h := start(`echo "$OURS $RESALLOC_NAME"; env | grep -c ^RESALLOC_`)
	h.Env = []string{"RESALLOC_NAME=name"}
	if got, err := r.Run(t.Context(), h); string(got) != "ours name\n1\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestLogsHaveBothOutputsAndAnEnd(t *testing.T) {
	r, dir := runner(t)
	if _, err := r.Run(t.Context(), start("echo out; echo err >&2")); err != nil {
		t.Fatal(err)
	}
	silent := pool.Hook{Kind: pool.HookDelete, Resource: 7, Command: "head -c 3000000 /dev/zero", Limit: time.Minute}
	for range 2 {
		if _, err := r.Run(t.Context(), silent); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "hooks", "000007_alloc"))
	if err != nil || !bytes.Contains(text, []byte("out\n")) || !bytes.Contains(text, []byte("err\n")) {
		t.Errorf("got %q, %v", text, err)
	}
	info, err := os.Stat(filepath.Join(dir, "hooks", "000007_terminate"))
	if err != nil || info.Size() < maxLog || info.Size() > maxLog+100 || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	if logs := r.Logs(7); len(logs) != 2 {
		t.Errorf("got the logs %v", logs)
	}
	r.Forget(7)
	if logs := r.Logs(7); len(logs) != 0 {
		t.Errorf("they are not forgotten: %v", logs)
	}
}

func TestTheLogIsThereWhenTheCommandBegins(t *testing.T) {
	r, dir := runner(t)
	for _, kind := range []pool.HookKind{pool.HookNew, pool.HookLivecheck, pool.HookRelease, pool.HookDelete,
		pool.HookList} {
		h := pool.Hook{Kind: kind, Resource: 7, Limit: time.Minute,
			Command: "exec test -f " + filepath.Join(dir, "hooks", "000007_"+string(kind))}
		if _, err := r.Run(t.Context(), h); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// ends waits until a process has ended.
func ends(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := patient.Deadline(t); syscall.Kill(n, 0) == nil && !isZombie(n); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d goes on", n)
		}
	}
}

// isZombie reports whether a process has ended but was not reaped.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(text, []byte(") Z "))
}

func TestALogOfNoResourceBeginsAnew(t *testing.T) {
	r, _ := runner(t)
	print := func(id pool.ResourceID, text string) string {
		h := pool.Hook{Kind: pool.HookList, Resource: id}
		log := openLog(r.logFile(h.Resource, h.Kind), h.Resource)
		_, _ = log.Write([]byte(text)) // never fails
		log.close()
		kept, err := os.ReadFile(r.logFile(id, h.Kind))
		if err != nil {
			t.Fatal(err)
		}
		return string(kept)
	}
	full := strings.Repeat("x", maxLog)
	for id, anew := range map[pool.ResourceID]bool{0: true, 7: false} {
		print(id, full)
		if got := print(id, "news"); (got == "news") != anew {
			t.Errorf("that of %d has %d bytes", id, len(got))
		}
	}
}

func TestAtTheLimitTheWholeGroupEnds(t *testing.T) {
	for _, c := range []struct{ name, command string }{
		{"the shell and its children", "echo $$; sleep 1000"},
		{"children in the background", "sleep 1000 & echo $!; wait"},
		{"what does not listen to SIGTERM",
			"trap '' TERM; sh -c 'trap \"\" TERM; sleep 1000' & echo $!; wait; wait; sleep 1000"},
		{"what has left the group", "setsid sleep 1000 & echo $!; wait"},
		{"what has left the group and its environment", "env -i setsid /bin/sleep 1000 & echo $!; wait"},
	} {
		if strings.Contains(c.command, "env -i") && !makesGroups(t) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r, _ := runner(t)
			h := start(c.command)
			h.Limit = 300 * time.Millisecond
			got, err := r.Run(t.Context(), h)
			if !errors.Is(err, croft.Unavailable) || !strings.Contains(fmt.Sprint(err), "killed after 300ms") {
				t.Errorf("got %v", err)
			}
			ends(t, string(got))
		})
	}
}

// makesGroups reports whether tests may make control groups here.
func makesGroups(t *testing.T) bool {
	t.Helper()
	r, _ := runner(t)
	return r.groups.dir != ""
}

func TestControlGroupsEndWithTheirProcesses(t *testing.T) {
	r, dir := runner(t)
	if r.groups.dir == "" {
		t.Skip("no control group may be made here")
	}
	made := func() int {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(r.groups.dir, "*-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	for _, command := range []string{"true", "exit 1", "env -i setsid /bin/sleep 1000 & exit 1"} {
		if _, err := r.Run(t.Context(), start(command)); (err == nil) != (command == "true") || made() != 0 {
			t.Errorf("%s: %v, and %d groups are left", command, err, made())
		}
	}
	pid, err := r.Run(t.Context(), start("env -i setsid /bin/sleep 1000 >&- 2>&- & echo $!"))
	if err != nil || made() != 1 {
		t.Fatalf("%v, and %d groups", err, made())
	}
	r.groups.close() // a server that ends does this too; the directory stays because of its process
	again := &Runner{mark: r.mark, begun: r.begun, groups: openGroups(dir, "other")}
	defer again.groups.close()
	spared := true
	for range 2 {
		if _, err := again.Sweep(t.Context(), func(pool.ResourceID) bool { return spared }); err != nil {
			t.Fatal(err)
		}
		if spared != (made() == 1) {
			t.Errorf("spared %v, and %d groups are left", spared, made())
		}
		spared = false
	}
	ends(t, string(pid))
}

// Remaining processes of a failed start could create the machine after the delete command has run.
func TestAFailedCommandLeavesNoProcesses(t *testing.T) {
	for _, c := range []struct{ name, command string }{
		{"in the background", "sleep 1000 & echo $!; exit 1"},
		{"out of its group", "setsid sleep 1000 & echo $!; exit 1"},
		{"deaf to SIGTERM and without its output", "(trap '' TERM; exec sleep 1000) >&- 2>&- & echo $!; exit 1"},
		{"below a shell that a signal ended", "sleep 1000 & echo $!; kill -9 $$"},
		{"out of its group, without its environment", "env -i setsid /bin/sleep 1000 & echo $!; exit 1"},
	} {
		if strings.Contains(c.command, "env -i") && !makesGroups(t) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r, _ := runner(t)
			got, err := r.Run(t.Context(), start(c.command))
			if err == nil {
				t.Fatal("it succeeded")
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(got)))
			if err != nil {
				t.Fatal(err)
			}
			if syscall.Kill(pid, 0) == nil && !isZombie(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				t.Errorf("process %d ran on when the command had returned", pid)
			}
		})
	}
}

func TestWithItsServerACommandEnds(t *testing.T) {
	r, _ := runner(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	got, err := r.Run(ctx, start("echo $$; sleep 1000"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	ends(t, string(got))
	if begun, err := r.begun.read(); err != nil || !bytes.Equal(begun[7], got) {
		t.Errorf("the next server does not learn what it printed: %q, %v", begun, err)
	}
}

func TestWhatGoesOnInTheBackgroundIsLeftAlone(t *testing.T) {
	r, _ := runner(t)
	begun := time.Now()
	got, err := r.Run(t.Context(), start("sleep 1000 & echo $!"))
	if err != nil || time.Since(begun) > patient.Longest {
		t.Fatalf("got %v after %s", err, time.Since(begun))
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(got)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("what a start left running, as a resource may be, has ended: %v", err)
	}
	ends(t, string(got))
}

func TestSweepEndsWhatAnEarlierServerLeft(t *testing.T) {
	r, _ := runner(t)
	left := func(h pool.Hook) string {
		cmd, _ := r.command(context.Background(), h, r.marked(h))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		pid := make([]byte, 20)
		n, err := out.Read(pid)
		if err != nil {
			t.Fatal(err)
		}
		return string(pid[:n])
	}
	unfinished := left(start("echo $$; sleep 1000"))
	check := left(pool.Hook{Kind: pool.HookLivecheck, Resource: 8, Command: "sleep 1000 & echo $!; wait"})
	up := start("echo $$; sleep 1000")
	up.Resource = 8
	spared := left(up)
	r.begun.write(7, []byte("made it\nand"))
	printed, err := r.Sweep(t.Context(), func(id pool.ResourceID) bool { return id == 8 })
	if err != nil || string(printed[7]) != "made it\nand" {
		t.Errorf("got %q, %v", printed, err)
	}
	ends(t, unfinished)
	ends(t, check)
	if pid, err := strconv.Atoi(strings.TrimSpace(spared)); err != nil || syscall.Kill(pid, 0) != nil || isZombie(pid) {
		t.Errorf("what a resource that is up consists of was ended: %v", err)
	}
}

func TestWhatStartsPrintIsKeptInOneFile(t *testing.T) {
	r, dir := runner(t)
	for i := range 3 {
		r.begun.write(pool.ResourceID(i), fmt.Appendf(nil, "line %d\n", i))
		r.begun.write(pool.ResourceID(i), []byte("more\n"))
	}
	if _, err := New(Config{Dir: dir, Mark: "other"}); !errors.Is(err, croft.Conflict) {
		t.Errorf("two have one directory: %v", err)
	}
	path := filepath.Join(dir, "begun")
	for _, cut := range []struct {
		off  int64
		last string // output of the third one
	}{{2, "line 2\nmor"}, {header, "line 2\n"}} { // cut within a record, and within the header of one
		info, err := os.Stat(path)
		if err = errors.Join(err, r.begun.close()); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, info.Size()-cut.off); err != nil {
			t.Fatal(err)
		}
		again, err := openBegun(path)
		if err != nil {
			t.Fatal(err)
		}
		r.begun = again
		again.write(9, []byte("later"))
		got, err := again.read()
		if err != nil || len(got) != 4 || string(got[0]) != "line 0\nmore\n" || string(got[2]) != cut.last ||
			string(got[9]) != "later" {
			t.Errorf("got %q, %v", got, err)
		}
		if err := again.file.Truncate(again.size - header - int64(len("later"))); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte("one\ntwo\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		whole, parts := newCapture(pool.OutputData), newCapture(pool.OutputData)
		_, _ = whole.Write(text)
		cut := max(0, min(at, len(text)))
		_, _ = parts.Write(text[:cut])
		_, _ = parts.Write(text[cut:])
		got := parts.output()
		if !bytes.Equal(whole.output(), got) || len(got) > maxData+len(trimmed) {
			t.Errorf("got %q whole and %q in parts", whole.output(), got)
		}
	})
}

func BenchmarkRun(b *testing.B) {
	r, err := New(Config{Dir: b.TempDir(), Mark: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for _, c := range []struct{ name, command string }{{"silent", "true"}, {"echo", "echo ok"}} {
		b.Run(c.name, func(b *testing.B) {
			for id := range b.N {
				h := start(c.command)
				h.Resource = pool.ResourceID(id + 1)
				if _, err := r.Run(b.Context(), h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
