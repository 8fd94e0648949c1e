package control_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/cluster"
	"croft/control"
	"croft/control/api"
	"croft/control/controltest"
	"croft/internal/testing/patient"
	pools "croft/pool/api"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/access/oidc"
	"croft/tenant/access/oidc/oidctest"
	"croft/test/simcloud"
)

// role is a way to have rights in a project.
type role struct {
	name, token string
	by          asker // the server to ask: for users of a peer, the peer
	headers     []string
}

func (r role) ask(t *testing.T, method, path string, body any) answer {
	t.Helper()
	return r.by.askWith(t, r.token, method, path, body, r.headers...)
}

// send sends a try in this role.
func (r role) send(t *testing.T, one try) (status int, text string) {
	t.Helper()
	if one.header = one.header.Clone(); one.header == nil {
		one.header = http.Header{}
	}
	for pair := range slices.Chunk(r.headers, 2) {
		one.header.Set(pair[0], pair[1])
	}
	patient.Until(t, "the peer answers", func() bool { // after an error the peer is retried only after a delay
		status, text = one.send(t, r.by.url, r.token)
		return len(r.headers) == 0 || status != http.StatusServiceUnavailable
	})
	return status, text
}

// reuse is a cloud in the west, with a peer in the east and an issuer, whose names pass from one tenant to the next.
type reuse struct {
	*pair
	asker  // of the west
	issuer *oidctest.Issuer
}

func newReuse(t *testing.T) reuse {
	t.Helper()
	issuer := oidctest.Start(t)
	by, err := oidc.New(oidc.Config{Issuer: issuer.URL, Audience: "croft", Transport: http.DefaultTransport,
		Groups: map[string]oidc.Grant{"bertas": {Project: "berta", Role: access.Member}}})
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{east: controltest.StartSite(t),
		west: controltest.StartTrusting(t, []access.Authenticator{by})}
	p.atEast, p.atWest = newAsker(t, p.east.URL), newAsker(t, p.west.URL)
	p.east.Meet(t, p.west, "west", access.Reader, access.Member, access.ProjectAdmin)
	p.west.Meet(t, p.east, "east", access.Reader, access.Member, access.ProjectAdmin)
	p.atEast.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "anna"}).
		want(t, http.StatusCreated, "")
	return reuse{p, p.atWest, issuer}
}

// tokenOf creates a token of the project berta.
func (u reuse) tokenOf(t *testing.T, by, user string, r access.Role) (secret, id string) {
	t.Helper()
	var made api.AccessToken
	u.ask(t, by, http.MethodPost, "/v1/tokens?project=berta", api.NewToken{User: user, Role: r, Life: "24h"}).
		into(t, &made)
	patient.Until(t, "the token counts", func() bool {
		return u.ask(t, made.Secret, http.MethodGet, "/v1/whoami", nil).status == http.StatusOK
	})
	return made.Secret, string(made.ID)
}

// roles returns callers in every role in the project berta as it is now. The last one has a token whose creator has
// departed.
func (u reuse) roles(t *testing.T, who string) (all []role) {
	t.Helper()
	for _, r := range []access.Role{access.Reader, access.Member, access.ProjectAdmin} {
		secret, _ := u.tokenOf(t, "operator", who+string(r), r)
		all = append(all, role{name: string(r), token: secret, by: u.asker})
	}
	u.maps(t, "anna", "berta", access.Member)
	all = append(all, role{name: "member through a peer", token: "anna", by: u.atEast,
		headers: []string{"X-Croft-Partition", "west"}},
		role{name: "group of an issuer", by: u.asker,
			token: u.issuer.Token(t, oidctest.User{Name: who + "olaf", Groups: []string{"bertas"}})})
	creator, id := u.tokenOf(t, "operator", who+"departs", access.ProjectAdmin)
	departed, _ := u.tokenOf(t, creator, who+"stays", access.Member)
	u.ask(t, "operator", http.MethodDelete, "/v1/tokens/"+id, nil).want(t, http.StatusOK, "")
	return append(all, role{name: departedCreator, token: departed, by: u.asker})
}

const departedCreator = "token whose creator departed"

