package instances

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"croft"
	"croft/cli/args"
	"croft/client"
	"croft/control/api"
)

// answers gives one answer after the other.
type answers []string

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body, _ := strings.Cut((*a)[0], " ")
	*a = (*a)[1:]
	kind := "application/json"
	code := http.StatusOK
	if status != "200" {
		kind, code = "application/problem+json", http.StatusConflict
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {kind}}, Request: r,
		Body: io.NopCloser(strings.NewReader(body))}, nil
}

func TestAnInstanceThatAnEarlierRequestIsSchedulingIsNotReportedYet(t *testing.T) {
	const scheduling = `200 {"id":"36b8f84d-df4e-4d94-b662-bcde71a8764f","name":"web","state":"scheduling"}`
	for name, c := range map[string]struct {
		then string
		kind croft.Kind
	}{
		"then it is scheduled": {
			then: `200 {"id":"36b8f84d-df4e-4d94-b662-bcde71a8764f","name":"web","state":"ordered"}`},
		"then nothing fits": {`409 {"type":"about:blank","title":"Conflict","status":409,"code":"no_capacity",` +
			`"detail":"nothing fits"}`, croft.NoCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			left := answers{scheduling, scheduling, c.then}
			s := &session{&args.Client{Client: client.Inside(client.Within{Transport: &left})}}
			o := s.ask(t.Context(), api.ClaimRequest{})
			if len(left) > 0 || croft.KindOf(o.err) != c.kind || o.err == nil && o.made.State != "ordered" {
				t.Errorf("got %+v, %v; %d answers are left", o.made, o.err, len(left))
			}
		})
	}
}
