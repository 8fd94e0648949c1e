package page_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"croft"
	"croft/control/api"
	"croft/control/page"
	"croft/control/page/session"
	"croft/internal/testing/browser"
	"croft/internal/testing/patient"
)

// end ends the session of a browser, which does not notice it.
func (v *visitor) end() {
	v.t.Helper()
	at, err := url.Parse(v.url)
	if err != nil {
		v.t.Fatal(err)
	}
	for _, cookie := range v.http.Jar.Cookies(at) {
		if secret, err := session.Parse(cookie.Value); err == nil {
			if err := v.links.End(v.t.Context(), secret); err != nil {
				v.t.Fatal(err)
			}
		}
	}
}

var hiddenForm = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// hidden returns the hidden fields of the last page.
func (v *visitor) hidden() url.Values {
	f := url.Values{}
	for _, found := range hiddenForm.FindAllStringSubmatch(v.text, -1) {
		f.Add(html.UnescapeString(found[1]), html.UnescapeString(found[2]))
	}
	return f
}

// returnsToTheForm logs in again where a session has ended: without scripts, the user returns to the form.
func returnsToTheForm(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	volumes := func() int {
		t.Helper()
		list, err := s.client(t, "anna").ListVolumes(t.Context(), api.InProject{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Volumes)
	}
	before := volumes()
	const text = "two\r\nlines \"<b>&amp;"
	v.get(http.StatusOK, "/ui/volumes/new")
	v.end()
	v.send(http.StatusUnauthorized, "/ui/volumes/new?project=anna", url.Values{"name": {text}, "size_gb": {"7"}})
	v.says("What you typed is kept")
	f := v.hidden()
	f.Set("token", "nobody")
	v.send(http.StatusUnauthorized, "/ui/login", f)
	v.says("its tokens begin with croft_")
	f = v.hidden()
	f.Set("token", "anna")
	v.send(http.StatusOK, "/ui/login", f)
	v.says(`<form method="post" action="/ui/volumes/new?project=anna" data-onward>`)
	v.hides("nobody")
	v.send(http.StatusForbidden, "/ui/volumes/new?project=anna", v.hidden())
	v.says("the session of this form has ended, and nothing was done")
	v.says(`name="size_gb" value="7"`)
	v.says("two\nlines &#34;&lt;b&gt;&amp;amp;")
	if n := volumes(); n != before {
		t.Errorf("the form was sent: there are %d volumes", n)
	}

	v.end()
	v.send(http.StatusUnauthorized, "/ui/instances/new", url.Values{"name": {"again"}, "image": {"debian-12"},
		"user_data": {"#cloud-config\r\n"}})
	f = v.hidden()
	f.Set("token", "anna")
	v.send(http.StatusOK, "/ui/login", f)
	v.send(http.StatusForbidden, "/ui/instances/new", v.hidden())
	v.says("nothing was done")
	v.says(`value="again"`)
	v.says("#cloud-config\n</textarea>")
	v.get(http.StatusOK, "/ui/instances?name=again")
	v.says("No instance matches")

	// Another tab has logged in meanwhile: the browser says that the form is of this page.
	v.get(http.StatusOK, at)
	former, version := v.form, field(t, v.text, "version")
	v.send(http.StatusOK, "/ui/login", url.Values{"token": {"anna"}})
	for path, form := range map[string]url.Values{at + "/stop": {}, at + "/remove": {"typed": {"web"}},
		at + "/change":       {"version": {version}, "expires": {"8h"}},
		"/ui/project/keys":   {"name": {"one"}, "line": {"ssh-ed25519 AAAA"}},
		"/ui/volumes/new":    {"name": {"8h"}, "size_gb": {"1"}},
		"/ui/logout":         {},
		"/ui/theme":          {"theme": {"dark"}},
		"/ui/project/tokens": {"user": {"x"}, "role": {"reader"}},
	} {
		form.Set("form", former)
		r := v.request(http.MethodPost, path, form.Encode())
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		v.do(http.StatusForbidden, r)
		v.says("nothing was done")
		if form.Has("expires") || form.Has("size_gb") {
			v.says(`value="8h"`)
		}
	}
	id := strings.TrimPrefix(at, "/ui/instances/")
	r := v.request(http.MethodPost, "/ui/instances/bulk", url.Values{"form": {former}, "id": {id}, "action": {"stop"},
		"confirm": {"yes"}}.Encode())
	r.Header.Set("Origin", s.url)
	v.do(http.StatusOK, r)
	v.says("Stop 1 instance?")
	v.get(http.StatusOK, at)
	v.says("running")
}

// keepsTheTextInABrowser fills in a form in a browser whose session ends before it is sent.
func keepsTheTextInABrowser(t *testing.T, s served, b *browser.Browser, token string) {
	b.Go(s.url + "/ui/login")
	b.Do(chromedp.SendKeys("#token", token+"\r"))
	b.Until(`document.querySelector("#live.on") !== null`)
	b.Go(s.url + "/ui/volumes/new")
	b.Do(chromedp.SendKeys("#f-name", "typed-before"))
	for range session.Most { // each ends the oldest session
		s.login(t, token)
	}
	b.Do(chromedp.Submit(`form[action^="/ui/volumes/new"]`))
	b.Until(`document.querySelector("#token") !== null`)
	b.Do(chromedp.SendKeys("#token", token+"\r"))
	b.Until(`document.querySelector("[name=name]") !== null && document.querySelector(".refusal") !== null`)
	if typed := browser.Eval[string](b, `document.querySelector("[name=name]").value`); typed != "typed-before" {
		t.Errorf("the form has %q", typed)
	}
}

// comparesLines changes an instance from a page that another change has made old. Browsers send line ends as CR LF.
func comparesLines(t *testing.T, s served, _ string) {
	made := s.create(t, "anna", "lines")
	at := "/ui/instances/" + string(made.ID)
	v := s.login(t, "anna")
	for _, label := range []string{"a", "b"} {
		v.get(http.StatusOK, at)
		v.send(http.StatusOK, at+"/change", url.Values{"version": {field(t, v.text, "version")}, "label": {label},
			"value": {"1"}})
	}
	v.get(http.StatusOK, at)
	version := field(t, v.text, "version")
	v.send(http.StatusOK, at+"/change", url.Values{"version": {version}, "expires": {"8h"}})
	v.send(http.StatusPreconditionFailed, at+"/change", url.Values{"version": {version}, "protected": {"yes"},
		"was-protected": {"no"}, "was-expires": {"never"}, "was-labels": {"a=1\r\nb=1"}})
	v.says("<bdi>expires</bdi>")
	v.hides("<bdi>labels</bdi>")

	for _, version := range []string{"*", `"1", "2"`} {
		v.send(http.StatusBadRequest, at+"/change", url.Values{"version": {version}, "expires": {"9h"}})
		v.says("does not say which version it changes")
		v.send(http.StatusBadRequest, at+"/properties", url.Values{"version": {version}})
		v.says("does not say which version it changes")
	}
	v.send(http.StatusBadRequest, "/ui/theme", url.Values{"theme": {"<x>"}})
}

// readsPickedOnce picks as many instances as possible, and counts the requests to the API.
func readsPickedOnce(t *testing.T, s served, at string) {
	var asked atomic.Int64
	v := s.over(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/instances") {
			asked.Add(1)
		}
		s.proxy.ServeHTTP(w, r)
	})).login(t, "anna")
	v.get(http.StatusOK, at)
	id := strings.TrimPrefix(at, "/ui/instances/")
	f := url.Values{"action": {"stop"}, "id": {id, id, strings.ToUpper(id)}}
	v.send(http.StatusOK, "/ui/instances/bulk", f)
	v.says("Stop 1 instance?")
	for len(f["id"]) < 502 {
		f.Add("id", string(croft.NewInstanceID()))
	}
	asked.Store(0)
	v.send(http.StatusOK, "/ui/instances/bulk", f)
	v.says("Stop 500 instances?")
	v.says("<bdi>web</bdi>")
	if n := asked.Load(); n > 40 {
		t.Errorf("500 instances are read with %d requests", n)
	}
	v.send(http.StatusBadRequest, "/ui/instances/bulk", url.Values{"action": {"stop"}, "id": {"web"}})
	v.says("no UUID of an instance")
}

