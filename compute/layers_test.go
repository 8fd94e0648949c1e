package compute

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"croft"
)

// headers are the disks of a directory: each has a file below, by name.
type headers struct {
	ImageStore
	dir   string
	below map[string]string
}

func (h headers) Below(file string) (string, error) {
	below := h.below[filepath.Base(file)]
	if below != "" && !filepath.IsAbs(below) {
		below = filepath.Join(h.dir, below)
	}
	return below, nil
}

func TestTheTopmostFileOfADiskIsKnownOrNoneIsTaken(t *testing.T) {
	t.Parallel()
	const a, b = "disk.a.qcow2", "disk.b.qcow2"
	for _, c := range []struct {
		name  string
		below map[string]string // by file
		also  string            // a further file
		want  []string          // nil: refused
	}{
		{"no snapshot", map[string]string{diskFile: ""}, "", []string{diskFile}},
		{"above an image", map[string]string{diskFile: "base.raw"}, "console.log", []string{diskFile, "base.raw"}},
		{"two snapshots", map[string]string{diskFile: "base.qcow2", b: diskFile, a: b}, a + newSuffix,
			[]string{a, b, diskFile, "base.qcow2"}},
		{"a fork", map[string]string{diskFile: "", a: diskFile, b: diskFile}, "", nil},
		{"a circle above the disk", map[string]string{diskFile: a, a: b, b: a}, "", nil},
		{"another directory", map[string]string{diskFile: "/etc/disk.qcow2"}, "", nil},
		{"an image elsewhere", map[string]string{diskFile: "/etc/base.raw"}, "", nil},
		{"no disk", map[string]string{diskFile: "console.log"}, "", nil},
		{"a merge after which nothing was rebased", map[string]string{diskFile: "", a: diskFile, b: a},
			a + mergedSuffix, []string{b, a, diskFile}},
		{"a merge after which the overlay above was rebased", map[string]string{diskFile: "", a: diskFile, b: diskFile},
			a + mergedSuffix, []string{b, diskFile}},
		{"a merge whose overlay is removed", map[string]string{diskFile: "", b: diskFile}, a + mergedSuffix,
			[]string{b, diskFile}},
		{"a merge whose end is unknown", map[string]string{diskFile: "", a: diskFile}, a + mergedSuffix, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := []string{c.also}
			for file := range c.below {
				files = append(files, file)
			}
			for _, file := range files {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); file != "" && err != nil {
					t.Fatal(err)
				}
			}
			agent := Agent{Config: Config{Images: headers{dir: dir, below: c.below}}}
			layers, err := agent.topmost(dir)
			if c.want == nil {
				if croft.KindOf(err) != croft.Conflict {
					t.Errorf("got %v, %v, want a Conflict", layers, err)
				}
				return
			}
			if err != nil || len(layers) != len(c.want) {
				t.Fatalf("got %v, %v, want %v", layers, err, c.want)
			}
			for i, name := range c.want {
				if layers[i].Path != filepath.Join(dir, name) || layers[i].Shared != (i > 0 && name[:4] == baseFile) {
					t.Errorf("layer %d is %+v, want %s", i, layers[i], name)
				}
			}
		})
	}
}

func (h headers) Merge(context.Context, []Layer) error { return nil }

func (h headers) Rebase(_ context.Context, file string, below Layer) error {
	h.below[filepath.Base(file)] = filepath.Base(below.Path)
	return nil
}

// chain returns an agent with one volume, whose disk has these overlays of snapshots, the topmost last.
func chain(t *testing.T, overlays ...croft.VolumeID) (a *Agent, volume croft.VolumeID, dir string) {
	t.Helper()
	a, volume = &Agent{Config: Config{Dir: t.TempDir()}}, croft.NewVolumeID()
	dir = a.volumeDir(volume)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	below, last := map[string]string{}, ""
	for i := range len(overlays) + 1 {
		name := diskFile
		if i > 0 {
			name = overlayName(overlays[i-1])
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		below[name], last = last, name
	}
	a.Images = headers{dir: dir, below: below}
	return a, volume, dir
}

func TestAMergeIntoALayerWhoseOwnMergeWasInterruptedMakesItPartOfTheDisk(t *testing.T) {
	t.Parallel()
	older, newer := croft.NewVolumeID(), croft.NewVolumeID()
	a, _, dir := chain(t, older, newer)
	below, above := filepath.Join(dir, overlayName(older)), filepath.Join(dir, overlayName(newer))
	if err := os.WriteFile(below+mergedSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, overlay := range []string{above, below} {
		layers, err := a.topmost(dir)
		if err != nil || layers[0].Path != overlay {
			t.Fatalf("the layers are %v, %v, want %s first", layers, err, overlay)
		}
		if err := a.mergeOff(t.Context(), layers, overlay, nil); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("the files are %v, %v, want one", files, err)
	}
}

func TestASnapshotIsTakenOutOfAVolumeInTurnWithTheOthers(t *testing.T) {
	t.Parallel()
	id := croft.NewVolumeID()
	a, volume, dir := chain(t, id)
	s := croft.Volume{ID: id, Snapshot: &croft.Snapshot{Instance: croft.NewInstanceID(),
		Volumes: []croft.VolumeID{volume}}}
	end, err := a.volumeTurns.Take(t.Context(), volume)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.dissolve(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("while another has the volume: %v, want a wait", err)
	}
	if layers, err := a.topmost(dir); err != nil || len(layers) != 2 {
		t.Errorf("the layers are %v, %v, want two", layers, err)
	}
}
