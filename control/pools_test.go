package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft/control"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/controltest"
	"croft/internal/testing/patient"
	pools "croft/pool/api"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/tenant/objects/objectstest"
)

// open opens a ticket and returns it as the caller sees it.
func (a asker) open(t *testing.T, token, query string, body map[string]any, status int) (ticket pools.Ticket) {
	t.Helper()
	got := a.ask(t, token, http.MethodPost, "/v1/tickets"+query, body)
	if got.want(t, status, ""); got.status == status {
		got.into(t, &ticket)
	}
	return ticket
}

func tags(all ...string) map[string]any { return map[string]any{"tags": all} }

func TestATenantOpensUsesAndClosesATicket(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	ticket := a.open(t, "anna", "?wait=ready&timeout=1m", tags("annas"), http.StatusOK)
	if ticket.Project != "anna" || ticket.Resource == nil ||
		!strings.HasPrefix(string(ticket.Resource.Data), "secret-") {
		t.Errorf("opened %+v", ticket)
	}
	path := fmt.Sprintf("/v1/tickets/%d", ticket.ID)
	a.ask(t, "anna", http.MethodPost, path+"/renew", nil).want(t, http.StatusConflict, api.BadState)
	for range 2 {
		var closed pools.Ticket
		a.ask(t, "anna", http.MethodDelete, path, nil).into(t, &closed)
		if closed.State != pools.TicketClosed {
			t.Errorf("closed %+v", closed)
		}
	}
	a.ask(t, "anna", http.MethodPost, path+"/renew", nil).want(t, http.StatusConflict, api.BadState)
	var done []string
	for _, e := range a.actions(t, "anna", "object=ticket/1", 5) {
		done = append(done, e.Operation+" "+e.Object.String()+" "+e.Result+" "+string(e.Project))
	}
	want := []string{"openTicket ticket/1 done anna", "renewTicket ticket/1 bad_state anna",
		"closeTicket ticket/1 done anna", "closeTicket ticket/1 done anna", "renewTicket ticket/1 bad_state anna"}
	if !slices.Equal(done, want) {
		t.Errorf("the log has %q", done)
	}
}

func TestTicketsOfOthersAreNotThere(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	theirs := a.open(t, "berta", "?wait=ready", tags("shared"), http.StatusOK)
	path := fmt.Sprintf("/v1/tickets/%d", theirs.ID)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		for _, token := range []string{"anna", "adam", "admin"} {
			got := a.ask(t, token, method, path, nil)
			got.want(t, http.StatusNotFound, api.NotFound)
			none := a.ask(t, token, method, "/v1/tickets/4711", nil)
			if strings.ReplaceAll(string(got.body), fmt.Sprint(theirs.ID), "N") !=
				strings.ReplaceAll(string(none.body), "4711", "N") {
				t.Errorf("%s is told %s of it, and %s of none", token, got.body, none.body)
			}
		}
	}
	a.ask(t, "anna", http.MethodPost, path+"/renew", nil).want(t, http.StatusNotFound, api.NotFound)
	for token, want := range map[string]int{"anna": 0, "reader": 0, "adam": 0, "berta": 1, "operator": 1} {
		var list api.TicketList
		if a.ask(t, token, http.MethodGet, "/v1/tickets", nil).into(t, &list); len(list.Tickets) != want {
			t.Errorf("%s sees %+v", token, list.Tickets)
		}
	}
	var still pools.Ticket
	if a.ask(t, "berta", http.MethodGet, path, nil).into(t, &still); still.State != pools.TicketOpen {
		t.Errorf("it is %s", still.State)
	}
	// A key or sandbox of another project has no effect.
	theirs = a.open(t, "berta", "?wait=ready", map[string]any{"tags": []string{"shared"}, "key": "k"}, http.StatusOK)
	if mine := a.open(t, "anna", "?wait=ready", map[string]any{"tags": []string{"shared"}, "key": "k"},
		http.StatusOK); mine.ID == theirs.ID {
		t.Error("two projects with one key share a ticket")
	}
}

