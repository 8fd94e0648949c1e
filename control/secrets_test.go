package control_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
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
	pools "croft/pool/api"
	"croft/test/simcloud"
)

// secret is one kind of secret that the cloud holds, and the only operations whose answers may contain it, with their
// callers. Answers repeat a secret to the caller who set it only where this lists it.
type secret struct {
	kind, text string
	shown      map[string][]string
}

// Callers of the project berta: two members, its admin, a reader. olga is an operator.
var (
	members  = []string{"berta", "bente", "birgit", "operator"}
	managers = []string{"birgit", "operator"}
)

const (
	plantedImage = "https://alice:planted-image-password@images.example/x.qcow2?sig=planted-image-signature" +
		"#sums=https%3A%2F%2Fbob%3Aplanted-sums-password%40images.example%2Fsums%3Fsig%3Dplanted-sums-signature"
	plantedData = "#!/bin/sh\necho planted-user-data\n"
)

// secretsOf lists the kinds of secrets and who may read each of them.
func secretsOf(mine belongings) []secret {
	return []secret{
		{"the password in the address of an image", "planted-image-password", nil},
		{"the signature in the address of an image", "planted-image-signature", nil},
		{"the password in the address of a list of checksums", "planted-sums-password", nil},
		{"the signature in the address of a list of checksums", "planted-sums-signature", nil},
		{"user-data", base64.StdEncoding.EncodeToString([]byte(plantedData)), map[string][]string{
			"getInstance": members, "watchInstance": members, "stopInstance": members, "startInstance": members,
			"rebootInstance": members, "ejectInstance": members, "resizeInstance": members, "rebuildInstance": members,
			"keepInstance": members, "changeInstance": members,
			"destroyInstance": members}},
		{"a private key of a guest, or of the members of a cluster", "PRIVATE KEY", nil},
		{"the password of a credential", "victim-secret", nil},
		{"a hidden parameter of a cluster", "planted-parameter", nil},
		{"the token of an agent", "planted-host-token", nil},
		{"what doctor found on a host", "planted-finding", map[string][]string{
			"getInstance": {"operator"}, "getHost": {"operator"}, "listHosts": {"operator"},
			"drainHost": {"operator"}, "enableHost": {"operator"},
			"fenceHost": {"operator"}, "takeHostBack": {"operator"}, "acceptHost": {"operator"},
			"forgetHost": {"operator"}, "removeMember": {"operator"}}},
		{"what a ticket hands out", "victim-" + mine.resource + `\n`, map[string][]string{
			"getTicket": members, "listTickets": members, "openTicket": members, "renewTicket": members,
			"closeTicket": members, "getResourceLog": managers, "listPoolResources": {"operator"}}},
	}
}

// written captures the log of a server.
type written struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *written) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(line)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// victimKey is a public key of the tenant berta.
const victimKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl victim"

