// Package runtimetest is the contract of runtimes as tests. Every runtime passes it, with the real programs.
package runtimetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/runtime"
	"croft/grid/unit"
)

// patience is how long a test waits for a condition. It is generous for busy machines, and not a limit on speed.
const patience = 2 * time.Minute

// ImageName is the path of the image archive in the repository.
const ImageName = "images/tiny.tar"

// A Suite configures the tests of one runtime.
type Suite struct {
	Name       string // name of the runtime
	Machine    machine.Machine
	Repository fs.FS // the hard points; the suite adds ImageName
	StateDir   string
	Change     func(t *testing.T, u *unit.Unit) // adapts the unit to this runtime
	Stranger   func(t *testing.T, name string)  // makes an object without a mark of croft, removed after the test
	Reboot     func(t *testing.T, u unit.Unit)  // ends the unit as a loss of power would; nil: not possible
	Survives   bool                             // the runtime starts units again after a reboot
	NoInside   bool                             // the runtime cannot run programs in units
	Adopts     bool                             // the runtime can adopt the object that Stranger makes
}

// command runs until it gets SIGTERM, and then prints that it ended. It ends after a while even without a signal.
const command = `trap "echo ended; exit 0" TERM; echo "up as $WHO"; n=0
while [ "$((n = n + 1))" -lt 9000 ]; do sleep 0.1; done`

// Open returns the runtime.
func (s Suite) Open(t *testing.T) *runtime.Runtime {
	t.Helper()
	r, err := runtime.Config{Repository: repository{s.Repository, fstest.MapFS{ImageName: {Data: archive(t)}}},
		StateDir: s.StateDir}.Open(s.Name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

type repository struct{ more, image fs.FS }

func (r repository) Open(name string) (fs.File, error) {
	if name == ImageName || r.more == nil {
		return r.image.Open(name)
	}
	return r.more.Open(name)
}

// archives caches the image archive, which tests that run side by side share.
var archives struct {
	sync.Mutex
	made []byte
}

func archive(t *testing.T) []byte {
	archives.Lock()
	defer archives.Unlock()
	if archives.made == nil {
		archives.made = Archive(t)
	}
	return archives.made
}

// Unit returns a unit of a new cluster. The unit is removed at the end of the test.
func (s Suite) Unit(t *testing.T) unit.Unit {
	t.Helper()
	var id [16]byte
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	sum := sha256.Sum256(archive(t))
	u := unit.Unit{
		Cluster: hex.EncodeToString(id[:]), Job: "web/front@7", Slot: 2, Runtime: s.Name,
		Image:   unit.Image{Archive: ImageName, Digest: "sha256:" + hex.EncodeToString(sum[:])},
		Command: []string{"sh", "-c", command}, Env: map[string]string{"WHO": `a 'quoted' "name" $HOME`},
		Options: map[string]string{"stop_seconds": "1"}, // kills a unit that was stopped before it set its trap
	}
	if s.Change != nil {
		s.Change(t, &u)
	}
	r := s.Open(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(r.Stop(ctx, s.Machine, u), r.Remove(ctx, s.Machine, u)); err != nil &&
			croft.KindOf(err) != croft.Conflict {
			t.Errorf("clean up: %v", err)
		}
	})
	return u
}

// Run runs the contract.
func Run(t *testing.T, s Suite) {
	t.Run("everything twice", s.cycle)
	t.Run("what is inside", s.inside)
	t.Run("a stranger's name", s.stranger)
	t.Run("an orphan, of which only the name is known", s.orphan)
	t.Run("two clusters", s.clusters)
	t.Run("undo", s.undo)
	t.Run("undo of a secret", s.undoSecret)
	t.Run("what ran before", s.adopt)
	t.Run("a definition that changed", s.changedDefinition)
	t.Run("after a reboot", s.reboot)
	t.Run("an archive that changed meanwhile", s.changedArchive)
}

func (s Suite) cycle(t *testing.T) {
	for _, step := range s.Open(t).Cycle(t.Context(), s.Machine, s.Unit(t)) {
		if step.Err != nil {
			t.Errorf("%s: %v", step.Name, step.Err)
		}
	}
}

// begin creates and starts a unit.
func (s Suite) begin(t *testing.T, u unit.Unit) *runtime.Runtime {
	t.Helper()
	r := s.Open(t)
	for _, do := range []func(context.Context, machine.Machine, unit.Unit) error{r.Prepare, r.Create, r.Start} {
		if err := do(t.Context(), s.Machine, u); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// until repeats a check until it succeeds, or fails the test after patience.
func until(t *testing.T, what string, yes func() (bool, string)) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ok, said := yes()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s; at last: %s", what, patience, said)
		}
	}
}