// former creates one object of each kind for the tenant berta, and removes all of them. Records that are kept for a
// while after their end, such as tickets, clusters, usage and the action log, remain.
func (a asker) former(t *testing.T) belongings {
	t.Helper()
	type fields = map[string]any
	mine := belongings{project: "berta", user: "berta-v", name: "victim-vm", group: "victim-group", key: "victim-key",
		host: "host1", aggregate: "victim-aggregate", pool: "everybodys"}
	got := a.ask(t, "berta", http.MethodPost, "/v1/instances?wait=running", wanted(
		"name",
		mine.name,
		"tags",
		map[string]string{"victim": "tag"},
		"affinities",
		[]any{fields{"group": mine.group, "rule": "affinity"}},
	))
	var made api.Instance
	got.into(t, &made)
	mine.id = string(made.ID)
	a.ask(t, "berta", http.MethodPost, "/v1/keys", fields{"name": mine.key, "line": victimKey}).
		want(t, http.StatusCreated, "")
	var token struct{ ID string }
	a.ask(t, "operator", http.MethodPost, "/v1/tokens?project=berta",
		fields{"user": mine.user, "role": "member", "life": "24h"}).into(t, &token)
	mine.token = token.ID
	var ticket pools.Ticket
	a.ask(t, "berta", http.MethodPost, "/v1/tickets?wait=ready", fields{"tags": []string{"shared"},
		"sandbox": "victim-box", "key": "victim-once"}).into(t, &ticket)
	mine.ticket, mine.resource = strconv.FormatInt(ticket.ID, 10), strconv.FormatInt(ticket.Resource.ID, 10)
	a.build(t, &mine)

	a.ask(t, "berta", http.MethodDelete, "/v1/tickets/"+mine.ticket, nil).want(t, http.StatusOK, "")
	a.ask(t, "berta", http.MethodDelete, "/v1/instances/"+mine.id+"?wait=gone", nil).want(t, http.StatusOK, "")
	gone := func(path string) {
		patient.Until(t, path+" is gone", func() bool {
			status := a.ask(t, "operator", http.MethodDelete, path, nil).status
			return status == http.StatusNoContent || status == http.StatusNotFound || status == http.StatusOK
		})
	}
	a.ask(t, "berta", http.MethodDelete, "/v1/clusters/"+mine.cluster+"?force=true", nil).
		want(t, http.StatusAccepted, "")
	patient.Until(t, "the cluster is deleted", func() bool {
		var c api.Cluster
		got := a.ask(t, "operator", http.MethodGet, "/v1/clusters/"+mine.cluster, nil)
		if got.status != http.StatusOK {
			return true
		}
		got.into(t, &c)
		return c.State == cluster.Deleted
	})
	patient.Until(t, "the credential is removed", func() bool {
		return a.ask(
			t,
			"berta",
			http.MethodDelete,
			"/v1/credentials/"+mine.credential,
			nil,
		).status < http.StatusBadRequest
	})
	gone("/v1/appliances/" + mine.appliance + "/implementations/" + mine.implementation)
	gone("/v1/appliances/" + mine.appliance)
	return mine
}

// watching is a stream of events, and the events received from it.
type watching struct {
	mu   sync.Mutex
	got  strings.Builder
	over chan struct{}
}

// watch opens a stream, after the event last if that is not empty, and reads it until it ends.
func watch(t *testing.T, r role, path, last string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.by.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+r.token)
	for pair := range slices.Chunk(r.headers, 2) {
		q.Header.Set(pair[0], pair[1])
	}
	if last != "" {
		q.Header.Set("Last-Event-ID", last)
	}
	got, err := http.DefaultClient.Do(q)
	if err != nil || got.StatusCode != http.StatusOK {
		t.Fatalf("%s opens %s: %+v, %v", r.name, path, got, err)
	}
	w := &watching{over: make(chan struct{})}
	t.Cleanup(func() { cancel(); <-w.over })
	go func() {
		defer close(w.over)
		defer got.Body.Close()
		for lines := bufio.NewReader(got.Body); ; {
			line, err := lines.ReadString('\n')
			w.mu.Lock()
			_, _ = io.WriteString(&w.got, line)
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return w
}

func (w *watching) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got.String()
}

