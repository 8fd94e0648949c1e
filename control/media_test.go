package control_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"croft/control"
	"croft/control/api"
	"croft/control/controltest"
)

// TestEveryAnswerOfItsOwnHasTheTypeOfTheDocument asks each operation that writes its answer itself. The asker compares
// all other answers.
func TestEveryAnswerOfItsOwnHasTheTypeOfTheDocument(t *testing.T) {
	t.Parallel()
	a, names := crowd(t)
	seen := map[string]any{"name": "seen", "image": "debian-12", "query": "VCPU:1,MEMORY_MB:64,DISK_GB:1",
		"machine": map[string]any{"display": "vnc"}}
	a.ask(t, "anna", http.MethodPost, "/v1/instances?wait=running", seen).want(t, http.StatusOK, "")
	for _, o := range control.Operations() {
		if o.Out != nil {
			continue
		}
		t.Run(o.ID, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			path := names.Replace(o.Path)
			if strings.HasSuffix(o.ID, "Screen") {
				path = strings.Replace(o.Path, "{id}", "seen", 1) + "?project=anna"
			}
			header := http.Header{"Authorization": {"Bearer operator"}}
			if o.Status == http.StatusSwitchingProtocols {
				socket, got, err := websocket.Dial(ctx, a.url+path, &websocket.DialOptions{HTTPHeader: header})
				if err != nil {
					t.Fatal(err)
				}
				_ = socket.CloseNow()
				a.checkStart(t, got)
				return
			}
			r, err := http.NewRequestWithContext(ctx, o.Method, a.url+path, strings.NewReader(`{"image":"debian-12"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = header
			got, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			if got.StatusCode != http.StatusOK {
				text, _ := io.ReadAll(got.Body)
				t.Fatalf("%d %s", got.StatusCode, text)
			}
			a.checkStart(t, got)
		})
	}
}

// checkStart compares the status and the type of an answer, whose body may have no end, with the document.
func (a asker) checkStart(t *testing.T, got *http.Response) {
	t.Helper()
	route, _, err := a.router.FindRoute(got.Request)
	if err != nil {
		t.Fatal(err)
	}
	documented := route.Operation.Responses.Status(got.StatusCode)
	if documented == nil {
		t.Fatalf("the document lacks the answer %d", got.StatusCode)
	}
	checkMedia(t, got.Request, documented, answer{header: got.Header})
}

// TestAnImportIsTakenAsTheDocumentHasIt sends the export of one cloud to another one.
func TestAnImportIsTakenAsTheDocumentHasIt(t *testing.T) {
	t.Parallel()
	from, _ := crowd(t)
	export := from.ask(t, "operator", http.MethodGet, "/v1/export", nil)
	export.want(t, http.StatusOK, "")
	url, _ := controltest.Start(t)
	to := newAsker(t, url)
	for _, status := range []int{http.StatusCreated, http.StatusOK} { // the same again changes nothing
		to.askWith(t, "operator", http.MethodPost, "/v1/import?as=other", string(export.body), "Content-Type",
			"application/octet-stream").want(t, status, "")
	}
}

// TestOperationsDeclareTheAnswersThatTheyWrite keeps a type from being left out.
func TestOperationsDeclareTheAnswersThatTheyWrite(t *testing.T) {
	t.Parallel()
	for _, o := range control.Operations() {
		own := o.Out == nil && o.Status != http.StatusSwitchingProtocols
		if own != (o.Media != "") {
			t.Errorf("%s: Media is for answers that the operation writes itself, and required for these", o.ID)
		}
		if (o.Media == "text/event-stream") != (o.Events != nil) {
			t.Errorf("%s: Events is for answers of server-sent events, and required for these", o.ID)
		}
	}
}

// TestEveryNumberSaysHowLargeItIs: generators of clients take an integer without a format for one of 32 bits.
func TestEveryNumberSaysHowLargeItIs(t *testing.T) {
	t.Parallel()
	var check func(at string, value any)
	check = func(at string, value any) {
		switch v := value.(type) {
		case map[string]any:
			if v["format"] == nil && (v["type"] == "integer" || v["type"] == "number") {
				t.Errorf("%s is a number without a format", at)
			}
			for name, of := range v {
				check(at+"/"+name, of)
			}
		case []any:
			for i, of := range v {
				check(fmt.Sprintf("%s/%d", at, i), of)
			}
		}
	}
	check("", controltest.Tree())
}

// TestEverySchemaThatTheDocumentNamesIsInIt: texts name schemas too.
func TestEverySchemaThatTheDocumentNamesIsInIt(t *testing.T) {
	t.Parallel()
	schemas := controltest.Tree()["components"].(map[string]any)["schemas"].(map[string]any)
	for _, found := range regexp.MustCompile(`the schema ([A-Z]\w*)`).FindAllSubmatch(api.Document(), -1) {
		if schemas[string(found[1])] == nil {
			t.Errorf("the document says %q, and has no such schema", bytes.TrimSpace(found[0]))
		}
	}
}

// TestTheDocumentNeedsNoGoSource: its readers do not have the functions and values that comments refer to.
func TestTheDocumentNeedsNoGoSource(t *testing.T) {
	t.Parallel()
	for _, found := range regexp.MustCompile(`"description": ".*(\bnil\b|\b[a-z]+\.[A-Z]\w|\bParse[A-Z]).*"`).
		FindAll(api.Document(), -1) {
		t.Errorf("the document refers to Go's source: %s", found)
	}
}
