package page_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"croft/control"
	"croft/control/page"
	"croft/internal/testing/patient"
	"croft/tenant/access"
)

// try opens the form of an operation in the reference, changes fields of it, and sends it.
func (v *visitor) try(want int, operation string, pairs ...string) {
	v.t.Helper()
	for n := 0; n < len(pairs); n += 2 {
		if pairs[n] != "body" {
			pairs[n] = "in." + pairs[n]
		}
	}
	v.submit(want, "/try/"+operation, append(pairs, "do", "send")...)
}

func triesOperations(t *testing.T, s served, at string) {
	v := s.visitor(t)
	v.get(http.StatusOK, "/ui/docs/reference")
	v.says(`href="/ui/try/createVolume"`)
	v.get(http.StatusOK, "/ui/try/createVolume")
	v.says(`name="next" value="/ui/try/createVolume"`)
	v = s.login(t, "anna")
	v.get(http.StatusNotFound, "/ui/try/explode")
	v.says("/ui/docs/reference lists them")

	v.try(http.StatusOK, "listInstances", "name", "web\nnothing", "limit", "5")
	v.says("200 OK")
	v.says("&#34;name&#34;: &#34;web&#34;")
	v.says("<dt>X-Request-Id</dt>")
	v.says(`/v1/instances?limit=5&amp;name=web&amp;name=nothing`)
	v.try(http.StatusBadRequest, "listInstances", "limit", "many")
	v.says("the parameter limit is a whole number")
	v.says(`value="many"`)

	v.try(http.StatusBadRequest, "createVolume", "body", `{"name": "tried"`)
	v.says("400 Bad Request")
	v.says("{&#34;name&#34;: &#34;tried&#34;</textarea>")
	v.try(http.StatusOK, "createVolume", "body", `{"name": "tried", "size_gb": 1}`)
	v.says("<dt>Content-Type</dt>")
	v.says(`--json &#39;{&#34;name&#34;: &#34;tried&#34;, &#34;size_gb&#34;: 1}&#39;`)
	patient.Until(t, "the volume exists", func() bool {
		v.try(http.StatusOK, "getVolume", "name", "tried")
		return strings.Contains(v.text, "available")
	})
	v.send(http.StatusBadRequest, "/ui/try/removeVolume", url.Values{"do": {"send"}})
	v.says("name: it is missing")
	v.send(http.StatusBadRequest, "/ui/try/removeVolume", url.Values{"do": {"send"}, "in.name": {".."}})
	v.says("cannot be the name")
	v.send(http.StatusOK, "/ui/try/removeVolume", url.Values{"do": {"show"}})
	v.says(`-X DELETE &#34;$CROFT_URL&#34;&#39;/v1/volumes/{name}&#39;`)
	v.try(http.StatusOK, "removeVolume", "name", "tried")
	v.says("type <strong><bdi>tried</bdi></strong>")
	where, f := v.fields()
	f.Set("typed", "no")
	v.send(http.StatusUnprocessableEntity, where, f)
	v.try(http.StatusOK, "getVolume", "name", "tried")
	f.Set("typed", "tried")
	v.send(http.StatusOK, where, f)
	v.says("<span aria-hidden=\"true\">●</span> 20")

	name := at[strings.LastIndexByte(at, '/')+1:]
	v.try(http.StatusOK, "getInstance", "id", name)
	etag := field(t, strings.ReplaceAll(v.text, "<dt>ETag</dt><dd><code><bdi>", `name="etag" value="`), "etag")
	etag, _, _ = strings.Cut(etag, "</bdi>")
	v.try(http.StatusPreconditionFailed, "changeInstance", "id", name, "If-Match", `"1000000"`, "body",
		`{"labels": {"tried": true}}`)
	v.says("412 Precondition Failed")
	v.says(`-H &#39;If-Match: &#34;1000000&#34;&#39;`)
	v.try(http.StatusOK, "changeInstance", "id", name, "If-Match", etag, "body", `{"labels": {"tried": true}}`)
	v.says("&#34;tried&#34;: true")
	v.try(http.StatusOK, "getInstanceLog", "id", name)

	v.get(http.StatusOK, "/ui/try/watchEvents")
	v.says("its answer is a stream of events")
	v.says(" -N &#34;$CROFT_URL&#34;/v1/events")
	v.get(http.StatusOK, "/ui/try/attachConsole")
	v.says("it makes a WebSocket of the connection")
	v.hides("curl")

	operator := s.login(t, "operator")
	operator.try(http.StatusBadRequest, "createBackupStore", "body",
		`{"name": "No name", "repository": "/b", "password": "hush", "environment": {"KEY": "hush"}}`)
	operator.hides("hush")
	operator.says("&#34;/b&#34;")

	hostile := s.hostile(t).login(t, "anna")
	for _, operation := range []string{"getInstance", "getInstanceLog"} {
		hostile.try(http.StatusOK, operation, "id", name)
		shown := fields.ReplaceAllString(hostile.text, "")
		for _, part := range unsafe {
			if strings.Contains(shown, part) {
				t.Errorf("%s: the answer shows %q", operation, part)
			}
		}
		hostile.says("U+202E")
	}
	deep := `{"secret": "hush", "a": ` + strings.Repeat("[", 300) + strings.Repeat("1,", 300) + "1" +
		strings.Repeat("]", 300) + "}"
	reader := s.login(t, "reader")
	reader.send(http.StatusOK, "/ui/try/createCredential", url.Values{"do": {"show"}, "body": {deep}})
	if reader.hides("hush"); len(reader.text) > 50_000 { // indented, it has 200,000 bytes more, twice
		t.Errorf("a body of %d bytes that is nested deeply makes a page of %d", len(deep), len(reader.text))
	}
	nested := s.answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, deep)
	}, nil).login(t, "anna")
	nested.try(http.StatusOK, "createVolume", "body", `{}`)
	if nested.says("1,1,1"); len(nested.text) > 50_000 {
		t.Errorf("an answer of %d bytes that is nested deeply makes a page of %d", len(deep), len(nested.text))
	}
	late := s.answering(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		func(server *page.Server) { server.TryFor(50 * time.Millisecond) })
	v = late.login(t, "anna")
	v.try(http.StatusServiceUnavailable, "createVolume", "body", `{"name": "late", "size_gb": 1}`)
	v.says("no whole answer came within")
	v.says("late")
	v = s.answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write([]byte("\x89PNG\x00\x01"))
	}, nil).login(t, "anna")
	v.try(http.StatusOK, "createVolume", "body", `{}`)
	v.says("The body is image/png and is not shown")
	v = s.answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `["`+strings.Repeat("é", 1<<20)+`"]`)
	}, nil).login(t, "anna")
	v.try(http.StatusOK, "createVolume", "body", `{}`)
	v.says("The body is longer: this is the beginning.")
	v = s.answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}, nil).login(t, "anna")
	v.try(http.StatusUnauthorized, "createVolume", "body", `{}`)
	v.says(`name="token"`)
}

