package page

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRemediesLeadToPages checks the table of remedies against the views.
func TestRemediesLeadToPages(t *testing.T) {
	var patterns []*regexp.Regexp
	for _, v := range views() {
		if method, path, _ := strings.Cut(v.at, " "); method == "GET" {
			any := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`)
			patterns = append(patterns, regexp.MustCompile("^"+any+"$"))
		}
	}
	commands := map[string]bool{}
	for _, r := range remedies {
		if commands[r.Command] {
			t.Errorf("%s is there twice", r.Command)
		}
		commands[r.Command] = true
		path, _, _ := strings.Cut(r.At, "#")
		path, _, _ = strings.Cut(path, "?")
		found := false
		for _, p := range patterns {
			found = found || p.MatchString(Root+path)
		}
		if !found {
			t.Errorf("%s leads to %s, where no page is", r.Command, r.At)
		}
		section, action, _ := strings.Cut(strings.TrimPrefix(path, "/instances/"), "/")
		if a, known := actionNamed(action); section == "{name}" && known && !a.Asks {
			t.Errorf("%s leads to %s, which has no page", r.Command, r.At)
		}
	}
}

// elsewhere are the beginnings of commands that errors name and the page does not have.
var elsewhere = []string{"croft serve", "croft up", "croft etcd", "croft doctor", "croft pool",
	"croft cluster credential key"}

// TestErrorsNameCommandsThatThePageKnows reads the sentences of the packages behind the API.
func TestErrorsNameCommandsThatThePageKnows(t *testing.T) {
	named := regexp.MustCompile("`((?:croft|schedule) [a-z][^`]*)`")
	seen := 0
	for _, dir := range []string{"schedule", "hosts", "tenant", "etcdstore", "control"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "control/page") || strings.Contains(path, "etcdserver") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(strings.TrimSpace(line), "//") || !strings.Contains(line, `"`) {
					continue
				}
				for _, found := range named.FindAllStringSubmatch(line, -1) {
					seen++
					known := false
					for _, r := range remedies {
						known = known || strings.HasPrefix(found[1], r.Command)
					}
					for _, other := range elsewhere {
						known = known || strings.HasPrefix(found[1], other)
					}
					if !known {
						t.Errorf("%s names %s: say in remedies where the page has it", path, found[1])
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 40 {
		t.Errorf("only %d commands were found", seen)
	}
}