func TestTheAdminOfAProjectSeesTicketsBelow(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	below := a.open(t, "adam", "?project=dev&wait=ready", tags("shared"), http.StatusOK)
	if below.Project != "dev" {
		t.Errorf("opened %+v", below)
	}
	var list api.TicketList
	a.ask(t, "adam", http.MethodGet, "/v1/tickets?project=dev", nil).into(t, &list)
	if len(list.Tickets) != 1 || list.Tickets[0].ID != below.ID {
		t.Errorf("listed %+v", list)
	}
	path := fmt.Sprintf("/v1/tickets/%d", below.ID)
	a.ask(t, "adam", http.MethodGet, path+"?project=org", nil).want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "adam", http.MethodDelete, path, nil).want(t, http.StatusOK, "")
}

func TestWhatATenantSeesOfPools(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	a.open(t, "berta", "?wait=ready", tags("shared"), http.StatusOK)
	mine := a.open(t, "anna", "?wait=ready", tags("shared"), http.StatusOK)
	for token, want := range map[string]string{"anna": "annas everybodys", "berta": "victims everybodys",
		"reader": "annas everybodys", "adam": "everybodys", "operator": "annas victims everybodys apart"} {
		got := a.ask(t, token, http.MethodGet, "/v1/pools", nil)
		var list api.PoolList
		got.into(t, &list)
		var names []string
		for _, p := range list.Pools {
			names = append(names, p.Name)
			own := p.Project != ""
			if whole := p.Stock != nil; whole != (own || token == "operator") {
				t.Errorf("%s sees of %s %+v", token, p.Name, p)
			}
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%s sees %q", token, names)
		}
		for _, name := range []string{"annas", "victims", "everybodys", "apart", "nowhere"} {
			status, code := http.StatusNotFound, api.NotFound
			if slices.Contains(names, name) {
				status, code = http.StatusOK, ""
			}
			a.ask(t, token, http.MethodGet, "/v1/pools/"+name, nil).want(t, status, code)
			a.ask(t, token, http.MethodGet, "/v1/pools/"+name+"/resources", nil).want(t, status, code)
		}
	}
	// Of a shared pool, a tenant sees only the resources that it holds.
	for token, want := range map[string][]int64{"anna": {mine.Resource.ID}, "reader": {mine.Resource.ID}} {
		got := a.ask(t, token, http.MethodGet, "/v1/pools/everybodys/resources?all=true", nil)
		var list api.PoolResourceList
		got.into(t, &list)
		var ids []int64
		for _, r := range list.Resources {
			ids = append(ids, r.ID)
		}
		if got.hides(t, "secret-", `"sandbox"`); !slices.Equal(ids, want) {
			t.Errorf("%s sees %d, want %d", token, ids, want)
		}
	}
	var list api.PoolResourceList
	for len(list.Resources) == 0 { // the admin of the owning project sees free resources, once there are any
		a.ask(t, "adam", http.MethodGet, "/v1/pools/everybodys/resources", nil).into(t, &list)
	}
	for _, r := range list.Resources {
		if r.Ticket != 0 {
			t.Errorf("the admin of the project that has the pool sees what others have: %+v", r)
		}
	}
}

func TestWhatCommandsPrintedIsForAdminsOfThePool(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	ticket := a.open(t, "anna", "?wait=ready", tags("annas"), http.StatusOK)
	log := func(pool, resource string) string { return "/v1/pools/" + pool + "/resources/" + resource + "/log" }
	got := a.ask(t, "admin", http.MethodGet, log("annas", ticket.Resource.Name), nil)
	got.want(t, http.StatusOK, "")
	if want := fmt.Sprintf("==> %06d_alloc <==\nsecret-%[1]d\n", ticket.Resource.ID); string(got.body) != want {
		t.Errorf("the log is %q, want %q", got.body, want)
	}
	a.ask(t, "anna", http.MethodGet, log("annas", ticket.Resource.Name), nil).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	shared := a.open(t, "anna", "?wait=ready", tags("shared"), http.StatusOK)
	for _, path := range []string{log("everybodys", shared.Resource.Name), log("annas", shared.Resource.Name),
		log("victims", "1"), log("annas", "nothing")} {
		a.ask(t, "admin", http.MethodGet, path, nil).want(t, http.StatusNotFound, api.NotFound)
	}
	a.ask(t, "adam", http.MethodGet, log("everybodys", shared.Resource.Name), nil).
		want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "operator", http.MethodGet, log("everybodys", shared.Resource.Name), nil).want(t, http.StatusOK, "")
}

