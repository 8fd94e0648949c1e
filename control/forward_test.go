package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"croft"
	"croft/control"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/controltest"
	"croft/control/federation"
	"croft/control/federation/assertion"
	"croft/internal/testing/patient"
	"croft/tenant"
	"croft/tenant/access"
)

// pair is two installations, each a peer of the other. Projects and hosts have the same names in both.
type pair struct {
	east, west     *controltest.Site
	atEast, atWest asker
}

func newPair(t *testing.T) *pair { return newPairWith(t, func(*control.Config) {}) }

// newPairWith is newPair with a change of the configuration of the server in the east.
func newPairWith(t *testing.T, change func(*control.Config)) *pair {
	t.Helper()
	p := &pair{east: controltest.StartSite(t, change), west: controltest.StartSite(t)}
	p.atEast, p.atWest = newAsker(t, p.east.URL), newAsker(t, p.west.URL)
	p.east.Meet(t, p.west, "west", access.Reader, access.Member, access.ProjectAdmin)
	p.west.Meet(t, p.east, "east", access.Reader, access.Member, access.ProjectAdmin)
	for _, a := range []asker{p.atEast, p.atWest} {
		for _, name := range []croft.Project{"anna", "berta", "shop"} {
			a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: name}).
				want(t, http.StatusCreated, "")
		}
	}
	return p
}

// maps gives members of a project in the east a role in a project in the west.
func (p *pair) maps(t *testing.T, theirs, project croft.Project, role access.Role) {
	t.Helper()
	p.atWest.ask(t, "operator", http.MethodPost, "/v1/projects/"+string(project)+"/mappings",
		api.NewMapping{Peer: "east", Theirs: theirs, Role: role}).want(t, http.StatusOK, "")
	patient.Until(t, "the west knows the mapping", func() bool {
		got := p.inWest(t, map[croft.Project]string{"anna": "anna", "berta": "berta"}[theirs], http.MethodGet,
			"/v1/whoami",
			nil)
		return got.status == http.StatusOK
	})
}

// inWest sends a request to the west through the east.
func (p *pair) inWest(t *testing.T, token, method, path string, body any, headers ...string) answer {
	t.Helper()
	return p.atEast.askWith(t, token, method, path, body, append(headers, "X-Croft-Partition", "west")...)
}

