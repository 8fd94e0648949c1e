package page_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"croft/control/api"
)

func listsThings(t *testing.T, s served, _ string) {
	for _, token := range []string{"reader", "anna", "admin", "operator"} {
		v := s.login(t, token)
		for _, path := range []string{"volumes", "images", "backups", "pools", "clusters", "policies", "log", "peers"} {
			want := http.StatusOK
			if path == "peers" && token != "operator" {
				want = http.StatusForbidden
			}
			v.get(want, "/ui/"+path)
			if want == http.StatusOK {
				v.says(`aria-current="page"`)
			}
		}
	}
	v := s.login(t, "anna")
	v.get(http.StatusOK, "/ui/pools?project=anna")
	v.get(http.StatusNotFound, "/ui/clusters/nothing")
	v.get(http.StatusNotFound, "/ui/volumes?project=berta")
}

func removesThings(t *testing.T, s served, _ string) {
	if _, err := s.client(t, "anna").CreateVolume(t.Context(), api.NewVolume{Name: "data", SizeGB: 1}); err != nil {
		t.Fatal(err)
	}
	v := s.login(t, "anna")
	v.get(http.StatusOK, "/ui/volumes")
	v.says("<bdi>data</bdi>")
	v.get(http.StatusOK, "/ui/volumes/data/remove")
	v.send(http.StatusUnprocessableEntity, "/ui/volumes/data/remove", url.Values{"typed": {"dat"}})
	v.says("type data to confirm")
	reader := s.login(t, "reader")
	reader.get(http.StatusOK, "/ui/volumes")
	reader.says("<bdi>data</bdi>")
	reader.hides("/ui/volumes/data/remove")
	reader.send(http.StatusForbidden, "/ui/volumes/data/remove", url.Values{"typed": {"data"}})
	s.login(t, "berta").send(http.StatusNotFound, "/ui/volumes/data/remove", url.Values{"typed": {"data"}})
	v.send(http.StatusOK, "/ui/volumes/data/remove", url.Values{"typed": {"data"}})
	v.says("The volume is being removed.")
}

func triesPolicies(t *testing.T, s served, _ string) {
	const text = "take 1"
	v := s.login(t, "operator")
	v.get(http.StatusOK, "/ui/policies")
	v.send(http.StatusOK, "/ui/policies", url.Values{"name": {"own"}, "text": {text}, "do": {"try"}})
	v.says("Nothing was stored.")
	v.send(http.StatusBadRequest, "/ui/policies", url.Values{"name": {"own"}, "text": {"nonsense <b>"}, "do": {"try"}})
	v.hides("<b>")
	v.send(http.StatusOK, "/ui/policies", url.Values{"name": {"own"}, "text": {text}, "do": {"save"}})
	v.says("The policy is stored.")
	v.send(http.StatusPreconditionFailed, "/ui/policies", url.Values{"name": {"own"}, "text": {text}, "do": {"save"}})
	member := s.login(t, "anna")
	member.get(http.StatusOK, "/ui/policies?name=own")
	if strings.Contains(member.text, "<textarea") {
		t.Error("a member gets the form")
	}
	member.send(http.StatusForbidden, "/ui/policies", url.Values{"name": {"x"}, "text": {text}, "do": {"save"}})
}

func filtersTheLog(t *testing.T, s served, _ string) {
	v := s.login(t, "anna")
	v.get(http.StatusOK, "/ui/log?user=nobody")
	v.says("No action matches")
	v.get(http.StatusBadRequest, "/ui/log?since=yesterday")
	v.get(http.StatusOK, "/ui/log?object=instance/web&since=2020-01-01")
}