// first waits for the first ID.
func (w *watching) first(t *testing.T) (id string) {
	t.Helper()
	patient.Until(t, "the stream has an ID", func() bool {
		_, after, is := strings.Cut(w.text(), "id: ")
		id, _, _ = strings.Cut(after, "\n")
		return is && strings.Contains(after, "\n")
	})
	return id
}

// next removes the project berta and gives its name to the tenant heirs.
func (u reuse) next(t *testing.T) {
	t.Helper()
	patient.Until(t, "the project is removed", func() bool {
		return u.ask(t, "operator", http.MethodDelete, "/v1/projects/berta", nil).status == http.StatusNoContent
	})
	u.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "berta", Parent: "heirs"}).
		want(t, http.StatusCreated, "")
	patient.Until(t, "the server follows the projects", func() bool {
		got := u.ask(t, "berta", http.MethodGet, "/v1/projects/berta", nil)
		return got.status == http.StatusOK && !strings.Contains(string(got.body), "former")
	})
}

// ghostOf returns names that never existed in the same project.
func ghostOf(mine belongings) belongings {
	ghost := mine
	ghost.id, ghost.cluster = string(croft.NewInstanceID()), string(croft.NewClusterID())
	ghost.token = string(access.NewSecret().ID)
	ghost.name, ghost.group, ghost.key, ghost.user = "ghosts-vm", "ghosts-group", "ghosts-key", "ghosts-v"
	ghost.clusterName, ghost.appliance, ghost.credentialName = "ghosts-cluster", "ghosts-appliance", "ghosts-credential"
	ghost.credential, ghost.implementation = string(cluster.NewCredentialID()), string(cluster.NewImplementationID())
	ghost.use, ghost.member = string(cluster.NewUseID()), string(cluster.NewUseID())
	ghost.ticket, ghost.resource = "4711", "4712"
	return ghost
}