func TestARequestForAPeerIsForwarded(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.inWest(t, "anna", http.MethodGet, "/v1/instances", nil).want(t, http.StatusServiceUnavailable, api.BackendDown)
	p.maps(t, "anna", "shop", access.Member)

	var caller access.Caller
	p.inWest(t, "anna", http.MethodGet, "/v1/whoami", nil).into(t, &caller)
	if caller.User != "anna@east" || caller.Project != "shop" || caller.Partition != p.west.Cloud.Store.Partition() ||
		caller.Peer != p.east.Cloud.Store.Partition() {
		t.Errorf("in the west she is %+v", caller)
	}
	// the same name on both sides, each in its own cloud
	p.atEast.create(t, "anna", "web")
	got := p.inWest(t, "anna", http.MethodPost, "/v1/instances?wait=running", wanted("name", "web"))
	got.want(t, http.StatusOK, "")
	var made api.Instance
	got.into(t, &made)
	if made.Project != "shop" || made.HostID != "" || made.State != "running" {
		t.Errorf("made %+v", made)
	}
	p.inWest(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "web")).want(t, http.StatusConflict,
		api.NameTaken)
	for where, list := range map[string]answer{
		"east": p.atEast.ask(t, "anna", http.MethodGet, "/v1/instances", nil),
		"west": p.inWest(t, "anna", http.MethodGet, "/v1/instances", nil),
	} {
		var all api.InstanceList
		if list.into(t, &all); len(all.Instances) != 1 ||
			(all.Instances[0].ID == made.ID) != (where == "west") {
			t.Errorf("in the %s there are %+v", where, all.Instances)
		}
	}
	// objects of others are NotFound, and operations that peers may not do are refused
	p.inWest(t, "anna", http.MethodGet, "/v1/instances?project=anna", nil).want(t, http.StatusNotFound, api.NotFound)
	p.inWest(t, "anna", http.MethodGet, "/v1/hosts", nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	p.inWest(t, "operator", http.MethodGet, "/v1/hosts", nil, "X-Croft-Project", "anna").
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	p.inWest(t, "operator", http.MethodGet, "/v1/instances", nil).want(t, http.StatusBadRequest, api.BadRequest)
	p.inWest(t, "operator", http.MethodGet, "/v1/instances", nil, "X-Croft-Project", "anna").want(t, http.StatusOK, "")
	p.inWest(t, "reader", http.MethodDelete, "/v1/instances/web", nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	p.inWest(t, "reader", http.MethodGet, "/v1/instances/web", nil).want(t, http.StatusOK, "")
	p.inWest(t, "anna", http.MethodGet, "/v1/instances?nonsense=1", nil).want(t, http.StatusBadRequest, api.BadQuery)
	p.inWest(t, "nobody", http.MethodGet, "/v1/instances", nil).want(t, http.StatusUnauthorized, api.Unauthenticated)
	p.inWest(t, "", http.MethodGet, "/v1/instances", nil).want(t, http.StatusUnauthorized, api.Unauthenticated)
	for _, name := range []string{"south", "west2", "../west", strings.Repeat("x", 4000)} {
		p.atEast.askWith(t, "anna", http.MethodGet, "/v1/instances", nil, "X-Croft-Partition", name).
			want(t, http.StatusNotFound, api.NotFound)
	}
	for _, name := range []string{"home", string(p.east.Cloud.Store.Partition())} {
		got := p.atEast.askWith(t, "anna", http.MethodGet, "/v1/whoami", nil, "X-Croft-Partition", name)
		if got.into(t, &caller); caller.User != "anna" {
			t.Errorf("%s is %+v", name, caller)
		}
	}
	p.actionsOfBoth(t)
}

// actionsOfBoth checks the action logs after TestARequestForAPeerIsForwarded.
func (p *pair) actionsOfBoth(t *testing.T) {
	t.Helper()
	entry := func(a asker, project, operation, result string) actions.Entry {
		for _, e := range a.actions(t, "operator", "project="+project, 1) {
			if e.Operation == operation && e.Result == result {
				return e
			}
		}
		t.Errorf("%s in %s is in no log as %s", operation, project, result)
		return actions.Entry{}
	}
	if e := entry(p.atEast, "anna", "createInstance", string(api.NameTaken)); e.Object.Name != "west:" ||
		e.User != "anna" {
		t.Errorf("the east tells %+v", e)
	}
	if e := entry(p.atWest, "shop", "createInstance", actions.Done); e.User != "anna@east" ||
		e.Via != "peer east, project anna" || e.Object.Name != "web" {
		t.Errorf("the west tells %+v", e)
	}
}

func TestTheQuotaOfTheOtherSideHolds(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.maps(t, "anna", "shop", access.ProjectAdmin)
	var shop tenant.Tenant
	p.atWest.ask(t, "operator", http.MethodGet, "/v1/projects/shop", nil).into(t, &shop)
	p.atWest.askWith(t, "operator", http.MethodPut, "/v1/projects/shop/quota",
		api.Limits{Limits: tenant.Limits{"instances": 2}}, "If-Match", fmt.Sprint(shop.Generation)).want(t,
		http.StatusOK, "")
	// the admin of a project in the east divides the quota in the west
	got := p.inWest(t, "admin", http.MethodPost, "/v1/projects", api.NewProject{Name: "shop-dev", Parent: "shop"})
	got.want(t, http.StatusCreated, "")
	var child tenant.Tenant
	got.into(t, &child)
	p.inWest(t, "admin", http.MethodPut, "/v1/projects/shop-dev/quota",
		api.Limits{Limits: tenant.Limits{"instances": 1}},
		"If-Match", fmt.Sprint(child.Generation)).want(t, http.StatusOK, "")
	// only operators may map another project of the east, which may belong to another tenant there
	mapping := api.NewMapping{Peer: "east", Theirs: "berta", Role: access.Member}
	p.inWest(t, "admin", http.MethodPost, "/v1/projects/shop-dev/mappings", mapping).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	p.atWest.ask(t, "operator", http.MethodPost, "/v1/projects/"+string(child.Name)+"/mappings", mapping).
		want(t, http.StatusOK, "")
	p.inWest(t, "admin", http.MethodPost, "/v1/projects/berta/mappings", mapping).want(t, http.StatusNotFound,
		api.NotFound)
	mapping.Peer = "west"
	p.inWest(t, "admin", http.MethodPost, "/v1/projects/shop-dev/mappings", mapping).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	// rights that would outlive the peer are refused
	p.inWest(t, "admin", http.MethodPost, "/v1/tokens", api.NewToken{User: "x", Role: access.Member, Life: "24h"}).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	p.inWest(t, "admin", http.MethodPut, "/v1/projects/shop-dev/members",
		api.Members{Members: map[string]access.Role{"x": access.Member}}, "If-Match", "1").
		want(t, http.StatusForbidden, api.ForbiddenVerb)

	patient.Until(t, "the west knows the mapping", func() bool {
		return p.inWest(t, "berta", http.MethodGet, "/v1/whoami", nil).status == http.StatusOK
	})
	p.inWest(t, "berta", http.MethodPost, "/v1/instances", wanted("name", "one")).want(t, http.StatusAccepted, "")
	p.inWest(t, "berta", http.MethodPost, "/v1/instances", wanted("name", "two")).
		want(t, http.StatusForbidden, api.QuotaExceeded)
	p.inWest(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "one")).want(t, http.StatusAccepted, "")
	p.inWest(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "two")).
		want(t, http.StatusForbidden, api.QuotaExceeded)
	p.atEast.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "two")).want(t, http.StatusAccepted, "")
	var account tenant.Account
	p.atEast.ask(t, "operator", http.MethodGet, "/v1/projects/shop/quota", nil).into(t, &account)
	if account.Used["instances"] != 0 {
		t.Errorf("the same name in the east is charged: %v", account.Used)
	}
}

func TestTheEndOfAPeerCutsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.maps(t, "anna", "shop", access.Member)
	p.inWest(t, "anna", http.MethodPost, "/v1/instances?wait=running", wanted("name", "web")).want(t, http.StatusOK, "")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.east.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer anna")
	r.Header.Set("X-Croft-Partition", "west")
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK || stream.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(stream.Status, stream.Header)
	}
	lines := bufio.NewScanner(stream.Body)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "id: ") {
		t.Errorf("the stream begins with %q", lines.Text())
	}
	p.inWest(t, "anna", http.MethodPost, "/v1/instances/web/stop?wait=stopped", nil).want(t, http.StatusOK, "")
	for lines.Scan() && lines.Text() != "event: instance" {
	}
	if lines.Text() != "event: instance" {
		t.Error("the change does not come through")
	}
	p.atWest.ask(t, "operator", http.MethodDelete, "/v1/peers/east", nil).want(t, http.StatusOK, "")
	for lines.Scan() {
	}
	patient.Until(t, "the west has forgotten the peer", func() bool {
		return p.inWest(t, "anna", http.MethodGet, "/v1/whoami", nil).status == http.StatusServiceUnavailable
	})
	var all api.InstanceList
	p.atWest.ask(t, "operator", http.MethodGet, "/v1/instances?project=shop", nil).into(t, &all)
	if len(all.Instances) != 1 {
		t.Errorf("the instances of the project are %+v", all.Instances)
	}
}

