package settings_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/internal/settings"
)

type config struct {
	Etcd struct {
		Endpoints []string      `yaml:"endpoints"`
		Timeout   time.Duration `yaml:"timeout"`
		Files     `yaml:",inline"`
	} `yaml:"etcd"`
	Name   string             `yaml:"name"`
	Count  int                `yaml:"count"`
	Wait   bool               `yaml:"wait"`
	Ratios map[string]float64 `yaml:"ratios"`
	Parts  []part             `yaml:"parts"`
	Port   uint16             `yaml:"port"`
	hidden string
}

// Files is inlined in another struct.
type Files struct {
	CA string `yaml:"ca"`
}

type part struct {
	Size int `yaml:"size"`
}

// Validate rejects one name.
func (c *config) Validate() error {
	if c.Name == "impossible" {
		return errors.New("name: impossible is not possible")
	}
	return nil
}

func defaults() config {
	c := config{Name: "tiny", Count: 1, hidden: "kept", Ratios: map[string]float64{"VCPU": 4}}
	c.Etcd.Endpoints = []string{"http://127.0.0.1:2379"}
	c.Etcd.Timeout = 3 * time.Second
	return c
}

// source returns a source with this text as its only file, and no environment.
func source(t *testing.T, text string) settings.Source {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "test.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return settings.Source{Name: "test.yaml", Dirs: []string{dir},
		Env: func(string) (string, bool) { return "", false }}
}

func TestLoad(t *testing.T) {
	for _, c := range []struct {
		name, text string
		env, flags map[string]string
		want       func(*config)
	}{
		{"an empty file changes nothing", "", nil, nil, func(*config) {}},
		{"comments alone change nothing", "# name: x\n", nil, nil, func(*config) {}},
		{"a key without a value changes nothing", "etcd:\nname:\n", nil, nil, func(*config) {}},
		{"a file changes what it names", "etcd:\n  timeout: 5s\nwait: true\n", nil, nil, func(c *config) {
			c.Etcd.Timeout, c.Wait = 5*time.Second, true
		}},
		{"a list replaces the default", "etcd: {endpoints: [http://a, http://b]}", nil, nil, func(c *config) {
			c.Etcd.Endpoints = []string{"http://a", "http://b"}
		}},
		{"what is inline is set like the rest", "etcd: {ca: file, timeout: 5s}",
			map[string]string{"CROFT_ETCD_CA": "env"}, nil, func(c *config) {
				c.Etcd.CA, c.Etcd.Timeout = "env", 5*time.Second
			}},
		{"a list of groups", "parts: [{size: 1}, {size: 2}]", nil, nil, func(c *config) { c.Parts = []part{{1}, {2}} }},
		{"a map adds to the default", "ratios: {MEMORY_MB: 1.5}", nil, nil, func(c *config) {
			c.Ratios = map[string]float64{"VCPU": 4, "MEMORY_MB": 1.5}
		}},
		{"the environment goes over the file", "name: file\ncount: 2", map[string]string{"CROFT_NAME": "env"}, nil,
			func(c *config) {
				c.Name, c.Count = "env", 2
			}},
		{"flags go over the environment", "name: file", map[string]string{"CROFT_NAME": "env"},
			map[string]string{"name": "flag"}, func(c *config) { c.Name = "flag" }},
		{"an empty variable is unset", "name: file", map[string]string{"CROFT_NAME": ""}, nil,
			func(c *config) { c.Name = "file" }},
		{"an empty flag is set", "name: file", nil, map[string]string{"name": ""}, func(c *config) { c.Name = "" }},
		{"a variable sets a list within a group", "", map[string]string{"CROFT_ETCD_ENDPOINTS": "http://a, http://b"},
			nil, func(c *config) {
				c.Etcd.Endpoints = []string{"http://a", "http://b"}
			}},
		{"variables of every kind", "", map[string]string{
			"CROFT_ETCD_TIMEOUT": "1m", "CROFT_COUNT": "7", "CROFT_WAIT": "true", "CROFT_PORT": "80",
			"CROFT_PARTS": "[{size: 3}]",
		}, nil, func(c *config) {
			c.Etcd.Timeout, c.Count, c.Wait, c.Port, c.Parts = time.Minute, 7, true, 80, []part{{3}}
		}},
		{"a text that looks like a number", "", map[string]string{"CROFT_NAME": "007: x"}, nil,
			func(c *config) { c.Name = "007: x" }},
		{"no duration at all", "etcd: {timeout: 0s}", nil, nil, func(c *config) { c.Etcd.Timeout = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := source(t, c.text)
			s.Env = func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }
			s.Flags = c.flags
			got, file, err := settings.Load(defaults(), s)
			if err != nil {
				t.Fatal(err)
			}
			want := defaults()
			c.want(&want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(config{})); diff != "" {
				t.Error(diff)
			}
			if filepath.Base(file) != "test.yaml" {
				t.Errorf("read %q", file)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		env              map[string]string
	}{
		{"an unknown key", "\nnmae: x", `test.yaml:2: unknown setting "nmae"; did you mean "name"?`, nil},
		{"an unknown key in a group", "etcd:\n  endpoint: x",
			`test.yaml:2: unknown setting "etcd.endpoint"; did you mean "endpoints"?`, nil},
		{"an unknown key in a list", "parts:\n- size: 1\n- sice: 1",
			`test.yaml:3: unknown setting "parts[1].sice"; did you mean "size"?`, nil},
		{"a key that is like none", "frobnicate: x", `test.yaml:1: unknown setting "frobnicate"`, nil},
		{"a field that is not a setting", "hidden: x", `unknown setting "hidden"`, nil},
		{"a key twice", "name: a\nname: b", "test.yaml:2: name is set twice", nil},
		{"a word for a number", "count: many", `test.yaml:1: count: want a whole number, not "many"`, nil},
		{"a word for a truth", "wait: maybe", `test.yaml:1: wait: want true or false, not "maybe"`, nil},
		{"a word for a fraction", "ratios: {VCPU: lots}", `test.yaml:1: ratios.VCPU: want a number, not "lots"`, nil},
		{"a number for a duration", "etcd: {timeout: 5}",
			`test.yaml:1: etcd.timeout: want a duration such as 30s or 5m, not "5"`, nil},
		{"a port that is none", "port: 70000", `test.yaml:1: port: want a whole number from 0 on, not "70000"`, nil},
		{"a text for a list", "etcd: {endpoints: http://a}", "test.yaml:1: etcd.endpoints is a list: write [http://a]",
			nil},
		{"a list for a text", "name: [a]", "test.yaml:1: name: want a text", nil},
		{"a text for a group", "etcd: http://a", "test.yaml:1: etcd: write key: value, one on each line", nil},
		{"a list for the whole", "- a", "test.yaml:1: write key: value, one on each line", nil},
		{"broken YAML", "name: [", "test.yaml:1: did not find expected node content", nil},
		{"a tab", "etcd:\n\tname: x",
			"test.yaml:2: a tab, or another character that nothing begins with: indent with spaces", nil},
		{"two documents", "name: a\n---\nname: b", "more than one document", nil},
		{"an anchor", "etcd: &a {endpoints: [*a]}", "anchors and aliases are not for settings", nil},
		{"what Validate refuses", "name: impossible", "settings: name: impossible is not possible", nil},
		{"a variable that is no number", "", `CROFT_COUNT: want a whole number, not "many"`,
			map[string]string{"CROFT_COUNT": "many"}},
		{"a variable that is no duration", "", `CROFT_ETCD_TIMEOUT: want a duration such as 30s or 5m, not "5"`,
			map[string]string{"CROFT_ETCD_TIMEOUT": "5"}},
		{"a variable that is no YAML", "", `CROFT_WAIT: want true or false, not "["`,
			map[string]string{"CROFT_WAIT": "["}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := source(t, c.text)
			s.Env = func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }
			got, _, err := settings.Load(defaults(), s)
			if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v of kind %q\nwant %s", err, croft.KindOf(err), c.want)
			}
			if diff := cmp.Diff(defaults(), got, cmp.AllowUnexported(config{})); diff != "" {
				t.Errorf("not the defaults beside an error: %s", diff)
			}
		})
	}
}

