package control_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"croft/control/api"
	"croft/control/controltest"
)

// The UUIDs of locations in Placement follow from the partition and the location's name, so every tenant can compute
// them.
func TestATenantLearnsNoPlacesByMemberOf(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	known := uuid.NewSHA1(uuid.MustParse(string(c.Store.Partition())), []byte("location/site1")).String()
	var first string
	for _, id := range []string{known, uuid.NewString()} {
		for _, term := range []string{"member_of=" + id, "member_of=!" + id, "member_of=in:" + id + "," + known} {
			for _, path := range []string{"/v1/candidates", "/v1/instances", "/v1/claims"} {
				body := wanted("query", "resources=VCPU:1,MEMORY_MB:32,DISK_GB:1&"+term)
				if path == "/v1/claims" {
					body["hold"] = 60
				}
				got := a.ask(t, "anna", http.MethodPost, path, body)
				got.want(t, http.StatusForbidden, api.PropertyForbidden)
				if first == "" {
					first = string(got.body)
				}
				if string(got.body) != first {
					t.Errorf("%s with %s is told from another one: %s", path, term, got.body)
				}
			}
		}
	}
	a.ask(t, "operator", http.MethodPost, "/v1/candidates", wanted("query",
		"resources=VCPU:1,MEMORY_MB:32,DISK_GB:1&member_of="+known)).want(t, http.StatusOK, "")
}

func TestReadersSeeNoMembersButThemselves(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	made := a.ask(t, "operator", http.MethodPost, "/v1/projects", map[string]string{"name": "berta"})
	made.want(t, http.StatusCreated, "")
	a.askWith(t, "operator", http.MethodPut, "/v1/projects/berta/members", map[string]any{"members": map[string]string{
		"berta": "member", "bertil": "reader"}}, "If-Match", made.header.Get("ETag")).want(t, http.StatusOK, "")
	for as, want := range map[string]int{"bertil": 1, "berta": 2, "birgit": 2, "operator": 2} {
		for _, path := range []string{"/v1/projects/berta", "/v1/projects"} {
			var got struct {
				Members  map[string]string
				Projects []struct{ Members map[string]string }
			}
			a.ask(t, as, http.MethodGet, path, nil).into(t, &got)
			n := len(got.Members)
			for _, p := range got.Projects {
				n += len(p.Members)
			}
			if n != want {
				t.Errorf("%s tells %s of %d members, want %d: %+v", path, as, n, want, got)
			}
		}
	}
}
