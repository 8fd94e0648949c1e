package control_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"croft/control"
	"croft/control/controltest"
)

// TestTheReferenceDescribesEveryOperation reads the page without credentials, as a browser does.
func TestTheReferenceDescribesEveryOperation(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	got := newAsker(t, url).ask(t, "", http.MethodGet, "/docs/api", nil)
	if kind := got.header.Get("Content-Type"); got.status != 200 || kind != "text/html; charset=utf-8" {
		t.Fatalf("GET /docs/api: %d, %s", got.status, kind)
	}
	page := string(got.body)
	for _, o := range control.Operations() {
		if !strings.Contains(page, fmt.Sprintf("<details id=%q>", o.ID)) || !strings.Contains(page, o.Path) {
			t.Errorf("the page lacks %s", o.ID)
		}
	}
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, fmt.Sprintf("id=%q", link[1])) {
			t.Errorf("the page has a link to #%s, which it lacks", link[1])
		}
	}
}
