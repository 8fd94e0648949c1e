package machinetest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"croft"
	"croft/grid/machine"
	"croft/internal/testing/patient"
)

// files tests uploads into a directory on the machine.
func files(t *testing.T, m machine.Machine) {
	ctx := patient.Context(t)
	dir, err := machine.Output(ctx, m, nil, "mktemp", "-d")
	if err != nil {
		t.Fatal(err)
	}
	dir = strings.TrimSpace(dir)
	defer func() {
		if _, err := machine.Output(ctx, m, nil, "rm", "-rf", dir); err != nil {
			t.Error(err)
		}
	}()
	content := pattern(3 << 20)
	path := dir + "/it's a \\file\n"
	for _, text := range [][]byte{content, nil} {
		f := machine.File{Path: path, Mode: 0o640, Size: int64(len(text)), SHA256: digest(text)}
		if err := machine.Upload(ctx, m, f, bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		p, err := m.Start(ctx, machine.Command{Argv: []string{"cat", path}, Stdout: &got})
		if err == nil {
			err = p.Wait()
		}
		if err != nil || !bytes.Equal(got.Bytes(), text) {
			t.Errorf("%d of %d bytes, or others, %v", got.Len(), len(text), err)
		}
	}
	if mode, err := machine.Output(ctx, m, nil, "stat", "-c", "%a", path); mode != "640\n" || err != nil {
		t.Errorf("mode %q, %v", mode, err)
	}
	broken := errors.New("broken")
	good := machine.File{Path: path, Mode: 0o600, Size: 5, SHA256: digest([]byte("right"))}
	at := func(path string) machine.File { return machine.File{Path: path, Size: 5, SHA256: good.SHA256} }
	for name, c := range map[string]struct {
		f  machine.File
		in io.Reader
	}{
		"too few bytes":           {good, strings.NewReader("righ")},
		"too many bytes":          {good, strings.NewReader("rightly")},
		"other bytes":             {good, strings.NewReader("wrong")},
		"content that fails":      {good, io.MultiReader(strings.NewReader("righ"), &failing{broken})},
		"no such directory":       {at(dir + "/none/x"), strings.NewReader("right")},
		"a directory":             {at(dir), strings.NewReader("right")},
		"a path that is relative": {at("x"), strings.NewReader("right")},
	} {
		if err := machine.Upload(ctx, m, c.f, c.in); err == nil {
			t.Errorf("%s: no error", name)
		} else if name == "a path that is relative" && !errors.Is(err, croft.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
	// after failed content, the machine may still be removing the partial file
	patient.Until(t, "uploads that failed leave nothing but the old file", func() bool {
		left, err := machine.Output(ctx, m, nil, "sh", "-c", `ls -A "$1" | wc -l; wc -c <"$2"`, "sh", dir, path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(left), " ") == "2 0" // the one name has a line break
	})
}