// TestTheNextOwnerOfANameInheritsNothing removes a project with all of its objects, and gives its name to another
// tenant. The credentials of the former owner must be invalid then. Callers in every role in the next project try every
// operation of the document with every name, UUID and number of the former one. The answers must equal those for names
// that never existed, and contain nothing of the former tenant.
func TestTheNextOwnerOfANameInheritsNothing(t *testing.T) {
	t.Parallel()
	u := newReuse(t)
	u.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "berta", Note: "former"}).
		want(t, http.StatusCreated, "")
	u.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "heirs"}).want(t, http.StatusCreated, "")
	mine := u.former(t)
	formers := u.roles(t, "former-")
	var before []*watching
	for _, r := range formers {
		if r.name != departedCreator {
			before = append(before, watch(t, r, "/v1/events", ""))
		}
	}
	begun := before[0].first(t)
	u.ask(t, "berta", http.MethodPost, "/v1/instances?wait=running", wanted("name", "victim-last")).
		want(t, http.StatusOK, "")
	u.ask(t, "berta", http.MethodDelete, "/v1/instances/victim-last?wait=gone", nil).want(t, http.StatusOK, "")
	u.next(t)

	for _, r := range formers {
		if r.name == "group of an issuer" {
			continue // the operators' settings give the group its role in whatever project has the name
		}
		for _, path := range []string{"/v1/whoami", "/v1/instances", "/v1/projects/berta", "/v1/tickets"} {
			if got := r.ask(t, http.MethodGet, path, nil); got.status < http.StatusBadRequest {
				t.Errorf("the former %s still gets %s: %s", r.name, path, got.body)
			}
		}
		if got := r.ask(t, http.MethodPost, "/v1/instances", wanted()); got.status < http.StatusBadRequest {
			t.Errorf("the former %s creates an instance: %s", r.name, got.body)
		}
	}

	ghost, tried := ghostOf(mine), 0
	nexts := u.roles(t, "next-")
	for _, r := range nexts {
		if r.name == departedCreator {
			r.ask(t, http.MethodGet, "/v1/whoami", nil).want(t, http.StatusUnauthorized, api.Unauthenticated)
			continue
		}
		for _, o := range controltest.Operations() {
			if o.Method != http.MethodGet && !strings.Contains(o.Path, "{id}") || o.ID == "removeProject" {
				continue // the next test tries creating objects with the former names
			}
			victims, ghosts := mine.tries(t, o), ghost.tries(t, o)
			for i := range victims {
				tried++
				u.compare(t, r, mine, ghost, o, victims[i], ghosts[i])
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d requests were tried", tried)
	}
	t.Logf("%d requests", tried)

	var made api.Instance
	nexts[1].ask(t, http.MethodPost, "/v1/instances?wait=running", wanted("name", "heirs-own")).into(t, &made)
	for i, w := range before {
		<-w.over
		if strings.Contains(w.text(), string(made.ID)) {
			t.Errorf("the stream of the former %s goes on with the next project: %s", formers[i].name, w.text())
		}
	}
	for _, r := range nexts[:len(nexts)-1] {
		w := watch(t, r, "/v1/events", begun)
		patient.Until(t, "the stream has the new instance", func() bool {
			return strings.Contains(w.text(), string(made.ID))
		})
		if before, _, _ := strings.Cut(w.text(), string(made.ID)); strings.Count(before, "data: ") != 1 {
			t.Errorf("the next %s is told events of the former project:\n%s", r.name, w.text())
		}
	}
	nexts[1].ask(t, http.MethodDelete, "/v1/instances/heirs-own?wait=gone", nil).want(t, http.StatusOK, "")
	u.takeNames(t, nexts[1], nexts[2], mine)
}

// compare sends a request with names of the former tenant and one with names that never existed.
func (u reuse) compare(t *testing.T, r role, mine, ghost belongings, o controltest.Operation, victims, ghosts try) {
	t.Helper()
	status, text := r.send(t, victims)
	ghostStatus, ghostText := r.send(t, ghosts)
	what := fmt.Sprintf("%s: %s %s as %s", o.ID, o.Method, victims.path, r.name)
	if status != ghostStatus {
		t.Errorf("%s: %d, and %d of what never was\n%s\n%s", what, status, ghostStatus, text, ghostText)
	}
	if status >= http.StatusBadRequest && mine.anonymous(text) != ghost.anonymous(ghostText) {
		t.Errorf("%s is told from what never was:\n%s%s", what, text, ghostText)
	}
	asked := fmt.Sprint(victims.path, victims.body)
	for _, s := range []string{mine.id, mine.cluster, mine.token, mine.credential, mine.implementation, mine.use,
		mine.member, "victim-", victimKey[20:40]} {
		if strings.Contains(text, s) && !strings.Contains(asked, s) && o.ID != "getDocument" &&
			o.ID != "listActions" { // it lists these attempts
			t.Errorf("%s tells %q of the former tenant: %s", what, s, text)
		}
	}
}

// takeNames makes the next tenant take the names, UUIDs and numbers of all objects of the former one, and those UUIDs
// that can be computed from the former ones. The next tenant must get only its own objects.
func (u reuse) takeNames(t *testing.T, member, admin role, mine belongings) {
	t.Helper()
	type fields = map[string]any
	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNeHnAS heir"
	next := string(cluster.IDOf(croft.ClusterID(mine.cluster), cluster.Slave, 1))
	taken := map[string]answer{}
	for _, one := range []struct {
		what string
		by   role
		path string
		body any
	}{
		{"SSH key", member, "/v1/keys", fields{"name": mine.key, "line": key}},
		{"instance name, UUID and group", member, "/v1/instances?wait=running", wanted("name", mine.name, "id", mine.id,
			"keys", []string{mine.key}, "affinities", []any{fields{"group": mine.group, "rule": "anti-affinity"}})},
		{"UUID of a member of the cluster", member, "/v1/instances?wait=running", wanted("name", "computed", "id",
			mine.member)},
		{"UUID of the next member of the cluster", member, "/v1/instances?wait=running", wanted("name", "computed-too",
			"id", next)},
		{"key and sandbox of a ticket", member, "/v1/tickets?wait=ready", fields{"tags": []string{"shared"},
			"sandbox": "victim-box", "key": "victim-once"}},
		{"credential", member, "/v1/credentials", fields{"name": mine.credentialName, "site": "pretend",
			"username": "heir", "project_name": "heir", "secret": "heirs"}},
		{"appliance", member, "/v1/appliances", fields{"name": mine.appliance}},
		{"implementation", member, "/v1/appliances/" + mine.appliance + "/implementations", fields{"site": "pretend",
			"template": "{}"}},
		{"cluster name", member, "/v1/clusters?wait=60", fields{"name": mine.clusterName, "appliance": mine.appliance}},
		{"name of a token's user", admin, "/v1/tokens", fields{"user": mine.user, "role": "member", "life": "24h"}},
	} {
		got := one.by.ask(t, http.MethodPost, one.path, one.body)
		if got.status >= http.StatusBadRequest {
			t.Errorf("the %s cannot be taken by the next tenant: %d %s", one.what, got.status, got.body)
		}
		taken[one.what] = got
	}
	var ticket pools.Ticket
	taken["key and sandbox of a ticket"].into(t, &ticket)
	if strconv.FormatInt(ticket.ID, 10) == mine.ticket || ticket.Resource == nil ||
		strconv.FormatInt(ticket.Resource.ID, 10) == mine.resource {
		t.Errorf("the key and the sandbox of the former tenant give %+v", ticket)
	}
	for _, path := range []string{"instances", "instances/" + mine.id, "instances/" + mine.id + "/log",
		"instances/" + mine.id + "/usage",
		"instances/" + mine.member, "objects/instances/" + mine.id, "objects/groups/" + mine.group, "keys",
		"tickets?all=true",
		"clusters", "clusters/" + mine.clusterName, "clusters/" + mine.cluster, "credentials",
		"appliances/" + mine.appliance, "appliances/" + mine.appliance + "/implementations", "tokens", "projects/berta",
		"projects/berta/quota", "projects/berta/mappings"} {
		got := admin.ask(t, http.MethodGet, "/v1/"+path, nil)
		if got.status != http.StatusOK && got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
		got.hides(
			t,
			mine.token,
			mine.credential,
			mine.implementation,
			mine.use,
			`"victim":`,
			"victim-login",
			"victim-there",
			"victim-secret",
			"hello",
			victimKey[20:40],
			`"former"`,
		)
	}
	var again api.Cluster // the next tenant's own, or none: the former one is kept for a while
	got := member.ask(t, http.MethodPost, "/v1/clusters", fields{"id": mine.cluster, "name": "heirs-cluster",
		"appliance": mine.appliance})
	if got.status < http.StatusBadRequest {
		got.into(t, &again)
	}
	if got.hides(t, mine.credential, mine.implementation, "victim-login"); string(again.ID) == mine.cluster {
		t.Errorf("the UUID of a cluster that is remembered is taken: %s", got.body)
	}
	var account tenant.Account
	admin.ask(t, http.MethodGet, "/v1/projects/berta/quota", nil).into(t, &account)
	if account.Used["instances"] != 3 || account.Used["clusters"] != 1 {
		t.Errorf("3 instances and a cluster of the next tenant are charged as %v", account.Used)
	}
}

// TestTheNextPeerOfAnAliasInheritsNothing gives the alias of a removed peer to another cloud, which has projects and
// users of the same names.
func TestTheNextPeerOfAnAliasInheritsNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.maps(t, "anna", "shop", access.Member)
	p.inWest(t, "anna", http.MethodGet, "/v1/instances", nil).want(t, http.StatusOK, "")
	p.atWest.ask(t, "operator", http.MethodDelete, "/v1/peers/east", nil).want(t, http.StatusOK, "")
	other := controltest.StartSite(t)
	other.Meet(t, p.west, "west", access.Reader, access.Member, access.ProjectAdmin)
	p.west.Meet(t, other, "east", access.Reader, access.Member, access.ProjectAdmin)
	at := newAsker(t, other.URL)
	at.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "anna"}).want(t, http.StatusCreated, "")
	for _, user := range []string{"anna", "reader", "admin"} {
		for name, by := range map[string]asker{"next": at, "former": p.atEast} {
			got := by.askWith(t, user, http.MethodGet, "/v1/instances", nil, "X-Croft-Partition", "west")
			if got.status < http.StatusBadRequest {
				t.Errorf("%s of the %s peer gets %s", user, name, got.body)
			}
		}
	}
	p.atWest.ask(t, "operator", http.MethodGet, "/v1/projects/shop/mappings", nil).hides(t, "anna")
}

