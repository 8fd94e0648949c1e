package compute

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/hosts/audit"
)

func TestAnAgentNeedsAllOfItsConfiguration(t *testing.T) {
	t.Parallel()
	l := &logbook{t: t, dir: t.TempDir()}
	whole := l.agent().Config
	a, err := New(whole)
	if err != nil || cap(a.builds) != 4 || a.ResyncEvery != 30*time.Second || a.SweepEvery != time.Minute ||
		a.Traces == nil {
		t.Errorf("got %+v, %v", a, err)
	}
	for name, lack := range map[string]func(*Config){
		"host": func(c *Config) { c.Host.ID = "" }, "partition": func(c *Config) { c.Partition = "" },
		"dir": func(c *Config) { c.Dir = "" }, "log": func(c *Config) { c.Log = nil },
		"orders": func(c *Config) { c.Orders = nil }, "registry": func(c *Config) { c.Registry = nil },
		"records": func(c *Config) { c.Records = nil }, "inventory": func(c *Config) { c.Inventory = nil },
		"hypervisor": func(c *Config) { c.Hypervisor = nil }, "images": func(c *Config) { c.Images = nil },
	} {
		c := whole
		lack(&c)
		if _, err := New(c); !errors.Is(err, croft.Invalid) {
			t.Errorf("without %s: got %v", name, err)
		}
	}
}

func TestModesAreOnlyLimited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := string(croft.NewInstanceID())
	for _, c := range []struct {
		path         string
		before, want fs.FileMode
	}{
		{"", 0o755, 0o711}, {id, 0o777, 0o711}, {id + "/seed.iso", 0o644, 0o600}, {id + "/disk", 0o644, 0o644},
		{"others", 0o755, 0o755}, {"others/seed.iso", 0o644, 0o644}, {string(croft.NewInstanceID()), 0o700, 0o700},
	} {
		path := filepath.Join(dir, c.path)
		defer func() {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != c.want {
				t.Errorf("%s: %v, %v, want %o", c.path, info.Mode(), err, c.want)
			}
		}()
		var err error
		if strings.HasSuffix(path, "seed.iso") || strings.HasSuffix(path, "disk") {
			err = os.WriteFile(path, nil, c.before)
		} else {
			err = os.MkdirAll(path, c.before)
		}
		if err := errors.Join(err, os.Chmod(path, c.before)); err != nil {
			t.Fatal(err)
		}
	}
	// Files and links with the name of an instance are left alone.
	file, target := filepath.Join(dir, string(croft.NewInstanceID())), filepath.Join(dir, "target")
	linked := filepath.Join(dir, string(croft.NewInstanceID()))
	for path, mode := range map[string]fs.FileMode{file: 0o644, target: 0o644} {
		if err := errors.Join(os.WriteFile(path, nil, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(linked, 0o700), os.Symlink(target, filepath.Join(linked, seedFile))); err != nil {
		t.Fatal(err)
	}
	a := &Agent{Config: Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}}
	if err := a.tighten(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{file, target} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	a.Dir = filepath.Join(dir, "none yet")
	if err := a.tighten(); err != nil {
		t.Errorf("before the first instance: %v", err)
	}
	a.Dir = file
	if err := a.tighten(); err == nil {
		t.Error("what is no directory is one")
	}
}

func TestAHostKeepsItsUUID(t *testing.T) {
	t.Parallel()
	dir, err := OpenStateDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	id := croft.NewHostID()
	for range 2 {
		if err := dir.KeepHostID(id); err != nil {
			t.Error(err)
		}
	}
	if err := dir.KeepHostID(croft.NewHostID()); !errors.Is(err, croft.Conflict) {
		t.Errorf("another one: %v", err)
	}
	if got, err := dir.HostID(); got != id || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	path := filepath.Join(dir.Path, "host-id")
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"kept": dir.KeepHostID(id), "read": second(dir.HostID())} {
		if err == nil || croft.KindOf(err) != "" {
			t.Errorf("an unreadable UUID is %s: %v", name, err)
		}
	}
}

