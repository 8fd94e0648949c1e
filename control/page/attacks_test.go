package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"croft/control/api"
	"croft/control/page"
	"croft/control/page/session"
	"croft/internal/testing/browser"
	"croft/internal/testing/patient"
	"croft/tenant/access"
)

// evil is a text that does harm where a page does not escape it.
const evil = "\"'><script>window.harmed=1</script><img src=x onerror=window.harmed=1>\x1b[31m\x07\u202e\u2066end"

// fields matches the values of fields, which have the characters that the user would send back.
var fields = regexp.MustCompile(`(?s) value="[^"]*"|<textarea.*?</textarea>`)

// unsafe are the parts of evil that no page may have.
var unsafe = []string{"<script>window", "<img src=x", "\x1b", "\x07", "\u202e", "\u2066", "javascript:"}

// fixed are the fields of answers that are no free text: positions in lists, roles, and names that the API checks.
var fixed = []string{"next", "code", "roles", "project", "parent", "partition", "user"}

// poison changes the texts of an answer of the API, except those that are no free text.
func poison(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, one := range v {
			v[name] = poison(name, one)
		}
	case []any:
		for n, one := range v {
			v[n] = poison(key, one)
		}
	case string:
		_, noTime := time.Parse(time.RFC3339Nano, v)
		_, noID := uuid.Parse(v)
		_, noAddress := netip.ParseAddr(v)
		if noTime != nil && noID != nil && noAddress != nil && !slices.Contains(fixed, key) {
			return v + evil
		}
	}
	return v
}

// hostile returns the page of the same cloud, whose API answers with texts that do harm. It has the same sessions.
func (s served) hostile(t *testing.T) served {
	t.Helper()
	return s.over(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/whoami" || strings.HasPrefix(r.URL.Path, "/v1/projects") || r.Method != http.MethodGet {
			s.proxy.ServeHTTP(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/log") && strings.HasPrefix(r.URL.Path, "/v1/instances/") {
			_, _ = io.WriteString(w, evil+"\n")
			return
		}
		answer := httptest.NewRecorder()
		s.proxy.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		var v any
		if json.Unmarshal(body, &v) == nil {
			var err error
			if body, err = json.Marshal(poison("", v)); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	}))
}

// over returns another page over an API, with the same sessions.
func (s served) over(t *testing.T, h http.Handler) served {
	t.Helper()
	server, err := page.New(page.Config{API: h, Sessions: s.links.Store})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(s.posted.before(server.Handler()))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	s.url = front.URL
	return s
}

var linkForm = regexp.MustCompile(`(?:href|src)="(/ui[^"#]*)`)

// walk opens a page and all pages that it leads to, one of each kind.
func (v *visitor) walk(from string, look func(path string)) (seen map[string]bool) {
	v.t.Helper()
	mux := http.NewServeMux()
	for _, at := range page.Views() {
		mux.HandleFunc(at, func(http.ResponseWriter, *http.Request) {})
	}
	seen = map[string]bool{}
	opened := map[string]bool{}
	for left := []string{from}; len(left) > 0; left = left[1:] {
		r := v.request(http.MethodGet, left[0], "")
		_, kind := mux.Handler(r)
		if action := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; strings.HasSuffix(kind, "{action}") {
			kind += " " + action
		}
		stream := strings.HasSuffix(kind, "/events") || strings.HasSuffix(kind, "/socket")
		if kind == "" || seen[kind] || opened[left[0]] || stream {
			continue
		}
		seen[kind], opened[left[0]] = true, true
		answer, err := v.http.Do(r)
		if err != nil {
			v.t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			v.t.Fatal(err)
		}
		v.text, v.at = string(text), left[0]
		if answer.StatusCode >= http.StatusBadRequest {
			seen[kind] = false // another page of this kind may do
		}
		if answer.StatusCode >= http.StatusInternalServerError {
			v.t.Errorf("%s: %s:\n%s", left[0], answer.Status, v.text)
		}
		look(left[0])
		for _, found := range linkForm.FindAllStringSubmatch(v.text, -1) {
			left = append(left, html.UnescapeString(found[1]))
		}
	}
	return seen
}