// victim creates one object of every kind as the tenant berta.
func (a asker) victim(t *testing.T) belongings {
	t.Helper()
	mine := belongings{project: "berta", user: "berta-v", name: "victim-vm", group: "victim-group", key: "victim-key",
		host: "host1", aggregate: "victim-aggregate"}
	a.ask(t, "operator", http.MethodPost, "/v1/aggregates", api.NewAggregate{Name: mine.aggregate,
		Hosts: []string{mine.host}}).want(t, http.StatusCreated, "")
	a.ask(t, "operator", http.MethodPost, "/v1/aggregates", api.NewAggregate{Name: "victim-other"}).
		want(t, http.StatusCreated, "")
	a.ask(t, "operator", http.MethodPut, "/v1/distances", map[string]any{"type": "network", "a": mine.aggregate,
		"b": "victim-other", "distance": 7}).want(t, http.StatusOK, "")
	a.ask(t, "operator", http.MethodPut, "/v1/policies/everywhere", map[string]any{"text": "take 1"}).
		want(t, http.StatusOK, "")
	a.ask(t, "operator", http.MethodPost, "/v1/sizes", map[string]any{"name": "small", "resources": map[string]any{
		"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1}}).want(t, http.StatusCreated, "")
	affinity := []any{map[string]any{"group": mine.group, "rule": "affinity"}}
	got := a.ask(t, "berta", http.MethodPost, "/v1/instances?wait=running", wanted("name", mine.name, "tags",
		map[string]string{"victim": "tag"}, "affinities", affinity))
	var made api.Instance
	got.into(t, &made)
	mine.id = string(made.ID)
	a.ask(t, "berta", http.MethodPost, "/v1/keys", map[string]string{"name": mine.key, "line": victimKey}).
		want(t, http.StatusCreated, "")
	a.ask(t, "berta", http.MethodPost, "/v1/volumes", map[string]any{"name": mine.name, "size_gb": 1}).
		want(t, http.StatusCreated, "")
	a.ask(t, "berta", http.MethodPost, "/v1/catalog", map[string]any{"name": mine.name, "size_bytes": 1 << 20,
		"sha256": strings.Repeat("0", 64)}).want(t, http.StatusCreated, "")
	var token struct{ ID string }
	a.ask(t, "operator", http.MethodPost, "/v1/tokens?project=berta",
		map[string]string{"user": mine.user, "role": "member", "life": "24h"}).into(t, &token)
	mine.token = token.ID
	for _, tag := range []string{"victim-tag", "shared"} {
		a.ask(t, "berta", http.MethodPost, "/v1/tickets?wait=ready", map[string]any{"tags": []string{tag},
			"sandbox": "victim-box", "key": "victim-" + tag}).want(t, http.StatusOK, "")
	}
	var ticket pools.Ticket
	a.ask(t, "berta", http.MethodGet, "/v1/tickets/1", nil).into(t, &ticket)
	mine.pool, mine.ticket, mine.resource = "victims", "1", strconv.FormatInt(ticket.Resource.ID, 10)
	a.build(t, &mine)
	return mine
}

// TestEverySecretIsShownOnlyToThoseWhoNeedIt tries every operation of the document as callers of every role, on objects
// that hold a secret of every kind. No answer, event, entry of the action log or line of the server's log may contain a
// secret, except where the table permits it.
func TestEverySecretIsShownOnlyToThoseWhoNeedIt(t *testing.T) {
	t.Parallel()
	log := &written{}
	server, cloud := controltest.StartWithPools(t, func(_ *simcloud.Cloud, c *control.Config) {
		c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	a := newAsker(t, server)
	for _, name := range []string{"berta", "anna"} {
		a.ask(t, "operator", http.MethodPost, "/v1/projects", map[string]string{"name": name}).
			want(t, http.StatusCreated, "")
	}
	mine := a.victim(t)
	var planted api.Instance
	made := a.ask(t, "operator", http.MethodPost, "/v1/instances?wait=running&project=berta",
		wanted("name", "victim-planted", "image", plantedImage, "user_data", []byte(plantedData),
			"machine", map[string]string{"iso": plantedImage}))
	made.want(t, http.StatusOK, "")
	made.into(t, &planted)
	mine.id, mine.name = string(planted.ID), "victim-planted"
	a.ask(t, "birgit", http.MethodPost, "/v1/appliances/"+mine.appliance+"/implementations", map[string]any{
		"site":     "pretend",
		"template": "parameters:\n  admin_password: {type: string, default: none, hidden: true}\n"}).
		want(t, http.StatusCreated, "")
	var built api.Cluster
	a.ask(t, "berta", http.MethodPost, "/v1/clusters?wait=60", map[string]any{"name": "victim-sealed",
		"appliance": mine.appliance, "parameters": map[string]string{"admin_password": "planted-parameter"}}).
		into(t, &built)
	if built.State != cluster.Ready {
		t.Fatalf("the cluster is %+v", built)
	}
	mine.cluster, mine.clusterName = string(built.ID), "victim-sealed"
	all, err := cloud.Store.Registry.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	host := all[cloud.Hosts["host1"].ID]
	host.Token = "planted-host-token"
	host.Findings = []croft.Finding{{Level: croft.FindingFail, Check: "disk", Found: "planted-finding",
		Do: "planted-finding"}}
	if err := cloud.Store.Registry.PutHost(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	secrets := secretsOf(mine)

	seen := map[string]bool{}
	check := func(operation, as, asked, text string) {
		for _, s := range secrets {
			if !strings.Contains(text, s.text) {
				continue
			}
			seen[s.kind] = true
			if !slices.Contains(s.shown[operation], as) {
				t.Errorf("%s: %s tells %s %s: %s", asked, operation, as, s.kind, text)
			}
		}
	}
	for _, reads := range []bool{true, false} {
		for _, as := range []string{"bertil", "anna", "reader", "birgit", "bente", "berta", "operator"} {
			for _, o := range controltest.Operations() {
				if (o.Method == http.MethodGet) != reads {
					continue
				}
				for _, one := range mine.tries(t, o) {
					_, text := one.send(t, server, as)
					check(o.ID, as, fmt.Sprint(o.Method, " ", one.path, " ", one.body), text)
				}
			}
		}
	}
	actions := a.ask(t, "operator", http.MethodGet, "/v1/log?limit=5000", nil)
	check("the action log", "operator", "", string(actions.body))
	check("the log of the server", "its reader", "", log.String())
	for _, s := range secrets {
		if s.shown != nil && !seen[s.kind] {
			t.Errorf("nobody was told %s: the test has it no more", s.kind)
		}
	}
}