// answering returns the page of the same cloud, in whose API a handler answers changes.
func (s served) answering(t *testing.T, changes http.HandlerFunc, set func(*page.Server)) served {
	t.Helper()
	server, err := page.New(page.Config{Sessions: s.links.Store, API: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				s.proxy.ServeHTTP(w, r)
				return
			}
			changes(w, r)
		})})
	if err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(server)
	}
	front := httptest.NewServer(s.posted.before(server.Handler()))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	s.url = front.URL
	return s
}

// sweepsTheReference tries every operation as every role: the API gets each request that the role may send, as the
// table of operations declares it, and only after a confirmation if it cannot be undone.
func sweepsTheReference(t *testing.T, s served, _ string) {
	var mu sync.Mutex
	var got []*http.Request
	var bodies []string
	taken := func() (all []*http.Request, texts []string) {
		mu.Lock()
		defer mu.Unlock()
		all, texts, got, bodies = got, bodies, nil, nil
		return all, texts
	}
	recorded := s.answering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got, bodies = append(got, r), append(bodies, string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"recorded": true}`)
	}, nil)
	part := regexp.MustCompile(`\{[a-z]+\}`)
	forms := map[string]url.Values{} // as operators get them
	operator := s.login(t, "operator")
	for _, o := range control.Operations() {
		operator.get(http.StatusOK, "/ui/try/"+o.ID)
		if streams := streams(o); streams == strings.Contains(operator.text, `value="send"`) {
			t.Errorf("%s: it is a stream %t, and the button is wrong", o.ID, streams)
		} else if streams {
			operator.says("It has no button: ")
			operator.send(http.StatusBadRequest, "/ui/try/"+o.ID, url.Values{"do": {"send"}})
			operator.says("It has no button: ")
			continue
		}
		_, forms[o.ID] = operator.fields()
	}
	for token, role := range map[string]access.Role{"reader": access.Reader, "anna": access.Member,
		"admin": access.ProjectAdmin, "operator": access.PartitionAdmin} {
		v, real := recorded.login(t, token), s.login(t, token)
		v.get(http.StatusOK, "/ui/keys")
		real.get(http.StatusOK, "/ui/keys")
		for _, o := range control.Operations() {
			if streams(o) {
				continue
			}
			at, f, word := "/ui/try/"+o.ID, maps.Clone(forms[o.ID]), o.ID
			f.Set("do", "send")
			f.Set("form", real.form)
			if all := part.FindAllString(o.Path, -1); len(all) > 0 {
				word = f.Get("in." + strings.Trim(all[len(all)-1], "{}"))
			}
			switch may := access.MayAnywhere(o.May, []access.Role{role}); {
			case !may: // also confirmed, nothing is changed
				f.Set("typed", word)
				before := s.done.of(token)
				status := real.status(real.request(http.MethodPost, at, f.Encode()))
				if status < 400 || status >= 500 || s.done.of(token) != before {
					t.Errorf("%s sends %s and gets %d:\n%s", token, o.ID, status, real.text)
				}
				real.says("your roles do not permit this operation")
				real.hides(`value="send"`)
			case o.Method == http.MethodGet:
				if token == "admin" || token == "anna" {
					continue // they read more than readers, and less than operators
				}
				status := real.status(real.request(http.MethodPost, at, f.Encode()))
				if status >= 500 && status != http.StatusServiceUnavailable ||
					!strings.Contains(real.text, `id="h-answer"`) {
					t.Errorf("%s sends %s and gets %d:\n%s", token, o.ID, status, real.text)
				}
			case token != "admin":
				f.Set("form", v.form)
				v.send(http.StatusOK, at, f)
				if strings.Contains(v.text, `name="typed"`) {
					if all, _ := taken(); len(all) > 0 {
						t.Errorf("%s is sent without a confirmation", o.ID)
					}
					_, f = v.fields()
					f.Set("typed", word)
					v.send(http.StatusOK, at, f)
				} else if o.Method == http.MethodDelete {
					t.Errorf("the page does not ask before %s", o.ID)
				}
				v.says("&#34;recorded&#34;: true")
				v.says(`value="send"`)
				all, texts := taken()
				path := regexp.MustCompile("^" + part.ReplaceAllString(o.Path, `[a-z]+`) + "$")
				if len(all) != 1 || all[0].Method != o.Method || !path.MatchString(all[0].URL.Path) ||
					all[0].Header.Get("Authorization") != "Bearer "+token {
					t.Fatalf("%s: the API gets %v", o.ID, all)
				}
				takes := strings.Contains(v.text, `<textarea id="body"`)
				if takes != json.Valid([]byte(texts[0])) || !takes && texts[0] != "" {
					t.Errorf("%s: the body is %q", o.ID, texts[0])
				}
				for _, p := range o.Parameters {
					if p.Required && p.In == "header" && all[0].Header.Get(p.Name) == "" {
						t.Errorf("%s lacks %s", o.ID, p.Name)
					}
				}
			}
		}
	}
}

// streams reports whether the page does not send an operation.
func streams(o control.Operation) bool {
	return o.Status == http.StatusSwitchingProtocols || o.Events != nil || o.Takes != ""
}