// TestAUserWhoReturnsHasNoTokensOfBefore ends a membership, and adds a user of the same name again.
func TestAUserWhoReturnsHasNoTokensOfBefore(t *testing.T) {
	t.Parallel()
	u := newReuse(t)
	u.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "berta"}).want(t, http.StatusCreated, "")
	members := func(who ...string) {
		t.Helper()
		all := map[string]access.Role{}
		for _, one := range who {
			all[one] = access.Member
		}
		now := u.ask(t, "operator", http.MethodGet, "/v1/projects/berta", nil)
		u.askWith(t, "operator", http.MethodPut, "/v1/projects/berta/members", api.Members{Members: all}, "If-Match",
			now.generation()).want(t, http.StatusOK, "")
	}
	members("uwe", "vera")
	uwes, _ := u.tokenOf(t, "operator", "uwe", access.Member)
	veras, _ := u.tokenOf(t, "operator", "vera", access.Member)
	members("vera")
	members("uwe", "vera")
	patient.Until(t, "the token of the former member is refused", func() bool {
		return u.ask(t, uwes, http.MethodGet, "/v1/whoami", nil).status == http.StatusUnauthorized
	})
	u.ask(t, veras, http.MethodGet, "/v1/whoami", nil).want(t, http.StatusOK, "")
}

