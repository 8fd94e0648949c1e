package page_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/control/api"
	"croft/hosts"
	"croft/internal/testing/patient"
)

// hostCalled returns the host of a name.
func (s served) hostCalled(t *testing.T, name string) api.Host {
	t.Helper()
	h, err := s.client(t, "operator").GetHost(t.Context(), api.HostNamed{ID: name})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func hidesHosts(t *testing.T, s served, _ string) {
	h := s.hostCalled(t, "host1")
	for _, token := range []string{"anna", "reader", "admin"} {
		v := s.login(t, token)
		v.hides(`href="/ui/hosts"`)
		for _, path := range []string{"/ui/hosts", "/ui/hosts/host1", "/ui/hosts/host1/drain", "/ui/audit"} {
			v.get(http.StatusForbidden, path)
			v.hides(string(h.ID))
		}
		for _, path := range []string{"/ui/hosts/host1/drain", "/ui/hosts/host1/remove", "/ui/hosts/host1/fence",
			"/ui/hosts/host1/images", "/ui/audit"} {
			v.send(http.StatusForbidden, path, url.Values{"typed": {"host1"}, "how": {"confirmed"}})
		}
	}
	if now := s.hostCalled(t, "host1"); now.Drained || now.ID != h.ID {
		t.Errorf("the host is now %+v", now)
	}
}

func drainsAHost(t *testing.T, s served, _ string) {
	if err := s.cloud.AddHost(t.Context(), "draining", 4); err != nil {
		t.Fatal(err)
	}
	i := s.create(t, "operator", "moves", func(in *api.NewInstance) {
		in.Project, in.Ephemeral, in.Near = "anna", true, []string{"draining"}
	})
	v := s.login(t, "operator")
	v.get(http.StatusOK, "/ui/hosts")
	v.says(">draining<")
	at := "/ui/hosts/" + string(s.hostCalled(t, "draining").ID)
	v.get(http.StatusOK, at)
	v.says(">moves<")
	v.says(at + "/drain")
	v.hides(at + "/enable")
	v.get(http.StatusOK, at+"/drain")
	v.says("Move its 1 instance to other hosts, too")
	v.send(http.StatusOK, at+"/drain", url.Values{"move": {"yes"}})
	patient.Until(t, "the instance is on the other host", func() bool {
		v.get(http.StatusOK, at)
		return strings.Contains(v.text, "the host is empty")
	})
	v.get(http.StatusOK, at)
	v.says("drained</span>")
	v.send(http.StatusOK, at+"/enable", nil)
	v.says("New instances come to the host again.")
	v.says("ready</span>")
	if h := s.hostCalled(t, "draining"); h.Drained {
		t.Error("it is still drained")
	}
	v.send(http.StatusOK, "/ui/instances/"+string(i.ID)+"/remove?project=anna", url.Values{"typed": {"moves"}})
}

func forgetsAHost(t *testing.T, s served, _ string) {
	if err := s.cloud.AddHost(t.Context(), "leaving", 1); err != nil {
		t.Fatal(err)
	}
	at := "/ui/hosts/" + string(s.hostCalled(t, "leaving").ID)
	v := s.login(t, "operator")
	v.get(http.StatusOK, at+"/remove")
	v.says("Although it is ready")
	v.send(http.StatusUnprocessableEntity, at+"/remove", url.Values{"typed": {"host1"}})
	v.says("type leaving to confirm")
	v.send(http.StatusConflict, at+"/remove", url.Values{"typed": {"leaving"}})
	v.says("alive")
	v.send(http.StatusUnprocessableEntity, at+"/fence", nil)
	v.says("type leaving to confirm")
	v.send(http.StatusBadRequest, at+"/fence", url.Values{"typed": {"leaving"}})
	v.says("choose how it is known")
	v.send(http.StatusConflict, at+"/fence", url.Values{"typed": {"leaving"}, "how": {"confirmed"}})
	v.says("so it is not off")
	if err := s.cloud.StopHost(t.Context(), "leaving"); err != nil {
		t.Fatal(err)
	}
	v.get(http.StatusOK, "/ui/hosts?state=silent")
	v.says(">leaving<")
	v.hides(">host1<")
	v.send(http.StatusOK, at+"/fence", url.Values{"typed": {"leaving"}, "how": {"confirmed"}})
	v.says("declared dead")
	v.says("dead</span>")
	v.send(http.StatusOK, at+"/remove", url.Values{"typed": {"leaving"}})
	v.says("The host is forgotten.")
	v.get(http.StatusNotFound, at)
}

func comparesRecords(t *testing.T, s served, _ string) {
	v := s.login(t, "operator")
	v.get(http.StatusOK, "/ui/audit")
	v.says("</html>")
	v.send(http.StatusOK, "/ui/audit", nil)
	v.says("</html>")
	v.hides("cannot be")
}

// manyHosts is an API whose cloud has many hosts: those of the cloud behind it, as often as wanted.
func manyHosts(under http.Handler, n int) http.Handler {
	list := api.HostList{}
	for i := range n {
		h := hosts.Host{Host: croft.Host{ID: croft.NewHostID(), Name: fmt.Sprintf("host%04d", i), Alive: i%97 != 5,
			Drained: i%41 == 7, Location: fmt.Sprintf("site%d/row%d/rack%d", i/2000+1, i%2000/400+1, i%400/40+1)},
			Offered: croft.Resources{"VCPU": 64, "MEMORY_MB": 256 << 10, "DISK_GB": 2000},
			Claimed: croft.Resources{"VCPU": int64(i * 7 % 65), "MEMORY_MB": int64(i*13%257) << 10,
				"DISK_GB": int64(i * 31 % 1500)}, Count: i % 9}
		if !h.Alive {
			h.Seen = time.Now().Add(-time.Hour)
		}
		list.Hosts = append(list.Hosts, api.HostOf(h))
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/v1/hosts" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text)
			return
		}
		under.ServeHTTP(w, r)
	})
}

