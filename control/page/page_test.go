package page_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"croft"
	"croft/control/api"
	"croft/internal/testing/patient"
)

// TestThePage tests the page of one cloud without scripts.
func TestThePage(t *testing.T) {
	t.Parallel()
	s := start(t)
	if err := s.cloud.Resize(t.Context(), "host1", 60); err != nil { // the cases leave instances behind
		t.Fatal(err)
	}
	web := s.create(t, "anna", "web", func(in *api.NewInstance) {
		in.Machine.Display = croft.DisplayVNC
		in.Tags = map[string]string{"<script>alert(1)</script>": "\"'><img src=x onerror=alert(1)>"}
	})
	at := "/ui/instances/" + string(web.ID)
	for name, test := range map[string]func(*testing.T, served, string){
		"without a session it asks for a login":    asksForALogin,
		"a token in an address is refused":         refusesTokensInAddresses,
		"logout ends the session everywhere":       logoutEndsTheSession,
		"forms of other pages are refused":         refusesForeignForms,
		"streams are only for the page itself":     refusesForeignStreams,
		"every answer is protected":                answersAreProtected,
		"texts of tenants are shown as text":       showsTextsAsText,
		"a one-time link works once":               linksWorkOnce,
		"other projects do not exist":              hidesOtherProjects,
		"an instance gets the amounts of a size":   resizesToASize,
		"readers get no forms and change nothing":  readersChangeNothing,
		"two tabs that change the same thing":      showsTheDifference,
		"bulk actions show what they affect first": previewsBulkActions,
		"a list that was away resumes or reloads":  resumesStreams,
		"streams are bounded":                      boundsStreams,
		"a page that there is not":                 showsErrors,
		"documents are for everybody":              showsDocuments,
		"hosts are for operators":                  hidesHosts,
		"a host is drained and emptied":            drainsAHost,
		"a host is fenced and forgotten":           forgetsAHost,
		"records are compared":                     comparesRecords,
		"many hosts are drawn by rack":             drawsManyHosts,
		"consoles are only for the page itself":    consolesAreForThePage,
		"a console is taken over on request":       takesConsolesOver,
		"a console ends with its session":          consolesEndWithTheirSession,
		"a screen without scripts is a picture":    showsScreens,
		"every kind of thing has its list":         listsThings,
		"things are removed by their names":        removesThings,
		"images that hosts fetch have a progress":  showsFetchedImages,
		"a policy is tried before it is stored":    triesPolicies,
		"volumes are changed":                      changesVolumes,
		"two tabs that change something":           showsDifferences,
		"clusters are built and grow":              buildsClusters,
		"pools get a size, and tickets are given":  changesPools,
		"rows of other lists change, too":          followsLists,
		"hosts are invited and put together":       invitesHosts,
		"no form permits what the API forbids":     sweepsForms,
		"the action log has filters":               filtersTheLog,
		"an admin manages members":                 managesAProject,
		"tokens are shown once":                    showsTokensOnce,
		"keys are kept and removed":                keepsKeys,
		"projects are changed by their admins":     changesNoForeignProject,
		"the nearest limit is marked":              showsWhichLimitCounts,
		"usage is exported":                        exportsUsage,
		"the dashboard finds problems":             findsTroubles,
		"usage of an instance is drawn":            drawsUsage,
		"the page waits for no host":               waitsForNoHost,
		"hostile texts are only text":              hostileTextsAreOnlyText,
		"every form is protected":                  everyFormIsProtected,
		"no answer can be framed":                  noAnswerCanBeFramed,
		"cookies are for the server alone":         cookiesAreForTheServerAlone,
		"sessions end with their token":            sessionsEndWithTheirToken,
		"a user has at most 16 sessions":           aUserHasSomeSessions,
		"a user logs in at the issuer":             logsInAtTheIssuer,
		"servers share sessions":                   serversShareSessions,
		"a thousand streams are bounded":           manyStreams,
		"the other forms need no scripts":          sendsTheOtherForms,
		"a new instance is checked first":          checksNewInstances,
		"a form creates what it says":              createsWhatTheFormSays,
		"the first limit of the quota is shown":    showsTheQuotaOfTheFirstLimit,
		"texts for others make the same request":   writesTheSameRequest,
		"errors lead to the page's own forms":      leadsToItsOwnForms,
		"a refused form keeps what was typed":      keepsWhatWasTyped,
		"a cloud without pools says so":            knowsNoPools,
		"operations are tried in the reference":    triesOperations,
		"every operation can be tried":             sweepsTheReference,
		"a form outlives its session":              returnsToTheForm,
		"versions and lines of forms":              comparesLines,
		"picked instances are read together":       readsPickedOnce,
		"wrong fields are marked":                  marksWrongFields,
		"only what a list has is announced":        announcesWhatMatches,
		"the names of the server":                  namesItsOwnHost,
		"hidden characters in keys":                refusesHiddenCharacters,
	} {
		t.Run(name, func(t *testing.T) { test(t, s, at) })
	}
	t.Run("every form is sent without scripts", s.everyFormWasSent)
}