func hostileTextsAreOnlyText(t *testing.T, s served, _ string) {
	s.project(t, "anna", "")
	all := map[string]bool{}
	escaped := 0
	for _, token := range []string{"anna", "operator"} {
		v := s.hostile(t).login(t, token)
		for kind := range v.walk("/ui/instances", func(path string) {
			shown := fields.ReplaceAllString(v.text, "")
			for _, part := range unsafe {
				if strings.Contains(shown, part) || strings.HasPrefix(part, "<") && strings.Contains(v.text, part) {
					t.Errorf("%s has %q:\n%s", path, part, v.text)
				}
			}
			escaped += strings.Count(v.text, "&lt;script&gt;window")
		}) {
			all[kind] = true
		}
	}
	if escaped < 100 {
		t.Errorf("the harmful text is on the pages %d times", escaped)
	}
	for _, view := range page.Views() {
		at, get := strings.CutPrefix(view, "GET ")
		alone := func(end string) bool { return strings.HasSuffix(at, end) }
		if get && !all[view] && !ofTable(at) && !slices.ContainsFunc(unlinked, alone) {
			t.Errorf("no link leads to %s", view)
		}
	}
}

// unlinked are the ends of paths that are no page, that documents lead to, or that are about things that the cloud of
// the test lacks.
var unlinked = []string{"/try/{operation}", "/events", "/socket", "{action}", "/picture", "/leftovers/{instance}",
	"/usage.csv", "/screen", "/{id}", "/remove", "/pull", "/ui"}

// ofTable reports whether a path is that of a form of the table of forms, which share their code.
func ofTable(path string) bool {
	return slices.ContainsFunc(page.Forms(), func(f page.Form) bool { return page.Root+f.At == path })
}

// doesNoHarm opens hostile pages in a browser.
func doesNoHarm(t *testing.T, s served, b *browser.Browser, token, at string) {
	t.Helper()
	h := s.hostile(t)
	b.Go(h.url + "/ui/login")
	b.Do(chromedp.SendKeys("#token", token+"\r"))
	b.Until(`document.querySelector("[data-list]") !== null && document.querySelector("#live.on") !== null`)
	for _, path := range []string{"/ui/instances", at, at + "/log", at + "/console", "/ui/dashboard", "/ui/project"} {
		b.Go(h.url + path)
		b.Until(`document.readyState === "complete"`)
		if browser.Eval[bool](b, "window.harmed === 1") {
			t.Errorf("a script of a tenant runs on %s", path)
		}
	}
}

func everyFormIsProtected(t *testing.T, s served, at string) {
	v, other := s.login(t, "operator"), s.login(t, "operator")
	v.get(http.StatusOK, "/ui/instances")
	id := strings.TrimPrefix(at, "/ui/instances/")
	fill := strings.NewReplacer("{id}", id, "{action}", "remove", "{what}", "keys", "{name}", "x", "{instance}", "x")
	for _, view := range page.Views() {
		path, form := strings.CutPrefix(view, "POST ")
		if !form {
			continue
		}
		path = fill.Replace(path)
		for name, one := range map[string]struct{ form, header, value string }{
			"no token": {}, "the token of another session": {form: other.form},
			"another origin": {v.form, "Origin", "https://elsewhere.example"},
			"no origin":      {v.form, "Origin", "null"},
			"another site":   {v.form, "Sec-Fetch-Site", "cross-site"},
			"a near site":    {v.form, "Sec-Fetch-Site", "same-site"},
		} {
			body := url.Values{"form": {one.form}, "typed": {"web"}, "name": {"x"}}.Encode()
			r := v.request(http.MethodPost, path, body)
			if one.header != "" {
				r.Header.Set(one.header, one.value)
			}
			answer, err := v.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusForbidden {
				t.Errorf("%s with %s: got %s", view, name, answer.Status)
			}
		}
	}
	v.get(http.StatusOK, at+"?project=anna")
	v.says("running")
}

func noAnswerCanBeFramed(t *testing.T, s served, at string) {
	v := s.login(t, "operator")
	paths := []string{"/", "/ui", "/ui/nothing", "/ui/login?token=x", "/ui/assets/nothing", "/ui/docs/page",
		"/ui/link/x"}
	v.walk("/ui/instances", func(path string) { paths = append(paths, path) })
	v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, path := range paths {
		answer, err := v.http.Do(v.request(http.MethodGet, path, ""))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		h := answer.Header
		if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") ||
			!strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe-") ||
			h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %s, %v", path, answer.Status, h)
		}
	}
	if len(paths) < 25 {
		t.Errorf("the walk finds %d pages: %q", len(paths), paths)
	}
}