// The error about a directory in use names the process that uses it.
func TestAStateDirectoryNamesWhoHasIt(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	path, file := filepath.Join(parent, "state"), filepath.Join(parent, "file")
	pid := filepath.Join(path, "croft.pid")
	if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(file, nil, 0o600),
		os.WriteFile(pid, []byte("123456789012345\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	dir, err := OpenStateDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(pid); string(got) != fmt.Sprintln(os.Getpid()) || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, runs := Running(path); !runs || got.PID != os.Getpid() || got.Hypervisor != "" {
		t.Errorf("the process that uses it is %+v, %v", got, runs)
	}
	if err := dir.NoteHypervisor("sim"); err != nil {
		t.Fatal(err)
	}
	if got, _ := Running(path); got.Hypervisor != "sim" {
		t.Errorf("the process that uses it is %+v", got)
	}
	_, err = OpenStateDir(path)
	if !errors.Is(err, croft.Conflict) || !strings.Contains(err.Error(), fmt.Sprintf("process id %d;", os.Getpid())) {
		t.Errorf("got %v", err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	if got, runs := Running(path); runs {
		t.Errorf("after its end the process that uses it is %+v", got)
	}
	if err := errors.Join(os.Remove(pid), os.Mkdir(pid, 0o700)); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{path: "lock the state directory", file: "make the state directory"} {
		if _, err := OpenStateDir(path); !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// If the process cannot be recorded, the lock is not taken.
	if err := errors.Join(os.Remove(pid), os.Symlink("/dev/full", pid)); err != nil {
		t.Fatal(err)
	}
	if got, err := OpenStateDir(path); err == nil {
		t.Errorf("got %v", got)
	}
}

func second[T any](_ T, err error) error { return err }

func TestASecretIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := &StateDir{Path: t.TempDir()}
	made := 0
	mint := func() string { made++; return strings.Repeat("x", made) }
	for range 2 {
		if got, err := dir.Secret("token", mint); got != "x" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	path := filepath.Join(dir.Path, "token")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its file: %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := dir.Secret("token", mint); got != "xx" || err != nil {
		t.Errorf("where the file is empty: %q, %v", got, err)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if got, err := dir.Secret("token", mint); err == nil || made != 2 {
		t.Errorf("an unreadable one is %q, after %d were made", got, made)
	}
}

// Files that can be neither listed nor removed do not count as removed.
func TestFilesThatCannotBeSeenAreNotGone(t *testing.T) {
	t.Parallel()
	_, a := alone(t)
	if _, have, err := a.read(t.Context(), guest); err != nil || have.Files {
		t.Errorf("where there are none: %+v, %v", have, err)
	}
	a.Dir = filepath.Join(a.Dir, "file")
	if err := os.WriteFile(a.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.read(t.Context(), guest); err == nil {
		t.Error("they are seen")
	}
	if err := a.clean(guest); err == nil {
		t.Error("they are removed")
	}
}

func TestEveryCallOfTheAPINeedsTheToken(t *testing.T) {
	t.Parallel()
	_, a := alone(t)
	ask := func(token, header, method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		(&API{Agent: a, Token: token}).Handler().ServeHTTP(w, r)
		return w
	}
	for _, call := range []string{"GET /v1/instances/x/console", "POST /v1/instances/x/console", "POST /v1/images",
		"GET /v1/holding", "GET /v1/usages", "GET /v1/instances/x/usage", "DELETE /v1/instances/x/files"} {
		method, path, _ := strings.Cut(call, " ")
		for _, c := range [][2]string{{"secret", ""}, {"secret", "Bearer guess"}, {"secret", "secret"}, {"", "Bearer "},
			{"secret", "Bearer "}} {
			got := ask(c[0], c[1], method, path)
			if got.Code != http.StatusUnauthorized || got.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s with %q, where the token is %q: %d %v", call, c[1], c[0], got.Code, got.Header())
			}
		}
		got := ask("secret", "Bearer secret", method, path)
		if got.Code == http.StatusUnauthorized || got.Code == http.StatusMethodNotAllowed ||
			strings.Contains(got.Body.String(), "404 page not found") {
			t.Errorf("%s with the token: %d %s", call, got.Code, got.Body)
		}
	}
}

func TestContentsAreThisInstallations(t *testing.T) {
	t.Parallel()
	l, a := alone(t)
	const foreign, files, both = "0d0ff6a5-9d0e-4b62-a1a1-5b6c0e1c2d3f", "1d0ff6a5-9d0e-4b62-a1a1-5b6c0e1c2d3f",
		"2d0ff6a5-9d0e-4b62-a1a1-5b6c0e1c2d3f"
	l.others = []Domain{{ID: guest, Partition: home, Ordered: Ordered{Generation: 7}, Power: PowerPaused},
		{ID: both, Partition: home, Power: PowerOff}, {ID: foreign, Partition: "q"}}
	for _, name := range []string{foreign, files, both, "lost+found"} {
		if err := os.Mkdir(filepath.Join(l.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(l.dir, "3d0ff6a5-9d0e-4b62-a1a1-5b6c0e1c2d3f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := a.Contents(t.Context())
	want := fmt.Sprint(audit.Contents{Guests: []audit.Guest{{Instance: guest, Generation: 7, Running: true},
		{Instance: both}}, Directories: []croft.InstanceID{files, both}})
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	a.Dir = filepath.Join(l.dir, "none yet")
	if got, err := a.Contents(t.Context()); err != nil || len(got.Directories) > 0 {
		t.Errorf("before the first instance: %v, %v", got, err)
	}
	if said := a.nearlyFull(t.Context()); said != "" {
		t.Errorf("it says %s", said)
	}
	a.Dir = filepath.Join(l.dir, "3d0ff6a5-9d0e-4b62-a1a1-5b6c0e1c2d3f")
	if got, err := a.Contents(t.Context()); err == nil {
		t.Errorf("what cannot be read: %v", got)
	}
	l.fail = failing(errPlanned, "list")
	if _, err := a.Contents(t.Context()); !errors.Is(err, errPlanned) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyFilesWithoutAnOwnerAreRemoved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		with func(*logbook)
		want error
	}{
		{"nobody's", func(*logbook) {}, nil},
		{"an instance's on record", func(l *logbook) { l.record = &croft.Instance{ID: guest} }, croft.Conflict},
		{"an order's", func(l *logbook) { l.order = &croft.Order{} }, croft.Conflict},
		{"a domain's", func(l *logbook) { l.domain = &Domain{} }, croft.Conflict},
		{"while the record cannot be read", func(l *logbook) { l.fail = failing(errPlanned, "record") }, errPlanned},
		{"while the order cannot be read", func(l *logbook) { l.fail = failing(errPlanned, "order") }, errPlanned},
		{"while the domain cannot be read", func(l *logbook) { l.fail = failing(errPlanned, "domain") }, errPlanned},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a := alone(t)
			if err := os.Mkdir(a.dir(guest), 0o700); err != nil {
				t.Fatal(err)
			}
			c.with(l)
			if err := a.RemoveFiles(t.Context(), guest); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if l.has("") != (c.want != nil) {
				t.Errorf("the files are there: %v", l.has(""))
			}
		})
	}
}
