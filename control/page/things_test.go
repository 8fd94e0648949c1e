package page_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"croft"
	"croft/control/api"
	"croft/internal/testing/patient"
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

func showsFetchedImages(t *testing.T, s served, _ string) {
	if err := s.cloud.AddHost(t.Context(), "fetches", 2); err != nil {
		t.Fatal(err)
	}
	var waiting []api.Instance
	for _, name := range []string{"waits1", "waits2"} {
		waiting = append(waiting, s.create(t, "operator", name, func(in *api.NewInstance) {
			in.Project, in.Wait, in.Image, in.Near = "anna", "", "/slow.qcow2", []string{"fetches"}
		}))
	}
	client := s.client(t, "operator")
	for n, i := range waiting {
		named := api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: string(i.ID)}}
		patient.Until(t, "the image is fetched", func() bool {
			now, err := client.GetInstance(t.Context(), named)
			if err != nil {
				t.Fatal(err)
			}
			i = now
			return now.State == string(croft.StateFetching)
		})
		seen := croft.Observation{Instance: i.ID, Host: s.hostCalled(t, "fetches").ID, State: croft.StateFetching,
			Generation: i.Generation, Progress: &croft.Progress{Done: int64(n+1) << 20, Total: 8 << 20}}
		if err := s.cloud.Store.Orders.Observe(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
	}
	v := s.login(t, "operator")
	patient.Until(t, "the page has the progress", func() bool {
		v.get(http.StatusOK, "/ui/images")
		return strings.Contains(v.text, "2 MiB of 8 MiB")
	})
	v.says(`<progress max="8388608" value="2097152"`)
	v.says("<td data-label=\"Host\"><bdi>fetches</bdi></td>")
	v.says("2 instances")
	v.hides("1 MiB of 8 MiB") // both wait for one download
	v = s.login(t, "anna")
	v.get(http.StatusOK, "/ui/images")
	v.says("1 MiB of 8 MiB")
	v.says("2 MiB of 8 MiB")
	v.says("<bdi>waits1</bdi>")
	v.hides("fetches")
	v = s.login(t, "berta")
	v.get(http.StatusOK, "/ui/images")
	v.hides("of 8 MiB")
	for _, i := range waiting {
		gone := api.InstanceRemoval{InstanceChange: api.InstanceChange{InstanceNamed: api.InstanceNamed{
			ID: string(i.ID)}}}
		if _, err := client.DestroyInstance(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
	}
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