func cookiesAreForTheServerAlone(t *testing.T, s served, _ string) {
	for _, secure := range []bool{false, true} {
		server, err := page.New(page.Config{API: s.proxy, Sessions: s.links.Store})
		if err != nil {
			t.Fatal(err)
		}
		front := httptest.NewUnstartedServer(server.Handler())
		if secure {
			front.StartTLS()
		} else {
			front.Start()
		}
		defer front.Close()
		client := front.Client()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		answer, err := client.PostForm(front.URL+"/ui/login", url.Values{"token": {"anna"}})
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if len(answer.Cookies()) != 1 {
			t.Fatalf("the login sets %v", answer.Cookies())
		}
		c := answer.Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure != secure || c.Domain != "" ||
			c.Path != "/" || strings.HasPrefix(c.Name, "__Host-") != secure || c.MaxAge < 1 || len(c.Value) < 43 {
			t.Errorf("TLS %v: the cookie is %v", secure, c)
		}
	}
}

// newToken returns a token of the API for a member of anna, which the page accepts.
func (s served) newToken(t *testing.T) (access.Token, string) {
	t.Helper()
	token, secret, err := access.NewToken(access.Token{User: "robot", Project: "anna",
		Roles: []access.Role{access.Member}, Created: time.Now(), Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cloud.Store.AccessTokens.Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	v := s.visitor(t)
	patient.Until(t, "the API knows the token", func() bool {
		answer, err := v.http.Do(v.request(http.MethodPost, "/ui/login", url.Values{"token": {secret.Text()}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return token, secret.Text()
}

func sessionsEndWithTheirToken(t *testing.T, s served, at string) {
	s.project(t, "anna", "")
	for name, end := range map[string]func(access.Token){
		"revoked": func(token access.Token) {
			in := api.TokenNamed{ID: string(token.ID)}
			if _, err := s.client(t, "operator").RevokeToken(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		},
		"expired": func(access.Token) {},
	} {
		token, secret := access.Token{}, "until "+time.Now().Add(3*time.Second).Format(time.RFC3339)
		if name == "revoked" {
			token, secret = s.newToken(t)
		} else {
			secret = strings.ReplaceAll(secret, " ", "-")
		}
		v := s.login(t, secret)
		events, status := v.follow(t.Context(), "/ui/instances/events", "")
		if status != http.StatusOK {
			t.Fatalf("got %d", status)
		}
		socket := v.attach(at + "/console/socket?takeover=yes")
		end(token)
		for range events { // until the stream ends
		}
		if end := ends(t, socket); end.Code == 1000 {
			t.Errorf("%s: the console ends with %+v", name, end)
		}
		v.get(http.StatusOK, "/ui/instances")
		v.says(`name="token"`)
		v.send(http.StatusUnauthorized, at+"/stop", nil)
	}
}

func aUserHasSomeSessions(t *testing.T, s served, _ string) {
	var all []*visitor
	for range session.Most + 1 {
		all = append(all, s.login(t, "bente"))
	}
	all[0].get(http.StatusOK, "/ui/instances")
	all[0].says(`name="token"`)
	for _, v := range all[1:] {
		v.get(http.StatusOK, "/ui/instances")
		v.says("Log out")
	}
}

func serversShareSessions(t *testing.T, s served, at string) {
	second := s.over(t, s.proxy)
	link, _, err := s.links.Link(t.Context(), "anna")
	if err != nil {
		t.Fatal(err)
	}
	v := s.login(t, "anna")
	v.get(http.StatusOK, at)
	form := v.form
	v.host = strings.TrimPrefix(v.url, "http://") // of both, behind a proxy
	v.url = second.url
	v.get(http.StatusOK, at)
	v.says("Log out")
	if v.form != form {
		t.Error("a form of one server is not accepted by the other")
	}
	other := second.visitor(t)
	other.get(http.StatusOK, "/ui/link/"+link.Text())
	other.says(">web<")
	v.send(http.StatusOK, "/ui/logout", nil)
	v.url = s.url
	v.get(http.StatusOK, at)
	v.says(`name="token"`)
}

// manyStreams opens more streams than a server has. The API's own streams are left out: its test has them.
func manyStreams(t *testing.T, s served, at string) {
	var open atomic.Int64
	many := s.over(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/events" {
			s.proxy.ServeHTTP(w, r)
			return
		}
		open.Add(1)
		defer open.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := map[int]int{}
	begin := func(v *visitor, n int) {
		statuses := make(chan int, n)
		for range n {
			go func() {
				r := v.request(http.MethodGet, "/ui/instances/events", "").WithContext(ctx)
				answer, err := v.http.Do(r)
				if err != nil {
					statuses <- 0
					return
				}
				statuses <- answer.StatusCode
				_, _ = io.Copy(io.Discard, answer.Body) // until the stream ends
				_ = answer.Body.Close()
			}()
		}
		for range n {
			got[<-statuses]++
		}
	}
	for n, tokens := range [][]string{{"anna", "admin", "reader"}, {"berta", "birgit"}, {"dora"}, {"adam"}} {
		for left := page.StreamsOfCaller; left > 0; left -= page.StreamsOfSession {
			begin(many.login(t, tokens[left%len(tokens)]), min(left, page.StreamsOfSession))
		}
		v := many.login(t, tokens[0])
		v.get(http.StatusServiceUnavailable, "/ui/instances/events")
		if n < 3 { // the server has room for others
			v.says(fmt.Sprintf("%d pages of the project follow changes", page.StreamsOfCaller))
		}
	}
	v := many.login(t, "operator")
	v.get(http.StatusServiceUnavailable, "/ui/instances/events")
	v.says(fmt.Sprintf("%d pages follow changes at this server already", page.StreamsOfServer))
	v.get(http.StatusOK, at+"?project=anna")
	v.says("running")
	if len(got) != 1 || got[http.StatusOK] != page.StreamsOfServer {
		t.Errorf("the answers were %v", got)
	}
	cancel()
	patient.Until(t, "the streams have ended", func() bool { return open.Load() == 0 })
	patient.Until(t, "there is room again", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, status := v.follow(ctx, "/ui/instances/events", "")
		return status == http.StatusOK
	})
}

// aSleeperAsksForALogin lets the session of an open page end, as that of a browser that sleeps for a day does.
func aSleeperAsksForALogin(t *testing.T, s served, b *browser.Browser, token string) {
	b.Go(s.url + "/ui/login")
	b.Do(chromedp.SendKeys("#token", token+"\r"))
	b.Until(`document.querySelector("#live.on") !== null`)
	for range session.Most { // each ends the oldest session
		s.login(t, token)
	}
	b.Until(`document.querySelector("#token") !== null`)
	if next := browser.Eval[string](b, `document.querySelector("[name=next]").value`); next != "/ui/instances" {
		t.Errorf("the login leads to %s", next)
	}
}

func sendsTheOtherForms(t *testing.T, s served, _ string) {
	v := s.login(t, "anna")
	v.get(http.StatusOK, "/ui/instances")
	v.send(http.StatusOK, "/ui/theme", url.Values{"theme": {"dark"}, "here": {"/ui/keys"}})
	v.says(`data-theme="dark"`)
	v.send(http.StatusOK, "/ui/instances/new", url.Values{"name": {"made"}, "image": {"debian-12"}, "VCPU": {"1"},
		"MEMORY_MB": {"256"}, "DISK_GB": {"1"}})
	made := v.at
	v.says("<bdi>made</bdi>")
	path, _, _ := strings.Cut(made, "?")
	v.send(http.StatusOK, path+"/remove", url.Values{"typed": {"made"}})
	v = s.login(t, "operator")
	v.get(http.StatusOK, "/ui/project")
	v.send(http.StatusOK, "/ui/project/new", url.Values{"name": {"fresh"}})
	v.says("<bdi>fresh</bdi>")
	host := "/ui/hosts/" + string(s.hostCalled(t, "host1").ID)
	id := path[strings.LastIndex(path, "/")+1:]
	v = s.over(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lists := strings.HasSuffix(r.URL.Path, "/leftovers")
		if r.Method != http.MethodDelete && !lists {
			s.proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		text := "{}"
		if lists {
			text = `{"leftovers":[{"instance":"` + id + `","name":"left"}]}`
		}
		_, _ = io.WriteString(w, text)
	})).login(t, "operator")
	v.send(http.StatusOK, host+"/images", nil)
	v.send(http.StatusOK, host+"/leftovers/"+id, url.Values{"typed": {"left"}})
}

// Without scripts, users send forms: each form that has code of its own is sent by a test that has none. The form to
// pull an image needs a host that reaches one.
func (s served) everyFormWasSent(t *testing.T) {
	t.Helper()
	s.posted.mu.Lock()
	defer s.posted.mu.Unlock()
	for _, view := range page.Views() {
		at, form := strings.CutPrefix(view, "POST ")
		if form && !s.posted.all[view] && !ofTable(at) && !strings.HasSuffix(at, "/pull") {
			t.Errorf("no test sends the form %s without scripts", view)
		}
	}
}
