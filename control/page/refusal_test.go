package page_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"croft/control"
	"croft/control/api"
	"croft/control/page"
	"croft/internal/testing/browser"
	"croft/internal/testing/patient"
)

// machineWords are what errors have for programs.
var machineWords = regexp.MustCompile(`<(?:small|code)>(bad_request|bad_state|not_found|backend_down|forbidden_verb)\b`)

func leadsToItsOwnForms(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	v.get(http.StatusOK, at)
	v.send(http.StatusOK, at+"/change", url.Values{"version": {field(t, v.text, "version")}, "protected": {"yes"}})
	defer func() {
		v.get(http.StatusOK, at)
		v.send(http.StatusOK, at+"/change", url.Values{"version": {field(t, v.text, "version")}, "protected": {"no"}})
	}()
	says := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			v.says(text)
		}
		if word := machineWords.FindString(v.text); word != "" {
			t.Errorf("%s shows a word for programs: %s", v.at, word)
		}
	}
	patient.Until(t, "the guest is on", func() bool {
		v.get(http.StatusOK, at)
		return strings.Contains(v.text, at+"/stop")
	})

	v.get(http.StatusOK, at+"/resize")
	says("stop it first", `action="`+at+`/stop?project=anna"`, `name="VCPU" inputmode="numeric" disabled`)
	v.send(http.StatusConflict, at+"/resize", url.Values{"VCPU": {"2"}, "MEMORY_MB": {"4096"}})
	says(">Stop the instance</a>", `href="/ui/instances/web"`, "Request <code>", `value="4096"`)
	v.get(http.StatusOK, "/ui/instances/web")
	says("<bdi>web</bdi>")

	v.get(http.StatusOK, at+"/remove")
	says("end the protection first", `href="`+at+`?project=anna#h-keep"`)
	v.hides(`name="typed"`)
	v.send(http.StatusConflict, at+"/remove", url.Values{"typed": {"web"}})
	says("end the protection first")
	v.send(http.StatusPreconditionFailed, at+"/change", url.Values{"version": {field(t, s.page(t, at), "version")},
		"expires": {"8h"}})
	says(">End the protection</a>", `value="8h"`, `data-at="`+at)
	v.send(http.StatusBadRequest, at+"/change", url.Values{"version": {"1"}, "expires": {"soon"}})
	says(`value="soon"`, "write a duration")

	v.get(http.StatusOK, at+"/backup")
	if s.hasStore(t) {
		return // of another test of this cloud
	}
	says("an operator adds one")
	v.hides(`name="store"`)
	operator := s.login(t, "operator")
	operator.get(http.StatusOK, at+"/backup")
	operator.says("/ui/backups/stores/new")
	operator.send(http.StatusNotFound, at+"/backup?project=anna", url.Values{"name": {"first"}})
	operator.says("/ui/backups/stores/new")
}

// page returns the text of a page, as a member sees it.
func (s served) page(t *testing.T, at string) string {
	t.Helper()
	v := s.login(t, "anna")
	v.get(http.StatusOK, at)
	return v.text
}

