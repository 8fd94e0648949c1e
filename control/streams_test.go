package control

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"

	"croft"
)

// A client names the last id that it got. One that was cut off within a revision has to get all of that again.
func TestAnEventHasAnIDOnlyOnceAllOfItsRevisionIsSent(t *testing.T) {
	answer := httptest.NewRecorder()
	e := &events{w: answer, control: http.NewResponseController(answer)}
	if err := e.changes([]croft.Change{{Revision: 11, Instance: "a"}, {Revision: 11, Instance: "b"},
		{Revision: 11, Instance: "c"}, {Revision: 12, Instance: "d"}}); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`id: \d+|"instance":"."`).FindAllString(answer.Body.String(), -1)
	want := []string{`"instance":"a"`, `"instance":"b"`, "id: 11", `"instance":"c"`, "id: 12", `"instance":"d"`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