// TestARequestThatWaitsEndsWithItsCredentials revokes a token while its requests wait for events that never occur.
func TestARequestThatWaitsEndsWithItsCredentials(t *testing.T) {
	t.Parallel()
	u := newReuse(t)
	u.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "berta"}).want(t, http.StatusCreated, "")
	u.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "heirs"}).want(t, http.StatusCreated, "")
	secret, id := u.tokenOf(t, "operator", "vera", access.Member)
	answers := make(chan answer)
	waits := map[string]any{"/v1/instances?wait=ready&timeout=10m": wanted("name", "waits"),
		"/v1/tickets?wait=ready&timeout=10m": map[string]any{"tags": []string{"shared"},
			"sandbox": "waits"}}
	for range 3 { // all that the pool has
		u.ask(t, secret, http.MethodPost, "/v1/tickets?wait=ready", map[string]any{"tags": []string{"shared"}}).
			want(t, http.StatusOK, "")
	}
	for path, body := range waits {
		go func() { answers <- u.ask(t, secret, http.MethodPost, path, body) }()
	}
	patient.Until(t, "the instance runs", func() bool {
		got := u.ask(t, "operator", http.MethodGet, "/v1/instances/waits?project=berta", nil)
		return strings.Contains(string(got.body), `"running"`)
	})
	patient.Until(t, "the ticket is open", func() bool {
		got := u.ask(t, "operator", http.MethodGet, "/v1/tickets?project=berta", nil)
		return strings.Contains(string(got.body), `"waits"`)
	})
	stream := watch(t, role{name: "vera", token: secret, by: u.asker}, "/v1/events", "")
	stream.first(t)
	u.ask(t, "operator", http.MethodDelete, "/v1/tokens/"+id, nil).want(t, http.StatusOK, "")
	for range waits {
		if got := <-answers; got.status != http.StatusUnauthorized {
			t.Errorf("a request that waits after its token was revoked gets %d %s", got.status, got.body)
		}
	}
	<-stream.over
}

