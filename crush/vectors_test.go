package crush

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// vectors is the directory with crushtool's results for our maps.
const vectors = "../../shared/crush-vectors"

// vectorsOf returns the directories with vectors, each with a map and the results for it.
func vectorsOf(t testing.TB) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(vectors, "*", "map.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Skipf("crushtool's mappings are not in %s", vectors)
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

func readMap(t testing.TB, path string) *Map {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := ReadText(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func compiled(t testing.TB, m *Map) *Program {
	t.Helper()
	p, err := Compile(m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reweights parses "4=0.5,9=0"; a dash: all are in.
func reweights(t testing.TB, p *Program, text string) Reweights {
	t.Helper()
	all := make(Reweights, p.Devices())
	for i := range all {
		all[i] = One
	}
	if text == "-" {
		return all
	}
	for _, one := range strings.Split(text, ",") {
		id, share, _ := strings.Cut(one, "=")
		n, err := strconv.Atoi(id)
		f, err2 := strconv.ParseFloat(share, 64)
		if err != nil || err2 != nil {
			t.Fatal(one)
		}
		all[n] = WeightOf(f)
	}
	return all
}

func lineOf(x int, out []ID) string {
	ids := make([]string, len(out))
	for i, id := range out {
		ids[i] = strconv.Itoa(int(id))
	}
	return fmt.Sprintf("%d [%s]", x, strings.Join(ids, ","))
}

// TestVectors compares with crushtool. Its logarithm tables differ from ours, so one line in 6,000 may differ.
func TestVectors(t *testing.T) {
	lines, equal := 0, 0
	for _, dir := range vectorsOf(t) {
		p := compiled(t, readMap(t, filepath.Join(dir, "map.txt")))
		f, err := os.Open(filepath.Join(dir, "runs.tsv"))
		if err != nil {
			t.Fatal(err)
		}
		r := csv.NewReader(f)
		r.Comma = '\t'
		runs, err := r.ReadAll()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range runs[1:] {
			same, of := compareRun(t, p, filepath.Join(dir, run[0]), run)
			if of != 1000 || same < 998 {
				t.Errorf("%s/%s: %d lines of %d are crushtool's", dir, run[0], same, of)
			}
			lines, equal = lines+of, equal+same
		}
	}
	t.Logf("%d lines of %d are crushtool's", equal, lines)
	if equal*1000 < lines*999 {
		t.Errorf("%d lines of %d are crushtool's; want 99.9 %%", equal, lines)
	}
}

func compareRun(t *testing.T, p *Program, path string, run []string) (same, of int) {
	t.Helper()
	rule, err := strconv.Atoi(run[1])
	n, err2 := strconv.Atoi(run[2])
	f, err3 := os.Open(path)
	if err != nil || err2 != nil || err3 != nil {
		t.Fatal(err, err2, err3)
	}
	defer f.Close()
	m, weights := p.NewMapper(), reweights(t, p, run[3])
	for s := bufio.NewScanner(f); s.Scan(); of++ {
		got := lineOf(of, m.Map(rule, uint32(of), n, weights, nil))
		switch {
		case got == s.Text():
			same++
		case of-same < 3:
			t.Logf("%s: %s, and crushtool has %s", path, got, s.Text())
		}
	}
	return same, of
}
