package checkup

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
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
		{"a state in memory", strings.Replace(well, "ext2/ext3", "tmpfs", 1), checks.Warn, "forgotten at a reboot"},
		{"a full disk", strings.Replace(well, "free=1000000", "free=2048", 1), checks.Warn, "only 2 MiB"},
		{"a clock that is off by a day", strings.Replace(well, "time=1000010", "time=1086400", 1), checks.Warn,
			"24h0m0s"},
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
		if err := os.Unsetenv(name); err != nil { // until the test has ended
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
	const root, user = "kernel=Linux 6\nuid=0\ninit=other\n", "kernel=Linux 6\nuid=1000\ninit=systemd\n"
	for _, c := range []struct {
		name, probed string
		level        checks.Level
		says         string
	}{
		{"quadlet", root, checks.Fail, "systemd is not the init"},
		{"systemd-run", root, checks.Fail, "systemd is not the init"},
		{"quadlet", user, checks.OK, "no unit was tried: croft grid doctor runtime quadlet --node web1"},
		{"process", user, checks.Warn, "the user is not root"},
		{"process", root, checks.OK, "no unit was tried"},
	} {
		r := judgeRuntime(c.name, "5.1", c.probed, "web1")
		if r.Level != c.level || !strings.Contains(r.Found, c.says) {
			t.Errorf("%s on %q: %+v, want %s: %s", c.name, c.probed, r, c.level, c.says)
		}
	}
}