func (s Suite) inside(t *testing.T) {
	if s.NoInside {
		t.Skip("nothing can be run inside, or read from outside")
	}
	u := s.Unit(t)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/there", []byte("mounted"), 0o644); err != nil {
		t.Fatal(err)
	}
	const secret = "a secret with 'quotes', $dollars and\nlines\n"
	u.Mounts = []unit.Mount{{From: dir, To: "/data", ReadOnly: true}, {From: dir, To: "/tmp"}}
	u.Files = []unit.File{{Path: "/etc/secret", Mode: 0o444, Content: secret, Digest: "1", Secret: true},
		{Path: "/etc/zero", Mode: 0o400, Content: "a\x00\\b", Digest: "2"}}
	const inText = ` postgres://u:it's-"secret"$HOME` + "`id`" + `\n%h #x@h `
	u.SecretEnv = []unit.SecretVar{{Name: "URL", Content: inText, Digest: "3"}, {Name: "b", Content: "", Digest: "4"}}
	r := s.begin(t, u)
	s.noArgument(t, "postgres://")
	// t.Setenv refuses a test that runs in parallel with others; all of them set the same value.
	if err := os.Setenv("CROFT_TEST_OUTSIDE", "of the shell that runs the program"); err != nil {
		t.Fatal(err)
	}
	run := func(argv ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		var in io.Reader
		if len(argv) == 1 {
			in = strings.NewReader("input")
		}
		if err := r.Exec(t.Context(), s.Machine, u, argv, in, &out, &errs); err != nil {
			t.Errorf("%q: %v: %s", argv, err, errs.String())
		}
		return out.String()
	}
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"cat", "/etc/secret"}, secret},
		{[]string{"sh", "-c", `echo "$WHO"`}, u.Env["WHO"] + "\n"},
		{[]string{"sh", "-c", `echo "$URL|$b|${b-unset}"`}, inText + "||\n"},
		{[]string{"sh", "-c", `tr '\0' '\n' < /proc/1/environ | grep -c "^URL="`}, "1\n"},
		{[]string{"sh", "-c", `echo "$CROFT_TEST_OUTSIDE"`}, "\n"},
		{[]string{"cat", "/etc/zero"}, "a\x00\\b"},
		{[]string{"cat", "/data/there"}, "mounted"},
		{[]string{"cat"}, "input"},
		{[]string{"sh", "-c", "echo x 2>/dev/null > /data/new || echo read-only"}, "read-only\n"},
		{[]string{"sh", "-c", "echo written > /tmp/new; echo $?"}, "0\n"},
		{[]string{"echo", "it's", "$x", "`id`", ""}, "it's $x `id` \n"},
	} {
		if got := run(c.argv...); got != c.want {
			t.Errorf("%q: got %q, want %q", c.argv, got, c.want)
		}
	}
	if text, err := os.ReadFile(dir + "/new"); string(text) != "written\n" {
		t.Errorf("what was written into a mount: %q, %v", text, err)
	}
	var out bytes.Buffer
	err := r.Exec(t.Context(), s.Machine, u, []string{"sh", "-c", "exit 3"}, nil, &out, &out)
	if exit, ok := errors.AsType[*machine.Exit](err); !ok || exit.Code != 3 {
		t.Errorf("exit 3 inside: %v", err)
	}
	until(t, "its words are in the log", func() (bool, string) {
		out.Reset()
		if err := r.Logs(t.Context(), s.Machine, u, 10, &out); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(out.String(), `up as a 'quoted' "name" $HOME`), out.String()
	})
	if err := r.Stop(t.Context(), s.Machine, u); err != nil {
		t.Error(err)
	}
	until(t, "it was asked to end, and not killed", func() (bool, string) {
		out.Reset()
		_ = r.Logs(t.Context(), s.Machine, u, 10, &out)
		return strings.Contains(out.String(), "ended"), out.String()
	})
}

