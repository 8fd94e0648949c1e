package checkup

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/grid/machine"
	"croft/grid/runtime"
	"croft/internal/checks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatTheProbeSays(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const well = "kernel=Linux 6\nuid=0\ntime=1000010\ninit=systemd\nhome=/var/lib/croft/grid\nfree=1000000\nkind=ext2/ext3\n"
	for _, c := range []struct {
		name, out string
		level     checks.Level
		says      string
	}{
		{"a node that is well", well, checks.OK, "Linux 6, root, init systemd, state in /var/lib/croft/grid"},
		{"no flock", well + "lacks=flock\n", checks.Fail, "it lacks flock"},
		{"a directory that cannot be written", well + "readonly=/var\n", checks.Fail, "/var cannot be written"},
		{"a state in memory", strings.Replace(well, "ext2/ext3", "tmpfs", 1), checks.Warn, "lost at a reboot"},
		{"a full disk", strings.Replace(well, "free=1000000", "free=2048", 1), checks.Warn, "only 2 MiB"},
		{"a clock that is off by a day", strings.Replace(well, "time=1000010", "time=1086400", 1), checks.Warn,
			"1d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := judge(c.out, now, time.Millisecond)
			last := list[len(list)-1]
			if last.Level != c.level || !strings.Contains(last.Found, c.says) {
				t.Errorf("%+v", list)
			}
		})
	}
}

func TestThisMachine(t *testing.T) {
	r, err := runtime.Config{}.Open("process")
	if err != nil {
		t.Fatal(err)
	}
	found := Nodes(t.Context(), []Node{{Name: "here", Machine: machine.Local{}, Runtimes: []*runtime.Runtime{r},
		StateDir: t.TempDir()},
		{Name: "lost", Machine: lost{}}})
	if len(found) < 3 || found[0].Check != "node here" || found[0].Level != checks.OK ||
		!strings.Contains(found[0].Found, "Linux") {
		t.Errorf("%+v", found)
	}
	if last := found[len(found)-1]; last.Check != "node lost" || last.Level != checks.Fail ||
		!strings.Contains(last.Found, "nobody answers") {
		t.Errorf("%+v", last)
	}
}

// lost is a machine that does not answer.
type lost struct{}

func (lost) Start(context.Context, machine.Command) (machine.Process, error) {
	return nil, croft.Errorf(croft.Unavailable, "nobody answers")
}