// hasStore reports whether the project anna may use a backup store.
func (s served) hasStore(t *testing.T) bool {
	t.Helper()
	list, err := s.client(t, "anna").ListBackupStores(t.Context(), api.InProject{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Stores) > 0
}

func keepsWhatWasTyped(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	form := strings.TrimPrefix(at, "/ui") + "/volumes/attach"
	v.get(http.StatusOK, "/ui"+form)
	v.says("Attach a volume: <bdi>web</bdi>")
	v.hides(`value="web"`)
	v.says(`href="/ui/volumes/new?near=web"`)
	v.submit(http.StatusNotFound, form, "name", "hello")
	v.says(`name="name" value="hello"`)
	v.says(`href="/ui/volumes">Volumes</a>`)
	v.submit(http.StatusNotFound, "/volumes/new", "name", "lone", "size_gb", "1", "near", "nothing")
	v.says(`value="lone"`)
	v.says(`value="nothing"`)
	v.submit(http.StatusBadRequest, "/images/new", "name", "empty", "url", "")
	v.says("URL: it is missing")
	v.get(http.StatusNotFound, "/ui/volumes/nothing/grow")
	v.says(`<a href="/ui/volumes">To: Volumes</a>`)

	v.get(http.StatusOK, at+"/properties")
	v.says("Properties and tags: <bdi>web</bdi>")
	v.get(http.StatusOK, at)
	for _, vague := range []string{">Change</a>", ">Set</button>", ">Add</button>"} {
		v.hides(vague)
	}
	operator := s.login(t, "operator")
	operator.get(http.StatusOK, "/ui/project?project=anna")
	for _, vague := range []string{">Change</a>", ">Set</button>", ">Set</a>", ">Let them in</a>", ">Count again</a>",
		"/ui/project/default-quota"} {
		operator.hides(vague)
	}
	operator.get(http.StatusOK, "/ui/project")
	operator.says(`href="/ui/project/default-quota">Default limits of the cloud</a>`)

	r := httptest.NewRequest(http.MethodPost, s.url+"/ui/login", strings.NewReader("token=nonsense"))
	r.RequestURI = ""
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if status := v.status(r); status != http.StatusUnauthorized || strings.Contains(v.text, "Bearer") {
		t.Errorf("got %d:\n%s", status, v.text)
	}
	v.says("its tokens begin with croft_")
}

// knowsNoPools serves the page of a cloud without a manager of pools.
func knowsNoPools(t *testing.T, s served, _ string) {
	none, _ := control.ErrNoPools.(*api.Problem)
	without := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/pools") && !strings.HasPrefix(r.URL.Path, "/v1/tickets") {
			s.proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(none.Status)
		if _, err := w.Write([]byte(`{"type":"about:blank","status":503,"code":"backend_down","detail":"` +
			none.Detail + `"}`)); err != nil {
			t.Error(err)
		}
	})
	server, err := page.New(page.Config{API: without, Sessions: s.cloud.Store.PageSessions})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(server.Handler())
	defer front.Close()
	other := s
	other.url = front.URL
	v := other.login(t, "operator")
	v.get(http.StatusOK, "/ui/pools")
	v.says("No manager of pools runs in this cloud")
	v.says(`href="/ui/docs/pools"`)
}

// leadsTheEye tests where the focus goes, the button of the colors, and what a phone shows.
func leadsTheEye(t *testing.T, s served, b *browser.Browser, at string) {
	focused := func(selector string) {
		t.Helper()
		b.Until(`document.activeElement.matches("` + selector + `")`)
	}
	b.Do(chromedp.EmulateViewport(1280, 900))
	b.Go(at)
	b.Do(chromedp.Submit(`form:has(input[name=protected])`))
	focused(".notice")
	b.Do(chromedp.Submit(`form:has(input[name=protected])`))
	b.Until(`document.querySelector("input[name=protected]").value === "yes" &&
		document.activeElement.matches(".notice")`)
	b.Do(chromedp.SendKeys("#expires", "soon\r"))
	focused(".refusal")
	if now := browser.Eval[string](b, "location.href"); !strings.HasPrefix(now, at) || strings.Contains(now, "change") {
		t.Errorf("after a refused change the address is %s", now)
	}
	b.Go(at + "/snapshot")
	b.Do(chromedp.SendKeys("#name", "no blanks here\r"))
	focused(".refusal")

	for _, scheme := range []string{"dark", "light"} {
		b.Prefer(scheme)
		b.Go(s.url + "/ui/keys")
		ground := func() string { return browser.Eval[string](b, "getComputedStyle(document.body).backgroundColor") }
		first := ground()
		for n := range 3 {
			before := ground()
			browser.Eval[bool](b, `(document.querySelector(".on-`+scheme+`").click(), true)`) // at once, in this page
			b.Until(`getComputedStyle(document.body).backgroundColor !== "` + before + `"`)
			if n == 1 && ground() != first {
				t.Errorf("with %s colors, two clicks lead to %s from %s", scheme, ground(), first)
			}
		}
		b.Do(chromedp.Click(`.on-` + scheme))
		b.Until(`document.documentElement.dataset.theme === undefined`)
	}

	b.Do(chromedp.EmulateViewport(360, 740))
	b.Go(s.url + "/ui/more")
	b.Until(`(() => { const r = document.querySelector(".bar nav [aria-current]").getBoundingClientRect();
		return r.left >= 0 && r.right <= innerWidth; })()`)
	for _, path := range []string{at, s.url + "/ui/project"} {
		b.Go(path)
		torn := browser.Eval[string](b, `[...document.querySelectorAll(".inline label")].filter(l => {
			const a = l.getBoundingClientRect(), f = document.getElementById(l.htmlFor).getBoundingClientRect();
			return a.width > 0 && (a.bottom < f.top || f.bottom < a.top || f.right > innerWidth);
			}).map(l => l.innerText).join()`)
		if torn != "" {
			t.Errorf("%s: fields are not beside their labels: %s", path, torn)
		}
	}
	b.Do(chromedp.EmulateViewport(1280, 900))
}