// TestReadersSeeNotWhatIsHandedOut: the data of a ticket may be a password.
func TestReadersSeeNotWhatIsHandedOut(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	ticket := a.open(t, "anna", "?wait=ready", tags("annas"), http.StatusOK)
	one := fmt.Sprintf("/v1/tickets/%d", ticket.ID)
	a.ask(t, "reader", http.MethodGet, one, nil).hides(t, "secret-")
	if got := a.ask(t, "anna", http.MethodGet, one, nil); !strings.Contains(string(got.body), "secret-") {
		t.Errorf("a member does not see it: %s", got.body)
	}
	for _, caller := range []string{"reader", "anna"} { // lists leave it out, as they do user-data
		a.ask(t, caller, http.MethodGet, "/v1/tickets", nil).hides(t, "secret-")
	}
}

func TestATicketIsChargedOnce(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	for _, p := range []api.NewProject{{Name: "berta"}, {Name: "org"}, {Name: "dev", Parent: "org"}} {
		a.ask(t, "operator", http.MethodPost, "/v1/projects", p).want(t, http.StatusCreated, "")
	}
	limit := func(project string, n int) {
		p := a.ask(t, "operator", http.MethodGet, "/v1/projects/"+project, nil)
		a.askWith(t, "operator", http.MethodPut, "/v1/projects/"+project+"/quota",
			map[string]any{"limits": map[string]any{"tickets": n}}, "If-Match", p.generation()).
			want(t, http.StatusOK, "")
	}
	used := func(project string, want int64) {
		t.Helper()
		var account struct{ Used map[string]int64 }
		a.ask(t, "operator", http.MethodGet, "/v1/projects/"+project+"/quota", nil).into(t, &account)
		if account.Used["tickets"] != want {
			t.Errorf("%s is charged with %d tickets, want %d", project, account.Used["tickets"], want)
		}
	}
	limit("berta", 2)
	key := func(k string) map[string]any { return map[string]any{"tags": []string{"shared"}, "key": k} }
	first := a.open(t, "berta", "?wait=ready", key("one"), http.StatusOK)
	for range 3 { // as after a lost answer
		if again := a.open(t, "berta", "?wait=ready", key("one"), http.StatusOK); again.ID != first.ID {
			t.Errorf("asked again, ticket %d is %d", first.ID, again.ID)
		}
	}
	used("berta", 1)
	a.ask(t, "berta", http.MethodPost, "/v1/tickets", map[string]any{"tags": []string{"other"}, "key": "one"}).
		want(t, http.StatusConflict, api.UUIDReused)
	used("berta", 1)

	answers := make([]answer, 8)
	var asked sync.WaitGroup
	for i := range answers {
		asked.Go(func() { answers[i] = a.ask(t, "berta", http.MethodPost, "/v1/tickets", tags("shared")) })
	}
	asked.Wait()
	opened := 0
	for _, got := range answers {
		if got.status < http.StatusMultipleChoices {
			opened++
			continue
		}
		got.want(t, http.StatusForbidden, api.QuotaExceeded)
		if p := got.problem; p.Resource != "tickets" || p.Project != "berta" || p.Limit == nil || *p.Limit != 2 ||
			*p.Used != 2 || *p.Requested != 1 {
			t.Errorf("refused with %s", got.body)
		}
	}
	if opened != 1 {
		t.Errorf("%d tickets were opened beside the first, of a quota of 2", opened)
	}
	used("berta", 2)
	for range 2 {
		a.ask(t, "berta", http.MethodDelete, fmt.Sprintf("/v1/tickets/%d", first.ID), nil).want(t, http.StatusOK, "")
	}
	used("berta", 1)

	// For a quota above the caller's projects, the answer says only that it is used up.
	limit("org", 0)
	got := a.ask(t, "adam", http.MethodPost, "/v1/tickets?project=dev", tags("shared"))
	got.want(t, http.StatusForbidden, api.QuotaExceeded)
	if got.problem.Project != "org" {
		t.Errorf("the admin of the project above is told %s", got.body)
	}
	dev := a.ask(t, "dora", http.MethodPost, "/v1/tickets", tags("shared"))
	dev.want(t, http.StatusForbidden, api.QuotaExceeded)
	if dev.hides(t, "org"); dev.problem.Limit != nil || dev.problem.Project != "" {
		t.Errorf("a member below is told %s", dev.body)
	}
}

