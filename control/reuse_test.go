package control_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"croft"
	"croft/access"
	"croft/cluster"
	"croft/control/api"
	"croft/control/controltest"
	"croft/internal/testing/patient"
	pools "croft/pool/api"
)

// former gives the tenant berta one of each thing, and removes all of them and the project. What is kept for a while
// after its end, such as tickets, clusters, usage and the action log, stays.
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
	mine.id = string(made.Instance.ID)
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
	gone("/v1/projects/" + mine.project)
	return mine
}

// TestTheNextOwnerOfANameInheritsNothing removes a project and all that it had, and gives its name to another tenant,
// who then tries every operation of the document with every name, UUID and number of the former one. The answers are
// the same as for what never was, and nothing of the former tenant is in them. Then the tenant takes the names of all
// things.
func TestTheNextOwnerOfANameInheritsNothing(t *testing.T) {
	server, _ := controltest.Start(t)
	a := newAsker(t, server)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "berta"}).want(t, http.StatusCreated, "")
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "heirs"}).want(t, http.StatusCreated, "")
	mine := a.former(t)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "berta", Parent: "heirs"}).
		want(t, http.StatusCreated, "")
	ghost := mine
	ghost.id, ghost.cluster, ghost.token = string(
		croft.NewInstanceID(),
	), string(
		croft.NewClusterID(),
	), string(
		access.NewSecret().ID,
	)
	ghost.name, ghost.group, ghost.key = "ghosts-vm", "ghosts-group", "ghosts-key"
	ghost.clusterName, ghost.appliance, ghost.credentialName = "ghosts-cluster", "ghosts-appliance", "ghosts-credential"
	ghost.credential, ghost.implementation = string(cluster.NewCredentialID()), string(cluster.NewImplementationID())
	ghost.use, ghost.member = string(cluster.NewUseID()), string(cluster.NewUseID())
	ghost.ticket, ghost.resource = "4711", "4712"
	if got := a.ask(t, "berta", http.MethodGet, "/v1/log", nil); strings.Contains(string(got.body), "createInstance") {
		t.Errorf("the log of the former project is shown: %s", got.body)
	}
	tried := 0
	for _, o := range api.Operations() {
		if o.Method != http.MethodGet && !strings.Contains(o.Path, "{id}") || o.ID == "removeProject" {
			continue // what creates something with the former names is tried below
		}
		victims, ghosts := mine.tries(t, o), ghost.tries(t, o)
		for i := range victims {
			tried++
			status, text := victims[i].send(t, server, "berta")
			ghostStatus, ghostText := ghosts[i].send(t, server, "berta")
			what := o.ID + ": " + o.Method + " " + victims[i].path
			if status != ghostStatus {
				t.Errorf("%s: %d, and %d of what never was\n%s\n%s", what, status, ghostStatus, text, ghostText)
			}
			secrets := []string{
				mine.id,
				mine.cluster,
				mine.token,
				mine.credential,
				mine.implementation,
				mine.use,
				mine.member,
				"victim-",
				victimKey[20:40],
			}
			asked := victims[i].path
			if slices.ContainsFunc(secrets, func(s string) bool {
				return strings.Contains(text, s) && !strings.Contains(asked, s) && o.ID != "getDocument" &&
					o.ID != "listActions" // which has what was tried
			}) && status < http.StatusBadRequest {
				t.Errorf("%s tells of the former tenant: %s", what, text)
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d requests were tried", tried)
	}
	type fields = map[string]any
	var ticket pools.Ticket
	a.ask(t, "berta", http.MethodPost, "/v1/tickets?wait=ready", fields{"tags": []string{"shared"},
		"sandbox": "victim-box", "key": "victim-once"}).into(t, &ticket)
	if strconv.FormatInt(ticket.ID, 10) == mine.ticket || ticket.Resource == nil ||
		strconv.FormatInt(ticket.Resource.ID, 10) == mine.resource {
		t.Errorf("the key and the sandbox of the former tenant give %+v", ticket)
	}
	var made api.Instance
	a.ask(t, "berta", http.MethodPost, "/v1/instances?wait=running", wanted("name", mine.name)).into(t, &made)
	for _, kind := range []string{"instances/" + string(made.Instance.ID)} {
		if got := a.ask(t, "berta", http.MethodGet, "/v1/objects/"+kind, nil); strings.Contains(
			string(got.body),
			"victim",
		) {
			t.Errorf("the tags of the former instance are those of the next: %s", got.body)
		}
	}
	mine.clusterName, mine.credentialName = "", ""
	a.ask(t, "berta", http.MethodPost, "/v1/appliances", fields{"name": mine.appliance}).want(t, http.StatusCreated, "")
	if got := a.ask(t, "berta", http.MethodGet, "/v1/appliances/"+mine.appliance+"/implementations", nil); strings.
		Contains(string(got.body), mine.implementation) {
		t.Errorf("the next appliance of the name has the implementations of the former: %s", got.body)
	}
}
