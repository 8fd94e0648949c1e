package main

import (
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

var (
	formToken = regexp.MustCompile(`name="form" value="([^"]+)"`)
	sameText  = regexp.MustCompile(`(?s)<pre id="(same-[a-z]+)"[^>]*><code>(.*?)</code></pre>`)
)

// fill-form LINK FILE [FIELD=VALUE...] logs in to the page with a one-time link, has it check the form for a new
// instance, and writes each text that makes the same request into a file: same-command, same-call, same-tofu. The lines
// of FILE are fields with values as Go quotes them.
func fillForm(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: fill-form LINK FILE [FIELD=VALUE...]")
	}
	at, err := url.Parse(args[0])
	ts.Check(err)
	jar, err := cookiejar.New(nil)
	ts.Check(err)
	read := func(answer *http.Response, err error) string {
		ts.Check(err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		ts.Check(err)
		if answer.StatusCode != http.StatusOK {
			ts.Fatalf("%s: %s\n%s", answer.Request.URL, answer.Status, text)
		}
		return string(text)
	}
	browser := &http.Client{Jar: jar}
	read(browser.Get(args[0]))
	root := at.Scheme + "://" + at.Host + "/ui/instances/new"
	fields := url.Values{}
	for line := range strings.Lines(ts.ReadFile(args[1])) {
		name, quoted, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := strconv.Unquote(quoted)
		ts.Check(err)
		fields.Add(name, value)
	}
	for _, arg := range args[2:] {
		name, value, _ := strings.Cut(arg, "=")
		fields.Set(name, value)
	}
	fields.Set("form", formToken.FindStringSubmatch(read(browser.Get(root)))[1])
	checked := read(browser.PostForm(root+"/check", fields))
	all := sameText.FindAllStringSubmatch(checked, -1)
	if len(all) == 0 {
		ts.Fatalf("the page has no texts:\n%s", checked)
	}
	for _, found := range all {
		ts.Check(os.WriteFile(ts.MkAbs(found[1]), []byte(html.UnescapeString(found[2])), 0o600))
	}
}
