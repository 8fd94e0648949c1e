package pool_test

import (
	"strings"
	"testing"
	"time"

	"croft"
	"croft/pool"
)

// sized returns the sizes of pool p, and those of its file.
func (w *world) sized() (now, file [2]int) {
	w.Helper()
	all, err := w.Pools()
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range all {
		if p.Name() == "p" {
			file[0], file[1] = p.InFile()
			now = [2]int{p.Settings.Max, p.Settings.MaxPrealloc}
		}
	}
	return now, file
}

func (w *world) wantSizes(when string, now, file [2]int) {
	w.Helper()
	if gotNow, gotFile := w.sized(); gotNow != now || gotFile != file {
		w.Errorf("%s: the pool has max and warm %v, the file %v; want %v and %v", when, gotNow, gotFile, now, file)
	}
}

func to(n int) pool.Change { return pool.Change{To: n, Given: true} }

var fromFile = pool.Change{Given: true, Reset: true}

func TestASizeThatAnOperatorSetsOutlivesTheFileAndTheManager(t *testing.T) {
	with(t, one, func(w *world) {
		resize := func(max, warm pool.Change) {
			w.Helper()
			if err := w.Resize(w.Context(), "p", pool.Size{Max: max, MaxPrealloc: warm}); err != nil {
				w.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		resize(to(4), to(3))
		w.wantSizes("after the change", [2]int{4, 3}, [2]int{1, 1})
		if all, err := w.Pools(); err != nil || all[0].Counts.Free != 3 {
			w.Errorf("got %+v, %v, want 3 warm resources", all, err)
		}

		// another size: files of one size that are written in one tick of the disk's clock look the same
		w.write(strings.Replace(one, "max: 1", "max: 2", 1) + "  description: larger\n")
		time.Sleep(5 * time.Second)
		w.wantSizes("after a change of the file", [2]int{4, 3}, [2]int{2, 1})
		w.stop()
		w.Manager, w.stop = w.server("two")
		time.Sleep(20 * time.Second)
		w.wantSizes("after a restart", [2]int{4, 3}, [2]int{2, 1})

		resize(pool.Change{}, fromFile)
		w.wantSizes("after warm was returned to the file", [2]int{4, 1}, [2]int{2, 1})
		resize(fromFile, pool.Change{})
		w.wantSizes("after both were", [2]int{2, 1}, [2]int{2, 1})
		w.write(one)
		time.Sleep(5 * time.Second)
		w.wantSizes("after a further change of the file", [2]int{1, 1}, [2]int{1, 1})
	})
}

func TestASizeEndsWithTheProjectOfItsPool(t *testing.T) {
	with(t, one, func(w *world) {
		if err := w.Resize(w.Context(), "p", pool.Size{Max: to(9)}); err != nil {
			w.Fatal(err)
		}
		w.write(one + "  project: lab\n")
		time.Sleep(5 * time.Second)
		w.wantSizes("in another project", [2]int{1, 1}, [2]int{1, 1})
	})
}

// A file that lacks a pool in use keeps it for a minute with the settings of the last file.
func TestTheSizeOfAPoolThatIsMissingFromTheFileStays(t *testing.T) {
	with(t, one, func(w *world) {
		if err := w.Resize(w.Context(), "p", pool.Size{Max: to(3)}); err != nil {
			w.Fatal(err)
		}
		w.write(strings.Replace(one, "p:", "q:", 1))
		time.Sleep(10 * time.Second)
		w.write(one)
		time.Sleep(5 * time.Second)
		w.wantSizes("after the pool was missing", [2]int{3, 1}, [2]int{1, 1})
		if err := w.Resize(w.Context(), "p", pool.Size{Max: fromFile}); err != nil {
			w.Fatal(err)
		}
		w.wantSizes("after it was returned to the file", [2]int{1, 1}, [2]int{1, 1})
	})
}

func TestBadSizesAreRefused(t *testing.T) {
	with(t, one, func(w *world) {
		for _, c := range []struct {
			name string
			size pool.Size
			kind croft.Kind
			says string
		}{
			{"p", pool.Size{}, croft.Invalid, "changes nothing"},
			{"p", pool.Size{Max: to(-1)}, croft.Invalid, "a pool of -1 resources: use a number from 0"},
			{"p", pool.Size{MaxPrealloc: to(1 << 40)}, croft.Invalid, "use a number from 0 to 2147483647"},
			{"p", pool.Size{MaxPrealloc: to(2)}, croft.Invalid, "its max is 1: raise max too"},
			{"r", pool.Size{Max: to(1)}, croft.NotFound, "there is no pool r"},
		} {
			wantKind(w.T, w.Resize(w.Context(), pool.Name(c.name), c.size), c.kind, c.says)
		}
		w.wantSizes("after refusals", [2]int{1, 1}, [2]int{1, 1})
		w.write(strings.Replace(one, "tags: [a]", "tags_on_demand: [a]", 1))
		time.Sleep(5 * time.Second)
		wantKind(w.T, w.Resize(w.Context(), "p", pool.Size{MaxPrealloc: to(1)}), croft.Invalid, "keeps nothing warm")
	})
}