func TestAnExpiredTicketIsRepaid(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "berta"}).want(t, http.StatusCreated, "")
	a.open(t, "berta", "?wait=ready", map[string]any{"tags": []string{"shared"}, "ttl": 1}, http.StatusOK)
	for {
		var account struct{ Used map[string]int64 }
		a.ask(t, "operator", http.MethodGet, "/v1/projects/berta/quota", nil).into(t, &account)
		if account.Used["tickets"] == 0 {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("it is charged for ever")
		}
	}
}

func TestAWaitForATicketIsBoundedAndSaysWhatFor(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	for range 3 {
		a.open(t, "berta", "?wait=ready", tags("shared"), http.StatusOK)
	}
	waiting := a.open(t, "anna", "?wait=ready&timeout=50ms", tags("shared"), http.StatusAccepted)
	if waiting.Never || waiting.WaitsFor != "pool everybodys has nothing ready" {
		t.Errorf("it waits for %q", waiting.WaitsFor)
	}
	path := fmt.Sprintf("/v1/tickets/%d", waiting.ID)
	a.ask(t, "anna", http.MethodGet, path+"?wait=ready&timeout=50ms", nil).want(t, http.StatusAccepted, "")
	a.ask(t, "anna", http.MethodGet, path, nil).want(t, http.StatusOK, "")
	vain := a.open(t, "anna", "?wait=ready&timeout=10m", tags("shared", "apart"), http.StatusAccepted)
	if !vain.Never || strings.Contains(vain.WaitsFor, "pool apart") {
		t.Errorf("it waits for %q", vain.WaitsFor)
	}
	for _, bad := range []string{"0s", "-1s", "11m", "soon"} {
		got := a.ask(t, "anna", http.MethodPost, "/v1/tickets?wait=ready&timeout="+bad, tags("shared"))
		got.want(t, http.StatusBadRequest, api.BadQuery)
	}
	var list api.TicketList
	if a.ask(t, "anna", http.MethodGet, "/v1/tickets", nil).into(t, &list); len(list.Tickets) != 2 {
		t.Errorf("what was refused opened %+v", list.Tickets)
	}
	// When another caller closes the ticket, the wait ends.
	answered := make(chan answer)
	go func() { answered <- a.ask(t, "anna", http.MethodGet, path+"?wait=ready&timeout=1m", nil) }()
	a.ask(t, "operator", http.MethodDelete, path, nil).want(t, http.StatusOK, "")
	got := <-answered
	got.want(t, http.StatusOK, "")
	var ended pools.Ticket
	if got.into(t, &ended); ended.State != pools.TicketClosed {
		t.Errorf("the wait ended with %+v", ended)
	}
}

func TestTicketsAreListedInPages(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	for range 5 {
		a.open(t, "anna", "", tags("nowhere"), http.StatusAccepted)
		a.open(t, "berta", "", tags("nowhere"), http.StatusAccepted)
	}
	var all []int64
	for after := ""; ; {
		var page api.TicketList
		a.ask(t, "anna", http.MethodGet, "/v1/tickets?limit=2"+after, nil).into(t, &page)
		for _, one := range page.Tickets {
			all = append(all, one.ID)
		}
		if page.Next == "" {
			break
		}
		after = "&after=" + url.QueryEscape(page.Next)
	}
	if !slices.Equal(all, []int64{9, 7, 5, 3, 1}) {
		t.Errorf("listed %d", all)
	}
	a.ask(t, "anna", http.MethodGet, "/v1/tickets?after=x", nil).want(t, http.StatusBadRequest, api.BadQuery)
}