func TestAFormerSettingNamesTheNewOne(t *testing.T) {
	s := source(t, "etcd:\n  host: ds1\n")
	s.Former = map[string]string{"etcd.host": "write etcd.endpoints: [http://HOST:2379]"}
	_, _, err := settings.Load(defaults(), s)
	want := `test.yaml:2: unknown setting "etcd.host": write etcd.endpoints: [http://HOST:2379]`
	if croft.KindOf(err) != croft.Invalid || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestEnvNames(t *testing.T) {
	if got := settings.EnvNames(defaults(), nil); !slices.Contains(got, "CROFT_ETCD_CA") ||
		slices.Contains(got, "CROFT_HIDDEN") {
		t.Errorf("got %v", got)
	}
}

func TestLoadFindsTheFile(t *testing.T) {
	first, second, empty := source(t, "name: first"), source(t, "name: second"), t.TempDir()
	load := func(s settings.Source) (string, string, error) {
		s.Name, s.Env = "test.yaml", first.Env
		c, file, err := settings.Load(defaults(), s)
		return c.Name, file, err
	}
	for _, c := range []struct {
		name   string
		source settings.Source
		want   string
	}{
		{"the first directory that has it counts", settings.Source{Dirs: []string{empty, first.Dirs[0],
			second.Dirs[0]}}, "first"},
		{"none is no error", settings.Source{Dirs: []string{empty}}, "tiny"},
		{"a named file counts alone", settings.Source{File: filepath.Join(second.Dirs[0], "test.yaml"),
			Dirs: first.Dirs}, "second"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, file, err := load(c.source); err != nil || got != c.want || (file == "") != (got == "tiny") {
				t.Errorf("got %q of file %q, %v; want %q", got, file, err, c.want)
			}
		})
	}
	if _, _, err := load(settings.Source{File: filepath.Join(empty, "none.yaml")}); croft.KindOf(err) != croft.Invalid {
		t.Errorf("a named file that is absent: %v", err)
	}
	if _, _, err := load(settings.Source{File: empty}); croft.KindOf(err) != croft.Invalid {
		t.Errorf("a named file that is a directory: %v", err)
	}
}