func asksForALogin(t *testing.T, s served, at string) {
	v := s.visitor(t)
	v.get(http.StatusOK, at+"?project=anna")
	v.says(`name="token"`)
	v.says(`name="next" value="` + at + `?project=anna"`)
	v.get(http.StatusOK, "/")
	v.says(`name="token"`)
	v.send(http.StatusUnauthorized, "/ui/login", url.Values{"token": {"nobody"}})
	v.says("its tokens begin with croft_")
	v.send(http.StatusBadRequest, "/ui/login", url.Values{"token": {" "}})
	v.says("paste a token")
	v.send(http.StatusUnauthorized, at+"/stop", nil)
	v.says("the session has ended")
	v.send(http.StatusOK, "/ui/login", url.Values{"token": {"anna"}, "next": {"https://elsewhere.example/ui"}})
	if v.at != "/ui/instances" {
		t.Errorf("the login leads to %s", v.at)
	}
	v.says(">web<")
}

func showsDocuments(t *testing.T, s served, at string) {
	v := s.visitor(t)
	v.get(http.StatusOK, "/ui/login")
	v.says(`href="/ui/docs/page#log-in"`)
	v.get(http.StatusOK, "/ui/docs")
	v.says(`href="/ui/docs/page"`)
	v.says(`href="/ui/login?next=%2Fui%2Fdocs"`)
	v.hides("Log out")
	v.get(http.StatusOK, "/ui/docs/page")
	v.says(`<h2 id="hosts">Hosts</h2>`)
	v.says(`<a href="#hosts">Hosts</a>`)
	v.get(http.StatusOK, "/ui/docs/api")
	v.get(http.StatusOK, "/ui/docs/reference")
	v.says(`<h2 id="instances">instances</h2>`)
	v.says("<strong>POST</strong> /v1/instances</code>")
	v.says("<code>user_data</code>")
	v.hides("raw HTML omitted")
	var document struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(api.Document(), &document); err != nil {
		t.Fatal(err)
	}
	for path, calls := range document.Paths {
		for method := range calls {
			v.says("<strong>" + strings.ToUpper(method) + "</strong> " + path + "</code>")
		}
	}
	for _, name := range []string{"nothing", "README", "page.md", "..%2Fdocs.go", "%3Cscript%3E"} {
		v.get(http.StatusNotFound, "/ui/docs/"+name)
		v.says("there is no such document: /ui/docs lists them")
	}
	v = s.login(t, "operator")
	v.get(http.StatusOK, "/ui/docs/tenants")
	v.says("Log out")
	v.hides("Log in")
	for path, section := range map[string]string{"/ui/instances": "page#instances", at: "page#instances",
		at + "/remove": "using#what-cannot-be-undone", "/ui/hosts": "page#hosts", "/ui/keys": "page#keys",
		"/ui/audit": "operations#when-records-do-not-agree"} {
		v.get(http.StatusOK, path)
		v.says(`<a href="/ui/docs/` + section + `">Help</a>`)
	}
}

