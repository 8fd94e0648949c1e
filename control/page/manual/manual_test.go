package manual_test

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"croft/control/page/manual"
	"croft/docs"
)

// TestTheDocumentsForUsersHaveNoDeadLinks renders docs/users and docs/api.md.
func TestTheDocumentsForUsersHaveNoDeadLinks(t *testing.T) {
	t.Parallel()
	all, err := manual.Render(docs.Files, "/help", "docs")
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for name, d := range all {
		if d.Title == "" {
			t.Errorf("%s has no title", name)
		}
		if strings.Contains(string(d.Body), "raw HTML omitted") {
			t.Errorf("%s has HTML, which is not shown: write it as code", name)
		}
		if strings.Contains(string(d.Body), " style=") {
			t.Errorf("%s has styles, which the page forbids", name)
		}
		for _, m := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(string(d.Body), -1) {
			u, err := url.Parse(html.UnescapeString(m[1]))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if u.IsAbs() {
				if u.Scheme != "https" && u.Scheme != "http" {
					t.Errorf("%s links to %s", name, u)
				}
				continue
			}
			links++
			to := name
			if u.Path == "/help" {
				to = manual.Index
			} else if u.Path != "" {
				var inside bool
				if to, inside = strings.CutPrefix(u.Path, "/help/"); !inside {
					t.Errorf("%s links to %s, which is not served", name, u)
					continue
				}
			}
			if other, is := all[to]; !is {
				t.Errorf("%s links to %s, which does not exist", name, u)
			} else if u.Fragment != "" && !other.Has(u.Fragment) {
				t.Errorf("%s links to %s, and %s has no such heading", name, u, to)
			}
		}
	}
	if len(all) < 30 || links < 200 {
		t.Errorf("%d documents with %d links are rendered", len(all), links)
	}
}

func TestADocumentIsRenderedAsOnGitHub(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	all, err := manual.Render(fstest.MapFS{
		"users/README.md": file("# Index\n[one](one.md#the-first) [api](../api.md)"),
		"api.md":          file("# API\n[index](users/README.md)"),
		"users/one.md": file("# One\n## The `first`, [of](x.md) *two*!\n## Twice\n## Twice\n### snake_case & Umlaut Ü\n" +
			"[here](#twice-1) [a `b`](../../grid/x.md#y) [far](https://example.org/a?b#c) <script>alert(1)</script>\n\n" +
			"| | n |\n|---|--:|\n| a | `<pre>` |\n\n    code\n\n[bad](javascript:alert(1))"),
	}, "/ui/docs", "docs")
	if err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{
		"README": {`href="/ui/docs/one#the-first"`, `href="/ui/docs/api"`},
		"api":    {`href="/ui/docs"`},
		"one": {`<h2 id="the-first-of-two">`, `<h2 id="twice">`, `<h2 id="twice-1">`, `<h3 id="snake_case--umlaut-ü">`,
			`href="#twice-1"`, "a <code>b</code> (<code>grid/x.md</code> in the source)", `href="https://example.org/a?b#c"`,
			`aria-label="Table"><table>`, `<td></td>`, `<td align="right"><code>&lt;pre&gt;</code></td>`,
			`<pre tabindex="0"><code>code`},
	} {
		for _, want := range wants {
			if !strings.Contains(string(all[name].Body), want) {
				t.Errorf("%s has no %s:\n%s", name, want, all[name].Body)
			}
		}
	}
	one := all["one"]
	for _, never := range []string{"<script", "javascript:", "style="} {
		if strings.Contains(string(one.Body), never) {
			t.Errorf("the document has %s:\n%s", never, one.Body)
		}
	}
	if one.Title != "One" || len(one.Sections) != 4 || one.Sections[0].Title != "The first, of two!" {
		t.Errorf("the document is %q with the sections %v", one.Title, one.Sections)
	}
}
