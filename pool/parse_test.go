package pool_test

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
	"croft/pool"
)

const required = "  cmd_new: new\n  cmd_delete: delete\n"

func parse(t *testing.T, text string) []pool.Settings {
	t.Helper()
	all, err := pool.Parse("pools.yaml", []byte(text), func(pool.Instance) error { return nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDefaultsAreThoseOfTheFormat(t *testing.T) {
	got := parse(t, "p:\n"+required)
	want := []pool.Settings{{
		Name: "p", Commands: pool.Commands{New: "new", Delete: "delete"}, Max: 4, MaxStarting: 1, MaxPrealloc: 2,
		LivecheckPeriod: 600 * time.Second, LivecheckAttempts: 3, ListPeriod: 30 * time.Minute,
		ReuseMaxTime: 3600 * time.Second,
		NamePattern:  "{pool_name}_{id}_{datetime}",
		Limits: pool.Limits{New: 30 * time.Minute, Delete: 10 * time.Minute, Livecheck: time.Minute,
			Release: 10 * time.Minute, List: 2 * time.Minute},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEverySettingIsRead(t *testing.T) {
	got := parse(t, `p:
  cmd_new: new
  cmd_delete: delete
  cmd_livecheck: check
  cmd_release: release
  cmd_list: list
  cmd_new_timeout: 1h
  cmd_delete_timeout: 2
  cmd_livecheck_timeout: 3.5
  cmd_release_timeout: 4s
  cmd_list_timeout: 5
  list_period: 15m
  max: 10
  max_starting: 3
  max_prealloc: 4
  start_delay: 7
  livecheck_period: 300
  livecheck_attempts: 5
  tags: [a, {name: b, priority: -3}]
  tags_on_demand: [{name: c, priority: 10}]
  named_counters: [port, slot]
  reuse_opportunity_time: 90
  reuse_max_count: 8
  reuse_max_time: 0
  ttl: 6h
  name_pattern: "vm-{{{id}}}"
  description: what it is for
`)
	want := []pool.Settings{{
		Name: "p", Description: "what it is for",
		Commands: pool.Commands{New: "new", Delete: "delete", Livecheck: "check", Release: "release", List: "list"},
		Limits: pool.Limits{New: time.Hour, Delete: 2 * time.Second, Livecheck: 3500 * time.Millisecond,
			Release: 4 * time.Second, List: 5 * time.Second},
		Max: 10, MaxStarting: 3, MaxPrealloc: 4, StartDelay: 7 * time.Second,
		LivecheckPeriod: 5 * time.Minute, LivecheckAttempts: 5, ListPeriod: 15 * time.Minute,
		Tags: []pool.Tag{{Name: "a"}, {Name: "b", Priority: -3}}, OnDemand: []pool.Tag{{Name: "c", Priority: 10}},
		Counters:  []string{"port", "slot"},
		ReuseTime: 90 * time.Second, ReuseCount: 8, TTL: 6 * time.Hour, NamePattern: "vm-{{{id}}}",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := parse(t,
		"p:\n  instance:\n    resources: VCPU:1\n    ready: ssh\n    keys: [me]\n"); got[0].Instance.Ready != pool.ReadySSH || got[0].Instance.Resources != "VCPU:1" {
		t.Errorf("got the instance %+v", got[0].Instance)
	}
}

func TestPoolsKeepTheOrderOfTheFile(t *testing.T) {
	var names []pool.Name
	for _, s := range parse(t, "z:\n"+required+"a:\n"+required+"m:\n"+required) {
		names = append(names, s.Name)
	}
	if want := []pool.Name{"z", "a", "m"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

func TestAliasesAndMergesCount(t *testing.T) {
	got := parse(t, "one: &base\n"+required+"  max: 7\ntwo:\n  <<: *base\n  max: 8\n")
	if got[1].Commands.New != "new" || got[1].Max != 8 || got[0].Max != 7 {
		t.Errorf("got %+v", got)
	}
}

func TestAFaultIsToldWithItsLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"what is no YAML", "p:\n  cmd_new: [\n", "pools.yaml:2: "},
		{"a list that is not closed", "p:\n  cmd_new: x\n  max: [4\n  cmd_delete: y\n", "pools.yaml:3: "},
		{"a list on the first line that is not closed", "p: [4\nq: x\n", "pools.yaml:"},
		{"a list instead of a mapping", "- p\n", "pools.yaml:1: pools: write key: value, one on each line"},
		{"an alias that leads to itself", "p: &p\n  <<: *p\n",
			"pools.yaml:1: aliases make more of this than can be read: write it out"},
		{"a pool that is a text", "p: yes\n", "pools.yaml:1: pool p: write key: value, one on each line"},
		{"a setting that does not exist", "p:\n" + required + "  max_startin: 4\n",
			`pools.yaml:4: pool p: there is no setting max_startin; did you mean "max_starting"?`},
		{"a setting that is there twice", "p:\n" + required + "  max: 4\n  max: 5\n",
			"pools.yaml:5: pool p: max is there twice"},
		{"a pool that is there twice", "p:\n" + required + "p:\n" + required, "pools.yaml:4: pools: p is there twice"},
		{"no cmd_new", "q:\n" + required + "p:\n  cmd_delete: x\n",
			"pools.yaml:4: pool p: cmd_new is required: the command that starts one resource (or instance: for croft's own)"},
		{"no cmd_delete", "p:\n  cmd_new: x\n",
			"pools.yaml:1: pool p: cmd_delete is required: the command that removes one resource"},
		{"a number that is none", "p:\n" + required + "  max: four\n",
			`pools.yaml:4: pool p: max: want a whole number from 0 on, not "four"`},
		{"a number below nothing", "p:\n" + required + "  max: -1\n",
			`pools.yaml:4: pool p: max: want a whole number from 0 on, not "-1"`},
		{"no attempts", "p:\n" + required + "  livecheck_attempts: 0\n",
			`pools.yaml:4: pool p: livecheck_attempts: want a whole number from 1 on, not "0"`},
		{"a time that is none", "p:\n" + required + "  start_delay: soon\n",
			`pools.yaml:4: pool p: start_delay: want a number of seconds, or a duration such as 90s or 15m, not "soon"`},
		{"tags that are a text", "p:\n" + required + "  tags: abc\n",
			"pools.yaml:4: pool p: tags: is a list: write [abc]"},
		{"a tag with a wrong key", "p:\n" + required + "  tags:\n  - name: a\n    prio: 3\n",
			"pools.yaml:6: pool p: tags: a tag: there is no setting prio"},
		{"a tag without a name", "p:\n" + required + "  tags: [{priority: 1}]\n",
			`pools.yaml:4: pool p: tags: "" cannot be a tag: use 1 to 256 characters that can be printed`},
		{"a tag that is there twice", "p:\n" + required + "  tags: [a, a]\n",
			"pools.yaml:4: pool p: the tag a is there twice"},
		{"a tag on demand here and not there", "p:\n" + required + "  tags: [a]\nq:\n" + required +
			"  tags_on_demand: [a]\n",
			"pools.yaml:4: pool p: the tag a is one of tags_on_demand in pool q: let it be that everywhere, or nowhere"},
		{"a placeholder that does not exist", "p:\n" + required + "  name_pattern: 'x{pool}'\n",
			"pools.yaml:4: pool p: name_pattern: there is no placeholder {pool}: use {pool_name}, {id}, {datetime}"},
		{"a brace that is not closed", "p:\n" + required + "  name_pattern: 'x{id'\n",
			`pools.yaml:4: pool p: name_pattern: "x{id" has a { without a }`},
		{"a name that cannot be one of a file", "../p:\n" + required,
			`pools.yaml:1: "../p" cannot be the name of a pool: use letters, digits, dashes, dots and underscores, 128 at most`},
		{"a counter that cannot be a variable", "p:\n" + required + "  named_counters: [a-b]\n",
			`pools.yaml:4: pool p: named_counters: "a-b" is a part of a variable's name: use letters, digits and underscores`},
		{"commands and an instance", "p:\n" + required + "  instance: {resources: 'VCPU:1'}\n",
			"pools.yaml:4: pool p: instance and cmd_... are two ways to make resources: choose one"},
		{"an instance with a wrong key", "p:\n  instance:\n    resources: VCPU:1\n    imge: x\n",
			`pools.yaml:4: pool p: instance: an instance: there is no setting imge; did you mean "image"?`},
		{"an instance that is never ready", "p:\n  instance:\n    resources: VCPU:1\n    ready: never\n",
			`pools.yaml:4: pool p: instance: an instance: ready: want address, ssh, cloud-init, not "never"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pool.Parse("pools.yaml", []byte(c.text), func(pool.Instance) error { return nil }, nil)
			if !errors.Is(err, croft.Invalid) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestInstancesWithoutACloudAreRefused(t *testing.T) {
	_, err := pool.Parse("pools.yaml", []byte("p:\n  instance: {resources: 'VCPU:1'}\n"), nil, nil)
	if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "this server makes no instances") {
		t.Errorf("got %v", err)
	}
}

func TestSettingsThatDoNotExistMayCountForNothing(t *testing.T) {
	var told []string
	all, err := pool.Parse("pools.yaml", []byte("p:\n  cmd_new: n\n  frobnicate: 1\n  cmd_delete: d\n  maxx: 9\n"), nil,
		func(err error) { told = append(told, err.Error()) })
	if err != nil || len(all) != 1 || all[0].Commands.Delete != "d" || all[0].Max != 4 {
		t.Errorf("got %+v, %v", all, err)
	}
	if want := []string{"pools.yaml:3: pool p: there is no setting frobnicate",
		"pools.yaml:5: pool p: there is no setting maxx; did you mean \"max\"?"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if _, err := pool.Parse("pools.yaml", []byte("p:\n  cmd_new: n\n  cmd_delete: d\n  tags: [{nam: a}]\n"), nil,
		func(error) {}); err == nil {
		t.Error("a tag without a name is accepted")
	}
}

func TestSettingsWithoutEffectAreWarnedOf(t *testing.T) {
	for text, want := range map[string]string{
		"p:\n" + required + "  tags_on_demand: [d]\n  max_prealloc: 3\n": "pools.yaml:5: pool p: max_prealloc has no",
		"p:\n" + required + "  tags_on_demand: [d]\n  max_prealloc: 0\n": "",
		"p:\n" + required + "  tags_on_demand: [d]\n":                    "",
		"p:\n" + required + "  tags: [d]\n  max_prealloc: 3\n":           "",
	} {
		path := filepath.Join(t.TempDir(), "pools.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		told := ""
		file := pool.File{Path: path, Warn: func(err error) { told += err.Error() }}
		if pools, _, err := file.Load(); err != nil || len(pools) != 1 || (told == "") != (want == "") ||
			!strings.Contains(told, want) {
			t.Errorf("%q: told %q, %v", text, told, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("p:\n" + required)
	f.Add("one: &base\n" + required + "two:\n  <<: [*base, {max: 1}]\n  tags: [{name: a}, *x]\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := pool.Parse("pools.yaml", []byte(text), nil, nil)
		if err != nil && !errors.Is(err, croft.Invalid) {
			t.Errorf("an error without a kind: %v", err)
		}
	})
}

func TestAFileThatIsBeingWrittenDoesNotCountYet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pools.yaml")
	write := func(text string, age time.Duration) {
		t.Helper()
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	file := pool.File{Path: path}
	load := func(want int, wantFresh bool) {
		t.Helper()
		if pools, fresh, err := file.Load(); err != nil || len(pools) != want || fresh != wantFresh {
			t.Errorf("got %d pools, fresh %v, %v; want %d, %v", len(pools), fresh, err, want, wantFresh)
		}
	}
	write("p:\n"+required, 0)
	load(1, true) // at the start there is no earlier version
	write("", -time.Minute)
	load(0, true) // a clock that is ahead is no reason to wait
	write("p:\n"+required, time.Minute)
	load(1, true)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	load(1, false)
	write("", time.Second)
	load(0, true)
}