func refusesTokensInAddresses(t *testing.T, s served, _ string) {
	v := s.visitor(t)
	for _, path := range []string{"/ui/login?token=anna", "/ui?x=croft_0123456789ab_secret",
		"/ui/instances/croft_0123456789ab_secret", "/ui?x=%63roft_0123456789ab_secret",
		"/ui/login?access_token=x", "/ui/instances/%2563roft_0123456789ab_secret"} {
		v.get(http.StatusForbidden, path)
		v.says("there is a token in the address")
		v.hides("_secret")
	}
}

func logoutEndsTheSession(t *testing.T, s served, _ string) {
	v := s.login(t, "anna")
	other := *v.http // has the same cookie
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	cookies := other.Jar.Cookies(at)
	if len(cookies) != 1 || strings.Contains(cookies[0].Value, "anna") {
		t.Fatalf("the browser has %v", cookies)
	}
	v.send(http.StatusOK, "/ui/logout", nil)
	v.says(`name="token"`)
	r := v.request(http.MethodGet, "/ui/instances", "")
	r.AddCookie(cookies[0])
	v.do(http.StatusOK, r)
	v.says(`name="token"`)
}

func refusesForeignForms(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	other := s.login(t, "anna")
	for name, form := range map[string]string{"no token": "", "another session's": other.form} {
		v.send(http.StatusForbidden, at+"/stop", url.Values{"form": {form}})
		if !strings.Contains(v.text, "not of your session") {
			t.Errorf("%s: %s", name, v.text)
		}
	}
	v.get(http.StatusOK, at)
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://elsewhere.example"} {
		r := v.request(http.MethodPost, at+"/stop", url.Values{"form": {v.form}}.Encode())
		r.Header.Set(name, value)
		v.do(http.StatusForbidden, r)
		v.says("from elsewhere")
		r = v.request(http.MethodPost, "/ui/login", url.Values{"token": {"berta"}}.Encode())
		r.Header.Set(name, value)
		v.do(http.StatusForbidden, r)
	}
	v.get(http.StatusOK, at)
	v.says("running")
}

func refusesForeignStreams(t *testing.T, s served, _ string) {
	v := s.login(t, "anna")
	for name, value := range map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "https://elsewhere.example"} {
		r := v.request(http.MethodGet, "/ui/instances/events", "")
		r.Header.Set(name, value)
		v.do(http.StatusForbidden, r)
		v.says("only the page itself")
	}
}

func answersAreProtected(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	for _, path := range []string{"/ui/instances", at, "/ui/login", "/ui/nothing", at + "/remove"} {
		want := http.StatusOK
		if path == "/ui/nothing" {
			want = http.StatusNotFound
		}
		h := v.get(want, path)
		for name, part := range map[string]string{"Content-Security-Policy": "default-src 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"X-Frame-Options": "DENY"} {
			if !strings.Contains(h.Get(name), part) {
				t.Errorf("%s: %s is %q", path, name, h.Get(name))
			}
		}
		for _, inline := range []string{"<script>", " style=", "<style", " onclick=", "javascript:", "unsafe-inline"} {
			v.hides(inline)
		}
		if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") ||
			strings.Contains(csp, "unsafe") {
			t.Errorf("%s: the policy is %s", path, csp)
		}
	}
}

func showsTextsAsText(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	v.get(http.StatusOK, at)
	v.says("&lt;script&gt;alert(1)&lt;/script&gt;")
	v.hides("<img")
	v.get(http.StatusOK, "/ui/instances?name=%3Cscript%3Ealert(1)%3C/script%3E")
	v.hides("<script>")
}