// noArgument fails the test if a text is among the arguments of any process.
func (s Suite) noArgument(t *testing.T, text string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if line, _ := os.ReadFile(file); bytes.Contains(line, []byte(text)) {
			t.Errorf("%s: everybody can read the secret: %q", file, line)
		}
	}
}

func (s Suite) stranger(t *testing.T) {
	if s.Stranger == nil {
		t.Skip("this runtime shares its names with nobody")
	}
	u := s.Unit(t)
	r := s.Open(t)
	if err := r.Prepare(t.Context(), s.Machine, u); err != nil {
		t.Fatal(err)
	}
	s.Stranger(t, u.Name())
	for name, do := range map[string]func(context.Context, machine.Machine, unit.Unit) error{
		"create": r.Create, "start": r.Start, "stop": r.Stop, "remove": r.Remove,
	} {
		if err := do(t.Context(), s.Machine, u); croft.KindOf(err) != croft.Conflict || !strings.Contains(err.Error(),
			"taken") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := r.List(t.Context(), s.Machine, u.Cluster); err != nil || len(list) > 0 {
		t.Errorf("list: %v, %v", list, err)
	}
}

func (s Suite) orphan(t *testing.T) {
	u := s.Unit(t)
	r := s.begin(t, u)
	known := unit.Unit{Cluster: u.Cluster, Job: u.Job, Slot: u.Slot, Runtime: u.Runtime}
	if err := errors.Join(r.Stop(t.Context(), s.Machine, known), r.Remove(t.Context(), s.Machine, known)); err != nil {
		t.Error(err)
	}
	if list, err := r.List(t.Context(), s.Machine, u.Cluster); err != nil || len(list) > 0 {
		t.Errorf("list: %v, %v", list, err)
	}
}

func (s Suite) clusters(t *testing.T) {
	u, other := s.Unit(t), s.Unit(t)
	r := s.begin(t, u)
	if err := errors.Join(r.Prepare(t.Context(), s.Machine, other), r.Create(t.Context(), s.Machine,
		other)); err != nil {
		t.Fatal(err)
	}
	for cluster, running := range map[string]bool{u.Cluster: true, other.Cluster: false} {
		list, err := r.List(t.Context(), s.Machine, cluster)
		if err != nil || len(list) != 1 || list[0].Running != running {
			t.Errorf("cluster %.8s: %+v, %v", cluster, list, err)
		}
	}
}

// changedDefinition lists a unit with definitions that differ from the one that made it.
func (s Suite) changedDefinition(t *testing.T) {
	u := s.Unit(t)
	r := s.Open(t)
	if err := errors.Join(r.Prepare(t.Context(), s.Machine, u), r.Create(t.Context(), s.Machine, u)); err != nil {
		t.Fatal(err)
	}
	file := "hardpoints/runtime/" + s.Name + ".yaml"
	text := "extends: " + s.Name + "\n"
	if s.Repository != nil {
		is, err := fs.ReadFile(s.Repository, file)
		if err != nil {
			t.Fatal(err)
		}
		text = string(is)
	}
	for more, old := range map[string]bool{"": false, "functions: \": another\"\n": true, "about: another\n": false} {
		other := s
		other.Repository = fstest.MapFS{file: {Data: []byte(text + more)}}
		list, err := other.Open(t).List(t.Context(), s.Machine, u.Cluster)
		if err != nil || len(list) != 1 || list[0].OldDefinition != old {
			t.Errorf("with %q: %+v, %v; want old definition %t", more, list, err, old)
		}
	}
}

// undo reverts a first creation, and then a change. The script needs no other input.
func (s Suite) undo(t *testing.T) {
	before := s.Unit(t)
	r := s.begin(t, before)
	now := before
	now.Env = maps.Clone(before.Env)
	if now.VM != nil {
		vm := *now.VM
		vm.UserData = "#cloud-config\n{}\n"
		now.VM = &vm
	} else {
		now.Env = map[string]string{"WHO": "now"}
	}
	before.Files = []unit.File{{Path: "/etc/again", Mode: 0o644, Content: "made again", Digest: "1"}}
	for _, do := range []func(context.Context, machine.Machine, unit.Unit) error{r.Stop, r.Remove, r.Create, r.Start} {
		if err := do(t.Context(), s.Machine, now); err != nil {
			t.Fatal(err)
		}
	}
	_, script, err := r.Undo(&before, &now)
	if err != nil {
		t.Fatal(err)
	}
	s.shell(t, script)
	list, err := r.List(t.Context(), s.Machine, before.Cluster)
	if err != nil || len(list) != 1 || !list[0].Running || list[0].Hash != before.Hash() {
		t.Errorf("the unit is not as before: %+v, %v", list, err)
	}
	if _, script, err = r.Undo(nil, &before); err != nil {
		t.Fatal(err)
	}
	s.shell(t, script)
	s.shell(t, script) // and it may be cut off and run again
	if list, err := r.List(t.Context(), s.Machine, before.Cluster); err != nil || len(list) != 0 {
		t.Errorf("the unit is still there: %+v, %v", list, err)
	}
}

// undoSecret reverts a change of a secret whose former content only the node has.
func (s Suite) undoSecret(t *testing.T) {
	const former = "the former 'secret'\nof $two lines\n\n"
	before := s.Unit(t)
	before.Files = []unit.File{{Path: "/etc/plain", Mode: 0o644, Content: "plain", Digest: "1"},
		{Path: "/etc/secret", Mode: 0o400, Content: former, Digest: "2", Secret: true}}
	now := before
	now.Files = slices.Clone(before.Files)
	now.Files[1].Content, now.Files[1].Digest = "the new one", "3"
	if before.VM == nil {
		before.SecretEnv = []unit.SecretVar{{Name: "PW", Content: "it's the former", Digest: "4"}}
		now.SecretEnv = []unit.SecretVar{{Name: "PW", Content: "the new one", Digest: "5"}}
	}
	known := before
	known.Files = slices.Clone(before.Files)
	known.Files[1].Content, known.Files[1].Kept = "", true
	known.SecretEnv = slices.Clone(before.SecretEnv)
	for i := range known.SecretEnv {
		known.SecretEnv[i].Content, known.SecretEnv[i].Kept = "", true
	}
	r := s.Open(t)
	keep, undo, err := r.Undo(&known, &now)
	if before.VM != nil {
		if croft.KindOf(err) != croft.Conflict {
			t.Errorf("a machine: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	kept := "export kept=" + machine.Quote(t.TempDir()) + "\n"
	if _, err := machine.Output(t.Context(), s.Machine, strings.NewReader(kept+keep), "sh", "-s"); err == nil {
		t.Error("what is not there is kept")
	}
	s.begin(t, before)
	s.shell(t, kept+keep)
	for _, do := range []func(context.Context, machine.Machine, unit.Unit) error{r.Stop, r.Remove, r.Create, r.Start} {
		if err := do(t.Context(), s.Machine, now); err != nil {
			t.Fatal(err)
		}
	}
	s.shell(t, kept+undo)
	list, err := r.List(t.Context(), s.Machine, before.Cluster)
	if err != nil || len(list) != 1 || !list[0].Running || list[0].Hash != before.Hash() {
		t.Errorf("the unit is not as before: %+v, %v", list, err)
	}
	file := s.StateDir + "/units/" + before.Name() + "/files/1"
	text, err := os.ReadFile(file)
	if err != nil || string(text) != former {
		t.Errorf("the secret is %q, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	if s.NoInside {
		return
	}
	var out bytes.Buffer
	if err := r.Exec(t.Context(), s.Machine, before, []string{"sh", "-c", `echo "$PW"`}, nil, &out, &out); err != nil ||
		out.String() != "it's the former\n" {
		t.Errorf("the secret variable is %q, %v", out.String(), err)
	}
}

func (s Suite) shell(t *testing.T, script string) {
	t.Helper()
	if out, err := machine.Output(t.Context(), s.Machine, strings.NewReader(script), "sh", "-s"); err != nil {
		t.Fatalf("the script: %v\n%s", err, out)
	}
}

func (s Suite) reboot(t *testing.T) {
	if s.Reboot == nil {
		t.Skip("a reboot cannot be had here")
	}
	u := s.Unit(t)
	r := s.begin(t, u)
	s.Reboot(t, u)
	running := func() (bool, string) {
		list, err := r.List(t.Context(), s.Machine, u.Cluster)
		if err != nil || len(list) != 1 {
			return false, fmt.Sprint(list, err)
		}
		return list[0].Running, list[0].Status
	}
	if s.Survives {
		until(t, "it is started again", running)
	} else if is, said := running(); is {
		t.Errorf("it runs: %s", said)
	}
	// apply does the same.
	if err := errors.Join(r.Create(t.Context(), s.Machine, u), r.Start(t.Context(), s.Machine, u)); err != nil {
		t.Error(err)
	}
	until(t, "it runs again", running)
}

func (s Suite) changedArchive(t *testing.T) {
	u := s.Unit(t)
	if u.Image.Archive == "" {
		t.Skip("it has no archive")
	}
	u.Image.Digest = "sha256:" + strings.Repeat("0", 64)
	if err := s.Open(t).Prepare(t.Context(), s.Machine, u); croft.KindOf(err) != croft.Conflict {
		t.Errorf("prepare: %v", err)
	}
}

// Need skips the test if a program is missing.
func Need(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("units are run as root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed (scripts/install-deps test)", p)
		}
	}
}

func (s Suite) adopt(t *testing.T) {
	if !s.Adopts {
		t.Skip("this runtime cannot give a mark to what exists")
	}
	u := s.Unit(t)
	r := s.Open(t)
	existing := "legacy-" + u.Cluster[:8]
	s.Stranger(t, existing)
	if err := r.Adopt(t.Context(), s.Machine, u, existing); err != nil {
		t.Fatal(err)
	}
	wantOne := func(what string) {
		t.Helper()
		list, err := r.List(t.Context(), s.Machine, u.Cluster)
		if err != nil || len(list) != 1 || list[0].Name != u.Name() || list[0].Hash != u.Hash() {
			t.Errorf("%s: %+v, %v", what, list, err)
		}
	}
	wantOne("adopted")
	if err := r.Create(t.Context(), s.Machine, u); err != nil {
		t.Errorf("create what is there: %v", err)
	}
	if err := r.Adopt(t.Context(), s.Machine, u, "another"); croft.KindOf(err) != croft.Conflict {
		t.Errorf("adopt another as the same: %v", err)
	}
	wantOne("still")
	if err := errors.Join(r.Stop(t.Context(), s.Machine, u), r.Remove(t.Context(), s.Machine, u)); err != nil {
		t.Error(err)
	}
	if list, err := r.List(t.Context(), s.Machine, u.Cluster); err != nil || len(list) > 0 {
		t.Errorf("removed: %+v, %v", list, err)
	}
}
