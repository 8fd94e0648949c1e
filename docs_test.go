package croft_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const architecture = "docs/ARCHITECTURE.md"

var updateReadme = flag.Bool("update-readme", false, "write the lines of Go into README.md")

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryDependencyHasItsReason(t *testing.T) {
	const page = "docs/contributors/dependencies.md"
	text := read(t, page)
	direct, _, _ := strings.Cut(read(t, "go.mod"), "\n)")
	_, direct, found := strings.Cut(direct, "require (")
	if !found {
		t.Fatal("go.mod does not begin with the direct requirements")
	}
	wanted := map[string]bool{}
	for line := range strings.Lines(direct) {
		if words := strings.Fields(line); len(words) >= 2 {
			wanted[words[0]] = true
			if !strings.Contains(text, "| `"+words[0]+"` |") {
				t.Errorf("%s gives no reason for %s", page, words[0])
			}
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z.]+\\.[a-z]+/[^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		if !wanted[m[1]] {
			t.Errorf("%s gives a reason for %s, which go.mod does not require", page, m[1])
		}
	}
}

func TestEveryRoomIsDescribed(t *testing.T) {
	const page = "docs/contributors/rooms.md"
	overview, text := read(t, architecture), read(t, page)
	for _, p := range packages(t) {
		room, inside := strings.CutPrefix(p.ImportPath, "croft/")
		top, _, _ := strings.Cut(room, "/")
		if inside && !strings.Contains(overview, "`"+top+"/`") {
			t.Errorf("%s does not describe %s/", architecture, top)
		}
		if inside && !strings.Contains(text, "- **`"+top+"/") {
			t.Errorf("%s does not describe %s/", page, top)
		}
	}
}

// TestEveryKeyIsDescribed compares the page with the list in keys.go, which is authoritative.
func TestEveryKeyIsDescribed(t *testing.T) {
	const page = "docs/contributors/keys.md"
	text := read(t, page)
	keys := regexp.MustCompile(`(?m)^//\t(/croft/\S+)`).FindAllStringSubmatch(read(t, "etcdstore/keys.go"), -1)
	if len(keys) == 0 {
		t.Fatal("etcdstore/keys.go lists no keys")
	}
	for _, k := range keys {
		if !strings.Contains(text, k[1]) {
			t.Errorf("%s does not list %s", page, k[1])
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "-z", "--", "*.md").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v (the tests want a git checkout)", err)
	}
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)
	for name := range strings.FieldsFuncSeq(string(out), func(r rune) bool { return r == 0 }) {
		if _, err := os.Stat(name); err != nil {
			continue // deleted and not committed yet
		}
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
	}
}

// TestTheDocumentsNameTestsAndFilesThatExist finds, in the code of documents, the names of tests and benchmarks, the
// files of tests, and the files whose paths start with a directory of the repository. The changelog names former ones.
func TestTheDocumentsNameTestsAndFilesThatExist(t *testing.T) {
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v (the tests want a git checkout)", err)
	}
	files := strings.Fields(string(out))
	known := map[string]bool{}
	for _, name := range files {
		known[filepath.Base(name)] = true
		text, err := os.ReadFile(name)
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			continue // deleted and not committed yet, or without tests
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`).FindAllSubmatch(text, -1) {
			known[string(m[1])] = true
		}
	}
	span := regexp.MustCompile("`([^`\\s]+)`")
	test := regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$|^[a-z0-9_]+(_test\.go|\.txtar)$`)
	path := regexp.MustCompile(`^[a-z0-9_.-]+(/[a-z0-9_.-]+)+\.(go|md|yaml|json|txtar|example)$`)
	run := regexp.MustCompile(`-run '?((?:Test|Fuzz|Benchmark)[\w|]+)`)
	tests := 0
	for _, name := range files {
		if !strings.HasSuffix(name, ".md") || name == "CHANGELOG.md" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for _, m := range span.FindAllStringSubmatch(string(text), -1) {
			word := m[1]
			if test.MatchString(word) {
				if tests++; !known[word] {
					t.Errorf("%s names %s, which does not exist", name, word)
				}
				continue
			}
			top, _, _ := strings.Cut(word, "/")
			if path.MatchString(word) && top != "build" && isDirectory(top) {
				if _, err := os.Stat(word); err != nil {
					t.Errorf("%s names %s: %v", name, word, err)
				}
			}
		}
		for _, m := range run.FindAllStringSubmatch(string(text), -1) {
			for _, prefix := range strings.Split(m[1], "|") {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(k string) bool {
					return strings.HasPrefix(k, prefix)
				}) {
					t.Errorf("%s runs %s, which does not exist", name, prefix)
				}
			}
		}
	}
	if tests < 200 {
		t.Errorf("the documents name %d tests", tests)
	}
}

func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// TestMakeTargetsInTheDocumentsExist: every documented make target works.
func TestMakeTargetsInTheDocumentsExist(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, name := range []string{"README.md", "docs/users/using.md", "docs/users/adding-a-host.md"} {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)(?:[A-Z]+=\\S+ )*make ([a-z]+)").FindAllStringSubmatch(read(t,
			name), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s names make %s, which does not exist", name, m[1])
			}
		}
	}
}