// TestTheNextProjectOfAPoolInheritsNothing gives the name of a pool to another project: directly, and after the pool
// was gone. Neither project learns anything about the machines that the pool has for the other one.
func TestTheNextProjectOfAPoolInheritsNothing(t *testing.T) {
	t.Parallel()
	var manager *pools.Client
	server, c := controltest.StartWithPools(t, func(_ *simcloud.Cloud, c *control.Config) { manager = c.Pools })
	a := newAsker(t, server)
	for _, name := range []croft.Project{"berta", "anna"} {
		a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: name}).
			want(t, http.StatusCreated, "")
	}
	file := filepath.Join(c.Dir, "pools", "pools.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const theirs = "victims:\n  project: anna\n  cmd_new: echo heirs-$RESALLOC_ID\n  cmd_delete: \"true\"\n" +
		"  max: 4\n  max_prealloc: 1\n  tags: [victim-tag]\n"
	pool := func(token string) (p pools.Pool) {
		t.Helper()
		if got := a.ask(t, token, http.MethodGet, "/v1/pools/victims", nil); got.status == http.StatusOK {
			got.into(t, &p)
		}
		return p
	}
	resources := func(token string) (numbers []int64) {
		t.Helper()
		var list api.PoolResourceList
		got := a.ask(t, token, http.MethodGet, "/v1/pools/victims/resources?all=true", nil)
		if got.status == http.StatusOK {
			got.into(t, &list)
		}
		for _, r := range list.Resources {
			numbers = append(numbers, r.ID)
		}
		return numbers
	}
	used := a.open(t, "berta", "?wait=ready", tags("victim-tag"), http.StatusOK)
	a.ask(t, "berta", http.MethodDelete, fmt.Sprintf("/v1/tickets/%d", used.ID), nil).want(t, http.StatusOK, "")
	held := a.open(t, "berta", "?wait=ready", tags("victim-tag"), http.StatusOK)
	patient.Until(t, "the pool has an ended resource, one with a ticket and warm ones", func() bool {
		return len(resources("berta")) >= 4 && pool("berta").Free > 0
	})
	before := resources("operator")

	// inherits tries to read the resources of the other owner, as the next owner and as the former one.
	inherits := func(next []string, former []string, resources []int64) {
		t.Helper()
		for _, token := range next {
			list := a.ask(t, token, http.MethodGet, "/v1/pools/victims/resources?all=true", nil)
			list.want(t, http.StatusOK, "")
			for _, id := range resources {
				if list.hides(t, fmt.Sprintf(`"id":%d,`, id)); token == "anna" {
					continue // only admins see logs
				}
				log := a.ask(t, token, http.MethodGet, fmt.Sprintf("/v1/pools/victims/resources/%d/log", id), nil)
				none := a.ask(t, token, http.MethodGet, "/v1/pools/victims/resources/4711/log", nil)
				if got := strings.ReplaceAll(string(log.body), fmt.Sprint(id), "4711"); got != string(none.body) {
					t.Errorf("%s gets of resource %d the log %s, and of none %s", token, id, got, none.body)
				}
			}
		}
		for _, token := range former {
			for _, path := range []string{"", "/resources", "/resources?all=true"} {
				got := a.ask(t, token, http.MethodGet, "/v1/pools/victims"+path, nil)
				got.want(t, http.StatusNotFound, api.NotFound)
			}
			log := a.ask(t, token, http.MethodGet, fmt.Sprintf("/v1/pools/victims/resources/%d/log", resources[0]),
				nil)
			if log.status != http.StatusNotFound && log.status != http.StatusForbidden {
				t.Errorf("the former %s gets the log of a resource: %d %s", token, log.status, log.body)
			}
		}
	}
	heirs := func() pools.Ticket {
		t.Helper()
		ticket := a.open(t, "anna", "?wait=ready", tags("victim-tag"), http.StatusOK)
		if slices.Contains(before, ticket.Resource.ID) || !strings.HasPrefix(string(ticket.Resource.Data), "heirs-") {
			t.Errorf("the next project is handed out %+v", ticket.Resource)
		}
		for _, token := range []string{"berta", "birgit", "bertil"} {
			got := a.ask(t, token, http.MethodGet, fmt.Sprintf("/v1/tickets/%d", ticket.ID), nil)
			got.want(t, http.StatusNotFound, api.NotFound)
		}
		return ticket
	}
	write(strings.Replace(theirs, "max: 4", "max: 8", 1))
	patient.Until(t, "the pool passes to the next project", func() bool { return pool("operator").Project == "anna" })
	theirTicket := heirs()
	inherits([]string{"anna", "admin", "reader"}, []string{"berta", "birgit", "bertil"}, before)
	var still pools.Ticket
	a.ask(t, "berta", http.MethodGet, fmt.Sprintf("/v1/tickets/%d", held.ID), nil).into(t, &still)
	if still.State != pools.TicketOpen || still.Resource == nil || still.Resource.ID != held.Resource.ID {
		t.Errorf("the open ticket of the former project is %+v", still)
	}
	if stock := pool("admin").Stock; stock == nil || stock.Stats.Served != 1 {
		t.Errorf("the next project sees the statistics of the former one: %+v", stock)
	}
	for _, one := range []struct {
		token string
		id    int64
	}{{"berta", held.ID}, {"anna", theirTicket.ID}} {
		a.ask(t, one.token, http.MethodDelete, fmt.Sprintf("/v1/tickets/%d", one.id), nil).want(t, http.StatusOK, "")
	}

	before = resources("operator")
	if _, err := manager.Drain(t.Context(), "victims"); err != nil {
		t.Fatal(err)
	}
	patient.Until(t, "the drained pool has nothing", func() bool { return pool("operator").Stock.Up == 0 })
	write("other:\n  cmd_new: echo 1\n  cmd_delete: \"true\"\n  tags: [other]\n")
	patient.Until(t, "the pool is gone", func() bool { return pool("operator").Name == "" })
	write(strings.ReplaceAll(theirs, "anna", "berta"))
	patient.Until(t, "the pool returns", func() bool { return pool("birgit").Name != "" })
	inherits([]string{"berta", "birgit", "bertil"}, []string{"anna", "admin", "reader"}, before)
}