// marksWrongFields sends forms with mistakes: each is marked, and has a link from what the page says.
func marksWrongFields(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	v.submit(http.StatusBadRequest, "/volumes/new", "name", "", "size_gb", "much")
	for _, part := range []string{`<a href="#f-name"><bdi>Name: it is missing</bdi></a>`, `<a href="#f-size_gb">`,
		`aria-invalid="true" aria-describedby="e-name`, `<small id="e-size_gb" class="bad">`} {
		v.says(part)
	}
	if n := strings.Count(v.text, "aria-invalid"); n != 2 {
		t.Errorf("%d fields are marked:\n%s", n, v.text)
	}
	v.send(http.StatusBadRequest, "/ui/instances/new", url.Values{"name": {"x"}, "VCPU": {"many"}})
	v.says(`<a href="#image">`)
	v.says(`id="image" name="image" aria-invalid="true"`)
	v.says(`id="VCPU" name="VCPU" aria-invalid="true"`)
	v.get(http.StatusOK, at)
	v.send(http.StatusBadRequest, at+"/change", url.Values{"version": {field(t, v.text, "version")},
		"expires": {"soon"}})
	v.says(`<a href="#expires">`)
	v.says(`id="expires" name="expires" aria-invalid="true"`)
}

// announcesWhatMatches follows lists with filters.
func announcesWhatMatches(t *testing.T, s served, _ string) {
	made := s.create(t, "anna", "told")
	at := "/ui/instances/" + string(made.ID)
	v := s.login(t, "anna")
	v.get(http.StatusOK, at)
	v.send(http.StatusOK, at+"/change", url.Values{"version": {field(t, v.text, "version")}, "label": {"env"},
		"value": {"test"}})
	lists := map[string]<-chan event{}
	chosen := []string{"", "name=tol", "filter=env%3Dtest"}
	others := []string{"name=other", "state=lost", "filter=env%3Dprod"}
	for _, filter := range slices.Concat(chosen, others) {
		events, status := v.follow(t.Context(), "/ui/instances/events?"+filter, "")
		if first := <-events; status != http.StatusOK || first.kind != "live" {
			t.Fatalf("%s: got %d, %+v", filter, status, first)
		}
		lists[filter] = events
	}
	v.get(http.StatusOK, "/ui/instances?name=tol&filter=env%3Dtest&sort=age")
	v.says(`data-follow="/ui/instances/events?filter=env%3Dtest&amp;name=tol"`)
	v.get(http.StatusOK, at)
	v.send(http.StatusOK, at+"/change", url.Values{"version": {field(t, v.text, "version")}, "protected": {"yes"}})
	for filter, events := range lists {
		other := slices.Contains(others, filter)
		for e := range events {
			if e.kind != "row" || !strings.Contains(e.data, string(made.ID)) {
				continue
			}
			if strings.Contains(e.data, `"other":true`) != other {
				t.Errorf("%s: %s", filter, e.data)
			}
			break
		}
	}
	v.get(http.StatusBadRequest, "/ui/instances/events?filter=%22")
}