// handing is a manager of pools that answers with a ticket whose resource is an instance of a project.
func handing(t *testing.T, project string) *pools.Client {
	t.Helper()
	facts := map[string]any{"instance": "11111111-1111-4111-8111-111111111111", "name": "guest", "project": project,
		"host": "host1", "address": "192.0.2.7", "host_key": "ssh-ed25519 AAAA"}
	text, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ticket := pools.Ticket{ID: 1, State: pools.TicketFailed, Owner: "control", Project: "anna", Tags: []string{},
		Opened: now, Served: now, Reason: "host1 is on fire", Resource: &pools.Resource{ID: 1, Name: "r", Pool: "p",
			State: "UP", Data: pools.Text("192.0.2.7"), Facts: text, Instance: "11111111-1111-4111-8111-111111111111",
			Sandbox: "box", Reason: "host1 burns", Error: "of host1", Counters: map[string]int{"port": 7},
			Created: now}}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query()["project"]; !slices.Equal(got, []string{"", "anna"}) {
			t.Errorf("the manager is asked about tickets of %q", got)
		}
		_ = json.NewEncoder(w).Encode(ticket) // on an error the test finds no ticket
	}))
	t.Cleanup(served.Close)
	c, err := pools.New(pools.Config{Endpoints: []string{served.URL}, Transport: served.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// alone serves the API with no dependencies but a manager of pools.
func alone(t *testing.T, manager *pools.Client) asker {
	t.Helper()
	server, err := control.New(control.Config{Cloud: &cloud.Cloud{}, Callers: access.First(controltest.Known),
		Objects: objects.New(&objectstest.Memory{}), Images: controltest.Images{}, Pools: manager,
		Actions: actions.NewRecorder(nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return newAsker(t, controltest.Serve(t, server.Handler()))
}

func TestATicketTellsATenantNothingOfHosts(t *testing.T) {
	t.Parallel()
	for project, hidden := range map[string][]string{"anna": nil,
		"org": {"org", "11111111-1111-4111-8111-111111111111", "guest", "port"}} {
		got := alone(t, handing(t, project)).ask(t, "anna", http.MethodGet, "/v1/tickets/1", nil)
		got.want(t, http.StatusOK, "")
		got.hides(t, append(hidden, "host1", "control", "box")...)
		if !strings.Contains(string(got.body), `"address":"192.0.2.7","host_key":"ssh-ed25519 AAAA"`) {
			t.Errorf("the address is missing: %s", got.body)
		}
	}
}

// TestWithoutAManagerOfPools: each request gets an error, soon.
func TestWithoutAManagerOfPools(t *testing.T) {
	t.Parallel()
	none, err := pools.New(pools.Config{Patience: time.Millisecond,
		Locate: func() (string, error) { return "", control.ErrNoPools }})
	if err != nil {
		t.Fatal(err)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	away, err := pools.New(pools.Config{Patience: time.Millisecond, Endpoints: []string{gone.URL},
		Transport: &http.Transport{}})
	if err != nil {
		t.Fatal(err)
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"error": "the token control is a client's, and only admins name projects"}`))
	}))
	defer refusing.Close()
	stranger, err := pools.New(pools.Config{Endpoints: []string{refusing.URL}, Transport: refusing.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		manager *pools.Client
		says    string
	}{
		"none is configured":            {nil, "croft serve pool"},
		"none acts":                     {none, "croft serve pool"},
		"it does not answer":            {away, "ask its operators about number"},
		"it does not believe the token": {stranger, "ask its operators about number"},
	} {
		t.Run(name, func(t *testing.T) {
			a := alone(t, c.manager)
			for _, o := range controltest.Operations() {
				if o.Tag != "pools" && o.Tag != "tickets" || o.ID == "getResourceLog" ||
					o.ID == "changePool" {
					continue
				}
				path := strings.NewReplacer("{id}", "1", "{name}", "x").Replace(o.Path)
				got := a.ask(t, "anna", o.Method, path, map[bool]any{true: tags("a")}[o.Body != ""])
				got.want(t, http.StatusServiceUnavailable, api.BackendDown)
				if !strings.Contains(got.problem.Detail, c.says) {
					t.Errorf("%s says %q", o.ID, got.problem.Detail)
				}
			}
		})
	}
}

func TestOperatorsAloneChangeTheSizeOfAPool(t *testing.T) {
	t.Parallel()
	at, _ := controltest.StartWithPools(t)
	a := newAsker(t, at)
	for _, token := range []string{"anna", "admin"} {
		a.ask(t, token, http.MethodPatch, "/v1/pools/annas", map[string]any{"max": 9}).
			want(t, http.StatusForbidden, api.ForbiddenVerb)
	}
	patient.Until(t, "the manager has read its file", func() bool {
		return a.ask(t, "operator", http.MethodGet, "/v1/pools/annas", nil).status == http.StatusOK
	})
	var changed pools.Pool
	got := a.ask(t, "operator", http.MethodPatch, "/v1/pools/annas", map[string]any{"max": 9, "max_prealloc": 3})
	if got.want(t, http.StatusOK, ""); got.status == http.StatusOK {
		got.into(t, &changed)
	}
	if changed.Stock == nil || changed.Max != 9 || changed.MaxPrealloc != 3 || changed.InFile == nil {
		t.Fatalf("changed to %+v", changed)
	}
	file := *changed.InFile
	a.ask(t, "operator", http.MethodPatch, "/v1/pools/annas", map[string]any{"max": nil, "max_prealloc": nil}).
		into(t, &changed)
	if changed.Max != file.Max || changed.MaxPrealloc != file.MaxPrealloc {
		t.Errorf("returned to %+v, want the sizes of the file, %+v", changed.Stock, file)
	}
	for _, c := range []struct {
		pool string
		body map[string]any
		want int
		code api.Code
	}{
		{"annas", map[string]any{}, http.StatusBadRequest, api.BadRequest},
		{"annas", map[string]any{"max": "many"}, http.StatusBadRequest, api.SchemaViolation},
		{"annas", map[string]any{"max": 1.5}, http.StatusBadRequest, api.SchemaViolation},
		{"annas", map[string]any{"max": -1}, http.StatusBadRequest, api.SchemaViolation},
		{"annas", map[string]any{"max_prealloc": 99}, http.StatusBadRequest, api.BadRequest},
		{"nobodys", map[string]any{"max": 1}, http.StatusNotFound, api.NotFound},
	} {
		a.ask(t, "operator", http.MethodPatch, "/v1/pools/"+c.pool, c.body).want(t, c.want, c.code)
	}
	var done []string
	for _, e := range a.actions(t, "operator", "object=pool/annas", 2) {
		done = append(done, e.Result)
	}
	if len(done) < 2 {
		t.Errorf("the action log has %q", done)
	}
}

// TestAWaitEndsWithItsClient: the server stops waiting when the client disconnects.
func TestAWaitEndsWithItsClient(t *testing.T) {
	t.Parallel()
	asked, ended := make(chan bool, 10), make(chan bool, 10)
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("wait") != "" {
			asked <- true
			<-r.Context().Done()
			ended <- true
			return
		}
		_ = json.NewEncoder(w).Encode(pools.Ticket{ID: 1, State: pools.TicketOpen, Project: "anna"}) // as in handing
	}))
	defer served.Close()
	manager, err := pools.New(pools.Config{Endpoints: []string{served.URL}, Transport: served.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	a := alone(t, manager)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/v1/tickets/1?wait=ready&timeout=10m", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer anna")
	go func() { <-asked; cancel() }()
	if got, err := client.Do(r); err == nil {
		_ = got.Body.Close()
		t.Errorf("answered %s", got.Status)
	}
	<-ended
}