func TestRepositories(t *testing.T) {
	dir := t.TempDir()
	if got := Repository(t.Context(), dir, "none"); got[0].Level != checks.Warn {
		t.Errorf("none: %+v", got)
	}
	if got := Repository(t.Context(), dir, "git"); got[0].Level != checks.Fail {
		t.Errorf("no repository: %+v", got)
	}
	run := func(argv ...string) {
		t.Helper()
		if out, err := machine.Output(t.Context(), machine.Local{}, nil, append([]string{"git", "-C", dir, "-c",
			"user.name=t",
			"-c", "user.email=t@example.org"}, argv...)...); err != nil {
			t.Fatalf("git %q: %v: %s", argv, err, out)
		}
	}
	run("init", "-q")
	home := t.TempDir()
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME",
		"GIT_COMMITTER_EMAIL", "EMAIL"} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil { // restored when the test ends
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	run("config", "user.useConfigOnly", "true")
	if got := Repository(t.Context(), dir, "git"); got[0].Level != checks.Warn || !strings.Contains(got[0].Found,
		"git does not know who commits: run git config --global user.name") {
		t.Errorf("no identity: %+v", got)
	}
	run("config", "user.name", "t")
	run("config", "user.email", "t@example.org")
	if got := Repository(t.Context(), dir, "git"); got[0].Level != checks.Warn || !strings.Contains(got[0].Found,
		"nothing is committed") {
		t.Errorf("no commit: %+v", got)
	}
	if err := os.WriteFile(dir+"/x", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run("add", "-A")
	run("commit", "-q", "-m", "x")
	if got := Repository(t.Context(), dir, "git"); len(got) != 1 || got[0].Level != checks.OK {
		t.Errorf("all is well: %+v", got)
	}
	run("config", "core.symlinks", "false")
	if got := Repository(t.Context(), dir, "git"); got[0].Level != checks.Fail || !strings.Contains(got[0].Found,
		"core.symlinks") {
		t.Errorf("no links: %+v", got)
	}
}

func TestNodesThatShareAStateDirectoryFail(t *testing.T) {
	dir := t.TempDir()
	nodes := []Node{{Name: "web1", Machine: machine.Local{}, StateDir: dir + "/one"},
		{Name: "web2", Machine: machine.Local{}, StateDir: dir + "/two"},
		{Name: "web3", Machine: machine.Local{}, StateDir: dir + "/one"}}
	var shared []string
	for _, r := range Nodes(t.Context(), nodes) {
		if r.Level == checks.Fail && strings.Contains(r.Found, "shares its state directory") {
			shared = append(shared, r.Check+" "+r.Found)
		}
	}
	if want := []string{"node web3 it shares its state directory with web1"}; !slices.Equal(shared, want) {
		t.Errorf("shared: %q, want %q", shared, want)
	}
}

func TestARuntimeThatCannotRunIsNotOK(t *testing.T) {
	for name, c := range map[string]struct {
		point string
		level checks.Level
		says  string
	}{
		"it fails to start a unit": {"extends: process\nstart: {shell: true, argv: 'echo nope >&2; exit 1'}\n", checks.Fail,
			"answers, and cannot run units: mine start f-01234567-doctor-"},
		"its units end at once": {"extends: process\nvariables: {chroot: [chroot], run: [echo, well]}\n", checks.Fail,
			"cannot run units"},
		"it needs an image": {"extends: process\ncannot: {plain: no, rootfs: no}\n", checks.OK, "no unit was tried"},
		"it runs machines":  {"extends: process\ncannot: {novm: no}\n", checks.OK, "no machine was tried"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir() + "/new"
			r, err := runtime.Config{StateDir: home, Repository: fstest.MapFS{"hardpoints/runtime/mine.yaml": {
				Data: []byte(c.point)}}}.Open("mine")
			if err != nil {
				t.Fatal(err)
			}
			got := tried(t, r, home)
			if got.Level != c.level || !strings.Contains(got.Found, c.says) || c.level == checks.Fail && got.Do == "" {
				t.Errorf("%+v, want %s: %s", got, c.level, c.says)
			}
		})
	}
}

// tried returns the finding about a runtime on this machine; the state directory is home.
func tried(t *testing.T, r *runtime.Runtime, home string) checks.Result {
	t.Helper()
	list := Nodes(t.Context(), []Node{{Name: "here", Machine: machine.Local{}, Runtimes: []*runtime.Runtime{r},
		StateDir: home, Cluster: "0123456789abcdef0123456789abcdef"}})
	if left, _ := filepath.Glob(home + "/units/*"); len(left) > 0 {
		t.Errorf("units are left there: %q", left)
	}
	if left, _ := filepath.Glob(home + "/doctor-*"); len(left) > 0 {
		t.Errorf("root directories are left there: %q", left)
	}
	return list[len(list)-1]
}

// TestRuntimesAreTried uses the runtimes that are installed on this machine.
func TestRuntimesAreTried(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("units are tried as root")
	}
	for _, name := range []string{"process", "runc"} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			r, err := runtime.Config{StateDir: home}.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Probe(t.Context(), machine.Local{}); err != nil {
				t.Skip(err)
			}
			if got := tried(t, r, home); got.Level != checks.OK || !strings.Contains(got.Found, "ran a unit") {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("quadlet without systemd", func(t *testing.T) {
		if _, err := os.Stat("/run/systemd/system"); err == nil {
			t.Skip("systemd is the init here")
		}
		home := t.TempDir()
		r, err := runtime.Config{StateDir: home}.Open("quadlet")
		if err != nil {
			t.Fatal(err)
		}
		if got := tried(t, r, home); got.Level != checks.Fail {
			t.Errorf("%+v", got)
		}
	})
}

func TestRemediesOfRuntimes(t *testing.T) {
	const root, user = "kernel=Linux 6\nuid=0\ninit=other\n", "kernel=Linux 6\nuid=1000\ninit=systemd\n"
	for _, c := range []struct{ name, probed, want string }{
		{"quadlet", root, "systemd is not the init"}, {"systemd-run", root, "systemd is not the init"},
		{"process", user, "unshare, --map-root-user"}, {"runc", user, "log in as root"}, {"process", root, "fix that"},
	} {
		if got := remedy(c.name, c.probed); !strings.Contains(got, c.want) {
			t.Errorf("%s on %q: %s, want %s", c.name, c.probed, got, c.want)
		}
	}
}