func linksWorkOnce(t *testing.T, s served, _ string) {
	link, _, err := s.links.Link(t.Context(), "anna")
	if err != nil {
		t.Fatal(err)
	}
	path := "/ui/link/" + link.Text()
	v := s.visitor(t)
	r := v.request(http.MethodGet, path, "")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	v.do(http.StatusForbidden, r)
	v.says("only in the address bar")
	v.do(http.StatusNoContent, v.request(http.MethodHead, path, "")) // previews do not use it up
	r = v.request(http.MethodGet, path, "")
	r.Header.Set("Sec-Purpose", "prefetch")
	v.do(http.StatusNoContent, r)
	v.get(http.StatusOK, path)
	v.says(">web<")
	s.visitor(t).get(http.StatusForbidden, path)
	s.visitor(t).get(http.StatusForbidden, "/ui/link/x")
}

func hidesOtherProjects(t *testing.T, s served, at string) {
	v := s.login(t, "berta")
	v.get(http.StatusNotFound, at)
	v.says("or it is not yours")
	v.get(http.StatusNotFound, at+"?project=anna")
	v.get(http.StatusOK, "/ui/instances")
	v.says("There are no instances yet")
}

func readersChangeNothing(t *testing.T, s served, at string) {
	v := s.login(t, "reader")
	v.get(http.StatusOK, at)
	v.hides(at + "/stop")
	for _, action := range []string{"start", "stop", "reboot", "hard-stop", "move", "snapshot", "backup", "resize"} {
		v.send(http.StatusForbidden, at+"/"+action, url.Values{"VCPU": {"2"}})
		v.says("it takes the role ")
	}
	v.send(http.StatusForbidden, at+"/remove", url.Values{"typed": {"web"}})
	v.send(http.StatusForbidden, "/ui/instances/new", url.Values{"name": {"x"}, "image": {"debian-12"}, "VCPU": {"1"},
		"MEMORY_MB": {"256"}, "DISK_GB": {"1"}})
	v.get(http.StatusOK, "/ui/instances")
	v.hides(`type="checkbox"`)
}

func resizesToASize(t *testing.T, s served, _ string) {
	operator := s.client(t, "operator")
	if _, err := operator.CreateSize(t.Context(), api.NewSize{Name: "grown",
		Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 320, croft.DiskGB: 2}}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = operator.RemoveSize(context.WithoutCancel(t.Context()), api.SizeNamed{Name: "grown"}) }()
	at := "/ui/instances/" + string(s.create(t, "anna", "sized").ID)
	v := s.login(t, "anna")
	patient.Until(t, "the guest is on", func() bool {
		v.get(http.StatusOK, at)
		return strings.Contains(v.text, at+"/stop")
	})
	v.get(http.StatusOK, at+"/resize")
	v.says(`<select id="size" name="size" disabled>`)
	v.send(http.StatusOK, at+"/stop", url.Values{})
	patient.Until(t, "the guest is off", func() bool {
		v.get(http.StatusOK, at+"/resize")
		return !strings.Contains(v.text, "The guest is on")
	})
	v.says(`<option value="grown">grown: `)
	v.send(http.StatusBadRequest, at+"/resize", url.Values{"size": {"grown"}, "VCPU": {"2"}})
	v.says("a named size and amounts")
	v.says(`<option value="grown" selected>`)
	v.send(http.StatusOK, at+"/resize", url.Values{"size": {"grown"}})
	i, err := s.client(t, "anna").GetInstance(t.Context(), api.InstanceShown{InstanceNamed: api.InstanceNamed{
		Project: "anna", ID: "sized"}})
	if err != nil || i.Size != "grown" || i.Resources[croft.MemoryMB] != 320 {
		t.Errorf("got %v of size %q, %v", i.Resources, i.Size, err)
	}
	v.send(http.StatusOK, at+"/remove", url.Values{"typed": {"sized"}})
}

func showsTheDifference(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	v.get(http.StatusOK, at)
	version := field(t, v.text, "version")
	v.send(http.StatusOK, at+"/change", url.Values{"version": {version}, "label": {"env"}, "value": {"test"}})
	v.says("The change is stored.")
	v.send(http.StatusPreconditionFailed, at+"/change", url.Values{"version": {version}, "label": {"env"},
		"value": {"prod"}, "was-labels": {""}})
	v.says("was changed meanwhile")
	v.says("<td><bdi>test</bdi></td><td><bdi>prod</bdi></td>")
	v.send(http.StatusOK, at+"/change", url.Values{"version": {field(t, v.text, "version")}, "label": {"env"},
		"value": {"prod"}})
	v.says("<bdi>prod</bdi>")
}