// TestAGenerationOfARemovedObjectMatchesNoLaterOne recreates objects under the same name. A change based
// on a generation of the former object is refused.
func TestAGenerationOfARemovedObjectMatchesNoLaterOne(t *testing.T) {
	t.Parallel()
	server, _ := controltest.Start(t)
	a := newAsker(t, server)
	type fields = map[string]any
	for _, c := range []struct {
		path         string
		create       func() answer
		method       string
		change       any
		status, gone int
		wait         string
	}{
		{"/v1/policies/p", func() answer {
			return a.ask(t, "operator", http.MethodPut, "/v1/policies/p", fields{"text": "take 1"})
		}, http.MethodPut, fields{"text": "take 2"}, http.StatusOK, http.StatusNoContent, ""},
		{"/v1/sites/s", func() answer {
			return a.ask(t, "operator", http.MethodPost, "/v1/sites", fields{"name": "s", "type": "sim"})
		}, http.MethodPatch, fields{"priority": 7}, http.StatusCreated, http.StatusNoContent, ""},
		{"/v1/aggregates/g", func() answer {
			return a.ask(t, "operator", http.MethodPost, "/v1/aggregates", fields{"name": "g"})
		}, http.MethodPatch, fields{"public": true}, http.StatusCreated, http.StatusNoContent, ""},
		{"/v1/projects/p", func() answer {
			return a.ask(t, "operator", http.MethodPost, "/v1/projects", fields{"name": "p"})
		}, http.MethodPatch, fields{"note": "x"}, http.StatusCreated, http.StatusNoContent, ""},
		{"/v1/instances/i", func() answer {
			return a.ask(t, "operator", http.MethodPost, "/v1/instances?wait=running", wanted("name", "i"))
		}, http.MethodPatch, fields{"expires": 60}, http.StatusOK, http.StatusOK, "?wait=gone"},
	} {
		c.create().want(t, c.status, "")
		former := a.ask(t, "operator", http.MethodGet, c.path, nil).generation()
		a.ask(t, "operator", http.MethodDelete, c.path+c.wait, nil).want(t, c.gone, "")
		c.create().want(t, c.status, "")
		a.askWith(t, "operator", c.method, c.path, c.change, "If-Match", former).
			want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	}
}