// crowded returns the page of the same cloud with many hosts. It has the same sessions.
func (s served) crowded(t *testing.T, n int) served {
	t.Helper()
	return s.over(t, manyHosts(s.proxy, n))
}

func drawsManyHosts(t *testing.T, s served, _ string) {
	v := s.crowded(t, 5000).login(t, "operator")
	begun := time.Now()
	answer, err := v.http.Do(v.request(http.MethodGet, "/ui/hosts", "")) // returns with the first bytes
	if err != nil {
		t.Fatal(err)
	}
	first := time.Since(begun)
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("5,000 hosts: the first byte after %s, all %d bytes after %s", first, len(text), time.Since(begun))
	v.text = string(text)
	v.says("rack10: 40 hosts")
	v.says("<strong>5000</strong>")
	if size := len(v.text); size > 800<<10 {
		t.Errorf("the picture of 5,000 hosts has %d bytes", size)
	}
	v.get(http.StatusOK, "/ui/hosts?at=site1/row2/rack3")
	v.says("<strong>40</strong>")
	v.says(`class="tile ready"`)
	v.hides("rack10")
	v = s.crowded(t, 120).login(t, "operator")
	seen, next := 0, "/ui/hosts?at=site1"
	for next != "" {
		v.get(http.StatusOK, next)
		seen += strings.Count(v.text, `<th scope="row" class="name"><a href="/ui/hosts/`)
		_, rest, more := strings.Cut(v.text, `rel="next"`)
		next = ""
		if more && rest != "" {
			before, _, _ := strings.Cut(v.text, `" rel="next"`)
			next = strings.ReplaceAll(before[strings.LastIndex(before, `"`)+1:], "&amp;", "&")
		}
	}
	if seen != 120 {
		t.Errorf("the pages of the table have %d hosts, want 120", seen)
	}
}