// namesItsOwnHost logs in at a proxy that ends TLS, and at a name that pages at other ports have.
func namesItsOwnHost(t *testing.T, s served, _ string) {
	server, err := page.New(page.Config{API: s.proxy, Sessions: s.links.Store, Public: "https://cloud.example"})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(server.Handler())
	defer front.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(front.URL, "http://"), ":")
	for host, secure := range map[string]bool{"cloud.example": true, "CLOUD.example:443": true,
		"other.example": false, "cloud.example:8781": false} {
		v := s.visitor(t)
		v.url = front.URL
		r := v.request(http.MethodPost, "/ui/login", url.Values{"token": {"anna"}}.Encode())
		r.Host = host
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("X-Forwarded-Host", "cloud.example")
		v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		answer, err := v.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		for _, c := range answer.Cookies() {
			if c.Secure != secure || strings.HasPrefix(c.Name, "__Host-") != secure {
				t.Errorf("%s: the cookie is %v", host, c)
			}
		}
		if len(answer.Cookies()) != 1 {
			t.Errorf("%s: the login sets %v", host, answer.Cookies())
		}
	}
	own := regexp.MustCompile(`href="http://croft-[a-z0-9]{26}\.localhost:` + port + `/ui/login\?next=%2Fui%2Fhosts"`)
	for host, offered := range map[string]bool{"127.0.0.1:" + port: true, "localhost:" + port: true,
		"cloud.example": false, "other.example:" + port: false, "croft-a.localhost:" + port: false} {
		v := s.visitor(t)
		v.url, v.host = front.URL, host
		v.get(http.StatusOK, "/ui/login?next=/ui/hosts")
		if own.MatchString(v.text) != offered {
			t.Errorf("%s: the login says:\n%s", host, v.text)
		}
	}
}

// refusesHiddenCharacters sends a key whose comment would steer a terminal.
func refusesHiddenCharacters(t *testing.T, s served, _ string) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKcmmE8nfzGCuOuNkfzu9ZmO4ynBXyMB3CX3IMcxwgJs"
	v := s.login(t, "anna")
	v.get(http.StatusOK, "/ui/project")
	for n, comment := range []string{"\x1b[31m", "a\x07", "\u202eevil", "a\u200bb", "a\u2028b"} {
		v.send(http.StatusBadRequest, "/ui/project/keys", url.Values{"name": {fmt.Sprint("k", n)},
			"line": {key + " x" + comment + "y"}})
		v.says("without being visible")
	}
	v.send(http.StatusOK, "/ui/project/keys", url.Values{"name": {"plain"}, "line": {key + " Zoë's\tlaptop"}})
	patient.Until(t, "the key is there", func() bool {
		v.get(http.StatusOK, "/ui/project")
		return strings.Contains(v.text, "laptop")
	})
	v.send(http.StatusOK, "/ui/project/keys/remove", url.Values{"name": {"plain"}, "typed": {"plain"}})
}