// TestTheWayIsAsDescribed checks the tables for new readers against the source: each path exists, and its directory
// declares the name next to it.
func TestTheWayIsAsDescribed(t *testing.T) {
	const page = "docs/contributors/finding-your-way.md"
	text := read(t, page)
	rows := regexp.MustCompile("(?m)^\\| [^|]+ \\| `([^`]+)` \\| (?:`([^`]+)` )?\\|$").FindAllStringSubmatch(text, -1)
	if len(rows) != strings.Count(text, "\n| ")-2 { // without the heads of two tables
		t.Errorf("%s: %d rows are understood", page, len(rows))
	}
	for _, row := range rows {
		if _, err := os.Stat(row[1]); err != nil {
			t.Errorf("%s: %v", page, err)
		} else if row[2] != "" && !declares(t, row[1], row[2]) {
			t.Errorf("%s: %s declares no %s", page, row[1], row[2])
		}
	}
	for _, path := range regexp.MustCompile("`([a-z]+/[a-z/]+)`").FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(path[1]); err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
}

// declares reports whether a directory declares a function, a type, or a method as Type.Method.
func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	pattern := `(?m)^(func|type) ` + name + `\b`
	if receiver, method, ok := strings.Cut(name, "."); ok {
		pattern = `(?m)^func \(\w+ \*?` + receiver + `\) ` + method + `\b`
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") && regexp.MustCompile(pattern).MatchString(read(t, file)) {
			return true
		}
	}
	return false
}

// TestTheReadmeGivesTheSize compares the lines of Go in README.md with the source, within 5 %. Tests, test/ and bench/
// do not count.
func TestTheReadmeGivesTheSize(t *testing.T) {
	kernel := []string{".", "compute", "schedule", "mdserver", "placement", "placementclient"}
	var inKernel, cloud, grid int
	for file, lines := range linesOfGo(t) {
		top, _, inside := strings.Cut(file, "/")
		if !inside {
			top = "."
		}
		switch {
		case top == "grid":
			grid += lines
		case slices.Contains(kernel, top):
			inKernel += lines
			cloud += lines
		default:
			cloud += lines
		}
	}
	text := read(t, "README.md")
	for _, part := range []struct {
		row   string
		lines int
	}{{"the kernel:", inKernel}, {"the cloud:", cloud}, {"the grid,", grid}} {
		row := regexp.MustCompile(`(?m)^(\| ` + part.row + `[^|]* \| )([0-9]+),([0-9]{3})( \|)$`)
		m := row.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("README.md has no row %q with its lines", part.row)
			continue
		}
		stated, err := strconv.Atoi(m[2] + m[3])
		if err != nil {
			t.Fatal(err)
		}
		if *updateReadme {
			hundreds := (part.lines + 50) / 100
			text = row.ReplaceAllString(text, fmt.Sprintf("${1}%d,%d00${4}", hundreds/10, hundreds%10))
		} else if math.Abs(float64(stated-part.lines)) > 0.05*float64(part.lines) {
			t.Errorf("README.md gives %d lines in the row %q, and the source has %d: go test . -run %s -update-readme", stated,
				part.row, part.lines, t.Name())
		}
	}
	if *updateReadme {
		if err := os.WriteFile("README.md", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// linesOfGo maps the files of the product, without tests, to their numbers of lines.
func linesOfGo(t *testing.T) map[string]int {
	t.Helper()
	files := map[string]int{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bench", "bin", "build", "test"}, path) || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files[path] = strings.Count(read(t, path), "\n")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