// TestAForwardedRequestIsNotForwardedAgain asks the west, with an assertion of the east, for a third cloud.
func TestAForwardedRequestIsNotForwardedAgain(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.maps(t, "anna", "shop", access.Member)
	var seen http.Header
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"partition":"x","user":"x","roles":[],"via":"x"}`)
	}))
	t.Cleanup(relay.Close)
	card := p.west.Card(t)
	card.Endpoint = relay.URL
	p.east.Add(t, card, "west")
	p.inWest(t, "anna", http.MethodGet, "/v1/whoami", nil, "Cookie", "a=b", "X-Auth-Token", "secret", "Forwarded",
		"for=x")
	for _, name := range []string{"Cookie", "X-Auth-Token", "Forwarded", "X-Croft-Partition", "X-Forwarded-For"} {
		if seen.Get(name) != "" {
			t.Errorf("%s leaves the cloud: %v", name, seen)
		}
	}
	if strings.Contains(fmt.Sprint(seen), "anna ") || strings.Contains(seen.Get("Authorization"), "Bearer") {
		t.Errorf("the token leaves the cloud: %v", seen)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.west.URL+"/v1/whoami", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Authorization", assertion.IdentityHeader, "Content-Type", "Accept"} {
		r.Header[name] = seen[name]
	}
	r.Header.Set("X-Croft-Partition", "east")
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if text, _ := io.ReadAll(got.Body); got.StatusCode != http.StatusBadRequest ||
		!strings.Contains(string(text), "is not forwarded again") {
		t.Errorf("%d %s", got.StatusCode, text)
	}
}

func TestAPeerThatMisbehavesIsOneSentence(t *testing.T) {
	t.Parallel()
	site := controltest.StartSite(t)
	a := newAsker(t, site.URL)
	card := controltest.StartSite(t).Card(t)
	var asked atomic.Int32
	metadata := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(metadata.Close)
	json200 := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
	for _, c := range []struct {
		name, says string
		answer     http.HandlerFunc
	}{
		{"HTML", `answers 200 as "text/html"`, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<script>alert(1)</script>")
		}},
		{"a gigabyte", "longer than 16 MiB", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for chunk := strings.Repeat("x", 1<<20); ; {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}},
		{"half an answer", "it does not answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			json200(w, "{")
		}},
		{"no JSON", "no JSON", func(w http.ResponseWriter, _ *http.Request) { json200(w, "{") }},
		{"a redirect to the metadata server", "redirects", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, metadata.URL, http.StatusTemporaryRedirect)
		}},
		{"an error that is none", "without a code", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(500)
			_, _ = io.WriteString(w, `{"code":"surprise"}`)
		}},
		{"a demand for credentials", "refuses this cloud, in its own words: no", func(w http.ResponseWriter,
			_ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(401)
			_, _ = io.WriteString(w, `{"code":"unauthenticated","detail":"no\u001b[2J"}`)
		}},
		{"a closed connection", "it does not answer", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(c.answer)
			t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
			card.Endpoint = s.URL
			site.Add(t, card, "odd", access.Reader, access.Member)
			got := a.askWith(t, "anna", http.MethodGet, "/v1/instances", nil, "X-Croft-Partition", "odd")
			got.want(t, http.StatusServiceUnavailable, api.BackendDown)
			if !strings.Contains(got.problem.Detail, c.says) || strings.Contains(got.problem.Detail, "\x1b") {
				t.Errorf("it says %q, want %q", got.problem.Detail, c.says)
			}
			got.hides(t, s.URL, "script")
		})
	}
	if asked.Load() != 0 {
		t.Error("the redirect was followed")
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	secure.Config.ErrorLog = nil
	card.Endpoint = secure.URL
	site.Add(t, card, "odd", access.Reader, access.Member)
	got := a.askWith(t, "anna", http.MethodGet, "/v1/instances", nil, "X-Croft-Partition", "odd")
	got.want(t, http.StatusServiceUnavailable, api.BackendDown)
	if !strings.Contains(got.problem.Detail, "does not trust the certificate") {
		t.Errorf("of a wrong certificate it says %q", got.problem.Detail)
	}
	for _, endpoint := range []string{"http://169.254.169.254", "https://169.254.169.254", "http://example.org",
		"https://x/y",
		"https://u:p@x", "ftp://x", "https://[fe80::1]", "https://0.0.0.0", "https://[::ffff:169.254.169.254]", ""} {
		card.Endpoint = endpoint
		a.ask(t, "operator", http.MethodPost, "/v1/peers", federation.NewPeer{Card: card, Alias: "odd"}).
			want(t, http.StatusBadRequest, api.BadRequest)
	}
	text, err := json.Marshal(card)
	if err != nil {
		t.Fatal(err)
	}
	a.ask(t, "anna", http.MethodPost, "/v1/peers", `{"card":`+string(text)+`}`).want(t, http.StatusForbidden,
		api.ForbiddenVerb)
}

// TestOnlyKnownHeadersOfAPeerArePassedOn: unknown headers before the answer and trailers after it are dropped.
func TestOnlyKnownHeadersOfAPeerArePassedOn(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</x>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Trailer", "X-After")
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.Header().Set("X-After", "late")
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "late")
	}))
	t.Cleanup(s.Close)
	site := controltest.StartSite(t)
	card := controltest.StartSite(t).Card(t)
	card.Endpoint = s.URL
	site.Add(t, card, "odd", access.Reader, access.Member)
	early := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { early = true; return nil }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, site.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer anna")
	r.Header.Set("X-Croft-Partition", "odd")
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if text, err := io.ReadAll(got.Body); err != nil || string(text) != "data: 1\n\n" {
		t.Errorf("the stream: %q, %v", text, err)
	}
	if early || len(got.Trailer) != 0 || got.Header.Get("Set-Cookie") != "" || got.Header.Get("Link") != "" {
		t.Errorf("early %v, headers %v, trailers %v", early, got.Header, got.Trailer)
	}
}

// TestAPeerThatHangs: a forwarded request ends when its client disconnects.
func TestAPeerThatHangs(t *testing.T) {
	t.Parallel()
	site := controltest.StartSite(t)
	arrived := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	card := controltest.StartSite(t).Card(t)
	card.Endpoint = s.URL
	site.Add(t, card, "odd", access.Member)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, site.URL+"/v1/instances", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer anna")
	r.Header.Set("X-Croft-Partition", "odd")
	go func() { <-arrived; cancel() }()
	if _, err := client.Do(r); err == nil {
		t.Error("it answers")
	}
}

// TestAConsoleOfAPeerIsReached speaks with a guest in the west over a WebSocket to the east.
func TestAConsoleOfAPeerIsReached(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	network := echo{make(chan croft.InstanceID, 1)}
	p.west.Under.Ports = network
	p.maps(t, "anna", "shop", access.Member)
	p.inWest(t, "anna", http.MethodPost, "/v1/instances?wait=running", wanted("name", "web")).want(t, http.StatusOK, "")
	dial := func(token, query string) (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), p.east.URL+"/v1/instances/web/forward"+query, &websocket.DialOptions{
			HTTPHeader: http.Header{"Authorization": {"Bearer " + token}, "X-Croft-Partition": {"west"}}})
	}
	if _, got, err := dial("reader", ""); err == nil || got.StatusCode != http.StatusForbidden {
		t.Errorf("a reader: %+v, %v", got, err)
	}
	if _, got, err := dial("anna", "?port=0"); err == nil || got.StatusCode != http.StatusBadRequest {
		t.Errorf("no port: %+v, %v", got, err)
	}
	socket, _, err := dial("anna", "")
	if err != nil {
		t.Fatal(err)
	}
	<-network.asked
	stream := websocket.NetConn(t.Context(), socket, websocket.MessageBinary)
	if _, err := io.WriteString(stream, "hello\n"); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("hello\nhello\n"))
	if _, err := io.ReadFull(stream, said); err != nil || string(said) != "hello\nhello\n" {
		t.Errorf("it says %q, %v", said, err)
	}
	_ = stream.Close()
}

// One project keeps as many streams of another cloud open as it may have. Other projects, and its own requests, are
// still served.
func TestStreamsOfOneProjectLeaveTurnsForOthers(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.maps(t, "anna", "shop", access.Reader)
	p.maps(t, "berta", "berta", access.Reader)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for open := 0; ; open++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.east.URL+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer anna")
		r.Header.Set("X-Croft-Partition", "west")
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		if got.StatusCode != http.StatusOK {
			if got.StatusCode != http.StatusServiceUnavailable || open == 0 {
				t.Errorf("stream %d is refused with %s", open+1, got.Status)
			}
			break
		}
		if open >= 100 {
			t.Fatal("one project has 100 streams")
		}
	}
	for _, token := range []string{"anna", "berta"} {
		p.inWest(t, token, http.MethodGet, "/v1/whoami", nil).want(t, http.StatusOK, "")
	}
}
