package control

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"croft"
	"croft/control/api"
)

// A client resumes after the last id that it received. A client that was cut off within a revision has to receive all
// of that revision again.
func TestAnEventHasAnIDOnlyOnceAllOfItsRevisionIsSent(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	e := &events{w: answer, control: http.NewResponseController(answer)}
	show := func(c croft.Change) api.Change { return api.Change{Instance: api.Instance{ID: c.Instance}} }
	if err := e.changes([]croft.Change{{Revision: 11, Instance: "a"}, {Revision: 11, Instance: "b"},
		{Revision: 11, Instance: "c"}, {Revision: 12, Instance: "d"}}, show); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`id: \d+|"id":"."`).FindAllString(answer.Body.String(), -1)
	want := []string{`"id":"a"`, `"id":"b"`, "id: 11", `"id":"c"`, "id: 12", `"id":"d"`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// Before, each stream read the project of each change, so a change cost as many reads as there were streams.
func TestAChangeCostsOneReadOfItsProjectForAllStreams(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	o := &owners{read: func(context.Context, croft.Project) (croft.ProjectID, int64, error) {
		n := reads.Add(1)
		return "anna", n, nil
	}}
	const streams, changes = 200, 10
	for revision := range int64(changes) {
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				if id, born, err := o.of(t.Context(), "anna", revision+1); id != "anna" || born < 1 || err != nil {
					t.Errorf("got %s, %d, %v", id, born, err)
				}
			})
		}
		all.Wait()
	}
	if got := reads.Load(); got != changes {
		t.Errorf("%d streams and %d changes cost %d reads", streams, changes, got)
	}
	if _, born, _ := o.of(t.Context(), "anna", changes-1); born != changes {
		t.Errorf("a stream that is late gets read %d, want the latest", born)
	}
	o.forget()
	if _, born, _ := o.of(t.Context(), "anna", 1); born != changes+1 {
		t.Errorf("after the feed began again, a stream gets read %d", born)
	}
}

func TestAFailedReadOfAProjectIsTriedAgainAndDoesNotEndWithOneStream(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	o := &owners{read: func(ctx context.Context, _ croft.Project) (croft.ProjectID, int64, error) {
		return "anna", 1, errors.Join(broken, ctx.Err())
	}}
	gone, end := context.WithCancel(t.Context())
	end()
	if _, _, err := o.of(gone, "anna", 1); !errors.Is(err, broken) || errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	broken = nil
	if id, _, err := o.of(t.Context(), "anna", 1); id != "anna" || err != nil {
		t.Errorf("the next try: got %s, %v", id, err)
	}
}
