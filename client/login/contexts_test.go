package login_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/client/login"
	"croft/tenant/access/oidc/oidctest"
)

// kept creates a file with contexts of these names.
func kept(t *testing.T, names ...string) login.File {
	t.Helper()
	file := login.File(filepath.Join(t.TempDir(), "login.json"))
	for _, name := range names {
		if err := file.Put(name, login.Context{URL: "https://" + name + ".example", Token: "secret"}); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// is fails the test unless the file has exactly these contexts, and this current one.
func is(t *testing.T, file login.File, current string, names ...string) {
	t.Helper()
	all, err := file.Read()
	if err != nil || all.Current != current || !slices.Equal(all.Names(), names) {
		t.Errorf("there are %q, %q is current, %v; want %q and %q", all.Names(), all.Current, err, names, current)
	}
}

func TestContextsAreKeptBesideEachOther(t *testing.T) {
	file := kept(t, "home", "work")
	is(t, file, "work", "home", "work")
	if c, err := file.Context("home"); err != nil || c.URL != "https://home.example" {
		t.Errorf("home is %+v, %v", c, err)
	}
	if _, err := file.Context("hom"); croft.KindOf(err) != croft.NotFound ||
		!strings.Contains(err.Error(), `did you mean "home"`) {
		t.Errorf("of one that is not there: %v", err)
	}
	if c, err := file.Remove("work"); err != nil || c.URL != "https://work.example" {
		t.Errorf("removed %+v, %v", c, err)
	}
	is(t, file, "", "home")
	if _, err := file.Remove("work"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("removed twice: %v", err)
	}
	is(t, file, "", "home")
}

func TestALoginOfTheVersionBeforeIsTheDefaultContext(t *testing.T) {
	file := login.File(filepath.Join(t.TempDir(), "login.json"))
	before := `{"url": "https://cloud.example", "token": "secret", "project": "lab"}`
	if err := os.WriteFile(string(file), []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	is(t, file, login.Default, login.Default)
	if err := file.Put("work", login.Context{URL: "https://work.example"}); err != nil {
		t.Fatal(err)
	}
	is(t, file, "work", login.Default, "work")
	if c, err := file.Context(login.Default); err != nil || c.Token != "secret" || c.Project != "lab" {
		t.Errorf("it is %+v, %v", c, err)
	}
}

func TestWritersLoseNoContext(t *testing.T) {
	file := kept(t)
	var names []string
	var all sync.WaitGroup
	for i := range 20 {
		name := fmt.Sprintf("c%02d", i)
		names = append(names, name)
		all.Go(func() {
			if err := file.Put(name, login.Context{URL: "https://" + name}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	now, err := file.Read()
	if err != nil || !slices.Equal(now.Names(), names) {
		t.Errorf("there are %q, %v", now.Names(), err)
	}
	info, err := os.Stat(string(file))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

func TestWhatOthersMayReadIsClosedByTheNextChange(t *testing.T) {
	file := kept(t, "home", "work")
	if err := os.Chmod(string(file), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Read(); croft.KindOf(err) != croft.Invalid {
		t.Errorf("read with %v", err)
	}
	if _, err := file.Remove("work"); err != nil {
		t.Error(err)
	}
	is(t, file, "", "home")
}

func TestNamesOfContexts(t *testing.T) {
	file := kept(t)
	for name, good := range map[string]bool{"a": true, "work-2.eu_west": true, "": false, "a/b": false, "..": false,
		"-x": false, "x.": false, "a b": false, "\x00": false, strings.Repeat("x", 64): false, "é": false} {
		err := file.Put(name, login.Context{URL: "https://x"})
		if good && err != nil || !good && croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestARenewalKeepsWhatOthersWrote checks that a login or logout during a renewal is not overwritten.
func TestARenewalKeepsWhatOthersWrote(t *testing.T) {
	for name, change := range map[string]func(login.File) error{
		"another login": func(f login.File) error { return f.Put("work", login.Context{URL: "https://new.example"}) },
		"a logout":      func(f login.File) error { _, err := f.Remove("work"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			i := oidctest.Start(t)
			i.Life = 10 * time.Second // renewed at once
			file := logIn(t, i)
			i.Life = time.Hour
			i.Asked = func() {
				if err := change(file); err != nil {
					t.Error(err)
				}
			}
			if token, err := file.Token(t.Context(), "work"); err != nil || token == "" {
				t.Errorf("renewed: %q, %v", token, err)
			}
			all, err := file.Read()
			if c, there := all.Contexts["work"]; err != nil || there && c.URL != "https://new.example" {
				t.Errorf("kept is %+v, %v", c, err)
			}
		})
	}
}