func TestSearchPath(t *testing.T) {
	got := settings.SearchPath()
	if len(got) != 3 || got[0] != "." || filepath.Base(got[1]) != "croft" || got[2] != "/etc/croft" {
		t.Errorf("got %q", got)
	}
}

func TestAFlagWithoutASettingIsAMistake(t *testing.T) {
	s := source(t, "")
	s.Flags = map[string]string{"nothing": "x"}
	if _, _, err := settings.Load(defaults(), s); err == nil || croft.KindOf(err) != "" {
		t.Errorf("got %v", err)
	}
}

// Any file content is either read or rejected in one line.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"name: x", "etcd: {endpoints: [a], timeout: 3s}", "a: &a [*a]", "<<: {}",
		"? {a: b}\n: c", "ratios: {1: 2}", "!!binary x", "name: !!int 3"} {
		f.Add(seed)
	}
	dir := f.TempDir()
	file := filepath.Join(dir, "test.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := settings.Load(defaults(), settings.Source{File: file,
			Env: func(string) (string, bool) { return "", false }})
		if err != nil && croft.KindOf(err) != croft.Invalid {
			t.Fatalf("%q: %v has kind %q", text, err, croft.KindOf(err))
		}
	})
}

func TestAFileOfAnotherUserIsNotObeyed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files of others can be made by root alone")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "schedule.yaml")
	write := func(path string) {
		if err := os.WriteFile(path, []byte("project: x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	load := func(name string) error {
		_, _, err := settings.Load(struct {
			Project string `yaml:"project"`
		}{}, settings.Source{Name: "schedule.yaml", Dirs: []string{dir}, File: name})
		return err
	}
	write(file)
	if err := load(""); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := load(""); !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(),
		"belongs to another user (12345)") {
		t.Errorf("found: %v", err)
	}
	if err := load(file); err != nil {
		t.Errorf("named: %v", err)
	}
	other := filepath.Join(dir, "other.yaml")
	write(other)
	if err := errors.Join(os.Remove(file), os.Symlink(other, file), os.Lchown(file, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	if err := load(""); !errors.Is(err, croft.Invalid) {
		t.Errorf("by a link of another user: %v", err)
	}
	if err := errors.Join(os.Remove(file), os.Rename(other, file), os.Chmod(file, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := load(""); !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "chmod o-w") {
		t.Errorf("that everybody may write: %v", err)
	}
}

func TestFormerNamesAreReadWithAWarning(t *testing.T) {
	type renamed struct {
		Join struct {
			Listen string        `yaml:"listen"`
			Life   time.Duration `yaml:"life"`
		} `yaml:"join"`
	}
	for _, c := range []struct {
		name, file string
		env        map[string]string
		want       string // value of Join.Listen
		warns      string // text of the only warning
		err        string
	}{
		{"the new name", "join: {listen: a}", nil, "a", "", ""},
		{"the former name", "\ncontrol: {listen: a}", nil, "a", ":2: the setting control is called join now", ""},
		{"both", "control: {listen: a}\njoin: {listen: b}", nil, "", "", ":1: control is the former name of join"},
		{"a wrong key below it", "control: {listne: a}", nil, "", "", `unknown setting "join.listne"`},
		{"the former variable", "", map[string]string{"CROFT_CONTROL_LISTEN": "a"}, "a",
			"CROFT_CONTROL_LISTEN is called CROFT_JOIN_LISTEN now", ""},
		{"both variables", "", map[string]string{"CROFT_CONTROL_LISTEN": "a", "CROFT_JOIN_LISTEN": "b"}, "", "",
			"set one of them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x.yaml")
			if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			var warned []string
			got, _, err := settings.Load(renamed{}, settings.Source{
				File: file, Env: func(name string) (string, bool) { v, ok := c.env[name]; return v, ok },
				Renamed: map[string]string{"control": "join"},
				Warn:    func(words string) { warned = append(warned, words) },
			})
			if c.err != "" {
				if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want one Invalid with %q", err, c.err)
				}
				return
			}
			if err != nil || got.Join.Listen != c.want {
				t.Errorf("got %q, %v; want %q", got.Join.Listen, err, c.want)
			}
			if said := strings.Join(warned, "\n"); !strings.Contains(said, c.warns) || (said == "") != (c.warns == "") {
				t.Errorf("it warns %q, want %q", said, c.warns)
			}
		})
	}
}