// field returns the value of the first hidden field of a name.
func field(t *testing.T, text, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, `name="`+name+`" value="`)
	value, _, _ := strings.Cut(rest, `"`)
	if !found || value == "" {
		t.Fatalf("there is no field %s:\n%s", name, text)
	}
	return strings.ReplaceAll(strings.ReplaceAll(value, "&#34;", `"`), "&quot;", `"`)
}

func previewsBulkActions(t *testing.T, s served, _ string) {
	one := s.create(t, "anna", "bulk1")
	v := s.login(t, "anna")
	f := func(extra ...string) url.Values {
		q := url.Values{"id": {string(one.ID)}, "action": {"remove"}}
		for i := 0; i < len(extra); i += 2 {
			q.Set(extra[i], extra[i+1])
		}
		return q
	}
	v.send(http.StatusBadRequest, "/ui/instances/bulk", url.Values{"action": {"remove"}})
	v.says("no instance is picked")
	v.send(http.StatusOK, "/ui/instances/bulk", f())
	v.says("Remove 1 instance?")
	v.send(http.StatusOK, "/ui/instances/bulk", f("confirm", "yes"))
	v.says("type 1 instance to confirm")
	if _, err := s.client(t, "anna").GetInstance(t.Context(), api.InstanceShown{
		InstanceNamed: api.InstanceNamed{ID: string(one.ID)}}); err != nil {
		t.Fatalf("it was removed without a confirmation: %v", err)
	}
	v.send(http.StatusOK, "/ui/instances/bulk", f("confirm", "yes", "typed", "1 instance"))
	v.says("Remove: done")
}

func resumesStreams(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, status := v.follow(ctx, "/ui/instances/events", "")
	if status != http.StatusOK {
		t.Fatalf("got %d", status)
	}
	first := <-events
	if first.kind != "live" || first.id == "" {
		t.Fatalf("got %+v", first)
	}
	v.get(http.StatusOK, at)
	v.send(http.StatusOK, at+"/stop", nil)
	await := func(events <-chan event, text string) {
		t.Helper()
		for e := range events {
			if strings.Contains(e.data, text) {
				return
			}
		}
		t.Fatalf("no event has %s", text)
	}
	await(events, "stopped")
	resumed, _ := v.follow(ctx, "/ui/instances/events", first.id)
	await(resumed, "stopped")
	old, _ := v.follow(ctx, "/ui/instances/events", "1")
	if e := <-old; e.kind != "reload" {
		t.Errorf("a browser from long ago gets %+v", e)
	}
	v.send(http.StatusOK, at+"/start", nil)
	await(events, "running")
	for e := range events { // by which a browser notices that a stream has broken
		if e.kind == "beat" {
			return
		}
	}
	t.Fatal("the stream ended without a beat")
}

func boundsStreams(t *testing.T, s served, _ string) {
	v := s.login(t, "anna")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused := 0
	for range 30 {
		if _, status := v.follow(ctx, "/ui/instances/events", ""); status == http.StatusServiceUnavailable {
			refused++
		}
	}
	if refused != 6 {
		t.Errorf("%d of 30 streams are refused, want 6", refused)
	}
}

func showsErrors(t *testing.T, s served, _ string) {
	v := s.login(t, "anna")
	for path, status := range map[string]int{"/ui/nothing": http.StatusNotFound,
		"/ui/instances/nothing": http.StatusNotFound, "/ui/instances/web/format": http.StatusNotFound,
		"/ui/instances?sort=x": http.StatusBadRequest, "/ui/instances?filter=%22": http.StatusBadRequest,
		"/ui/instances?project=berta": http.StatusNotFound} {
		v.get(status, path)
		v.says(`class="failure card"`)
		if word := machineWords.FindString(v.text); word != "" {
			t.Errorf("%s shows a word for programs: %s", path, word)
		}
	}
}
