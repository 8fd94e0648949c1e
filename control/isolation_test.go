package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/control/api"
	"croft/control/controltest"
	"croft/internal/delay"
	"croft/tenant/access"
)

// belongings are names of the objects of one tenant. A ghost's belongings have the same form, and name no objects.
type belongings struct {
	project, user, id, name, group, key, token, host, aggregate, pool string

	cluster, clusterName, credential, credentialName, appliance, implementation, use, member string

	ticket, resource string // numbers, which are recognized by the text around them
}

// all lists the names, the longest ones first, so that no name is replaced as a part of another.
func (b belongings) all() []string {
	all := []string{b.project, b.user, b.id, b.name, b.group, b.key, b.token, b.host, b.aggregate, b.pool,
		b.cluster, b.clusterName, b.credential, b.credentialName, b.appliance, b.implementation, b.use, b.member}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}

// anonymous replaces the names of the belongings, so that answers about two tenants can be compared.
func (b belongings) anonymous(text string) string {
	for _, name := range b.all() {
		text = strings.ReplaceAll(text, name, "X")
	}
	for _, number := range []string{b.ticket, b.resource} {
		text = strings.ReplaceAll(text, `\"`+number+`\"`, "X") // in a sentence
	}
	return text
}

// values lists the values of a parameter that a tenant may send who knows the belongings of another; nil: the parameter
// is new and this test lacks its values.
func (b belongings) values(o controltest.Operation, p api.Parameter) []string {
	switch p.In + " " + p.Name {
	case "path id":
		switch o.Tag {
		case "instances", "claims", "policies", "snapshots", "backups", "catalog":
			return []string{b.id, b.name}
		case "objects":
			return []string{b.id, b.name, b.group, b.host}
		case "partitions", "projects":
			return []string{b.id, b.project}
		case "tokens":
			return []string{b.token}
		case "tickets":
			return []string{b.ticket}
		case "clusters":
			return []string{b.cluster, b.clusterName}
		case "credentials":
			return []string{b.credential, b.credentialName}
		case "appliances":
			return []string{b.implementation}
		case "hosts":
			return []string{b.host}
		}
	case "path things":
		return []string{"instances", "groups", "hosts"}
	case "path kind":
		return []string{"instance", "group"}
	case "query kind":
		return map[string][]string{"objects": {"instance", "group", "host"}, "partitions": {"host"}}[o.Tag]
	case "path theirs":
		return []string{b.project}
	case "query endpoint":
		return []string{"https://east.example"}
	case "path key":
		return []string{"color"}
	case "path tag":
		return []string{"blue"}
	case "query filter":
		return []string{"color=blue", "tag:blue"}
	case "query level":
		return []string{"partition"}
	case "query effective":
		return []string{"true"}
	case "query as":
		return []string{b.project}
	case "query name":
		return []string{b.project, b.name}
	case "query forget":
		return []string{b.name}
	case "path instance":
		return []string{b.id}
	case "query host":
		return []string{b.host}
	case "query label":
		return []string{"color=blue"}
	case "query not":
		return []string{"name=" + b.name, "host=" + b.host}
	case "path name":
		return map[string][]string{"keys": {b.key}, "volumes": {b.name}, "backups": {b.name},
			"catalog":       {b.name},
			"backup-stores": {b.name}, "backup-schedules": {b.name}, "policies": {"everywhere"}, "sizes": {"small"},
			"aggregates": {b.aggregate}, "pools": {b.pool, "everybodys"}, "sites": {"pretend"},
			"appliances": {b.appliance}, "images": {"debian-12"},
			"invitations": {"0123"}, "catalogue": {"CUSTOM_COLD"}}[o.Tag]
	case "path site", "query site":
		return []string{"pretend"}
	case "path host":
		return []string{"last", b.member}
	case "path use":
		return []string{b.use}
	case "query state":
		return []string{"READY"}
	case "query appliance":
		return []string{b.appliance}
	case "query verify":
		return []string{"false"}
	case "query abandon", "query internal":
		return []string{"true"}
	case "path resource":
		return []string{b.resource}
	case "query all":
		return []string{"true"}
	case "query type":
		return []string{"failure", "network"}
	case "query a", "query b":
		return []string{b.aggregate, b.host, b.id}
	case "path project", "query project":
		return []string{b.project}
	case "query object":
		return []string{"instance/" + b.id, "instance/" + b.name, "key/" + b.key, "token/" + b.token,
			"project/" + b.project, "host/" + b.host}
	case "query user":
		return []string{b.user}
	case "query after":
		if special := map[string][]string{"tickets": {b.ticket}, "objects": {b.project + "/" + b.id},
			"log": {"18aa5d5d5d5d5d5d-0123456789abcdef-1/" + b.project + "/0"}}[o.Tag]; special != nil {
			return special
		}
		return []string{b.name, b.name + "/" + b.id}
	case "query image":
		return []string{"debian-12"}
	case "query follow", "query takeover":
		return []string{"false"}
	case "path snapshot":
		return []string{b.name}
	case "query force", "query snapshots":
		return []string{"true"}
	case "query port":
		return []string{"22"}
	case "query since":
		if o.Tag == "projects" {
			return []string{"2020-01-01"}
		}
		return []string{"2020-01-01T00:00:00Z"}
	case "query until":
		return []string{"2999-01-01"}
	case "path output":
		return []string{"jupyter_token"}
	case "query than":
		return []string{"60"}
	case "query former":
		return []string{"true"}
	case "query offset":
		return []string{"0", "1"}
	case "query sort":
		return []string{"name", "host", "-host"}
	case "query limit":
		return []string{"5000"}
	case "query wait":
		return map[string][]string{"instances": {"gone"}, "claims": {"gone"}, "hosts": {"moved"},
			"tickets": {"ready"}, "clusters": {"1"}}[o.Tag]
	case "query timeout":
		return []string{"1s"}
	case "header If-Match":
		return []string{`"1"`}
	case "header Last-Event-ID":
		return []string{"1"}
	}
	return nil
}

// bodies lists the bodies of a schema that such a tenant may send; nil: the schema is new and this test lacks its
// bodies. UUIDs and project names are unique in the partition: a request for a taken one gets only that information.
// They are not among these.
func (b belongings) bodies(schema string) []any {
	type fields = map[string]any
	switch strings.TrimPrefix(schema, "#/components/schemas/") {
	case "":
		return []any{nil}
	case "NewInstance", "Candidates":
		affinity := []any{fields{"group": b.group, "rule": "affinity"}}
		return []any{wanted("near", []string{b.id}), wanted("near", []string{b.name}),
			wanted("near", []string{b.host}), wanted("keys", []string{b.key}),
			wanted("policy", "crush:everywhere"), wanted("in", []string{b.aggregate}),
			wanted("in", []string{"!" + b.aggregate}),
			wanted("volumes", []string{b.name}),
			wanted("disks", []any{fields{"size_gb": 1, "name": b.name}}),
			wanted("near", []string{b.aggregate}), wanted("far", []string{b.host + ":rack"}, "distance", "network"),
			wanted("query", "VCPU:1000,MEMORY_MB:256,DISK_GB:1", "affinities", affinity)}
	case "GuestCommand":
		return []any{fields{"command": []string{"true"}}}
	case "ClaimRequest":
		return []any{wanted("near", []string{b.id}, "hold", 60), wanted("near", []string{b.host}, "hold", 60)}
	case "PoolChange":
		return []any{fields{"max": 4}}
	case "ClaimUse":
		return []any{fields{"image": "https://images.example/tiny.qcow2"}}
	case "NewTicket":
		return []any{fields{"tags": []string{"victim-tag"}, "key": "victim-once"},
			fields{"tags": []string{"apart"}, "sandbox": "victim-box"}}
	case "NewSite":
		return []any{fields{"name": "mine", "type": "sim"}}
	case "SiteChange":
		return []any{fields{"priority": 1}}
	case "NewCredential":
		return []any{fields{"name": "mine", "site": "nowhere", "secret": "mine"}}
	case "CredentialChange":
		return []any{fields{"name": "mine"}, fields{"secret": "mine"}}
	case "NewAppliance": // whose names are unique in the partition, too
		return []any{fields{"name": "No name"}, fields{"name": "mine", "public": true}}
	case "ApplianceChange":
		return []any{fields{"description": "mine now"}, fields{"public": true}}
	case "NewImplementation":
		return []any{fields{"site": "pretend", "template": "{}"}}
	case "ImplementationChange":
		return []any{fields{"enabled": false}}
	case "NewCluster", "ClusterCandidates":
		return []any{fields{"name": "mine", "appliance": b.appliance},
			fields{"name": "mine", "appliance": "hosts", "hints": fields{"credentials": []string{b.credential}}},
			fields{"name": "mine", "appliance": "hosts", "hints": fields{"credentials": []string{b.credentialName}}},
			fields{"name": "mine", "appliance": "hosts",
				"hints": fields{"implementations": []string{b.implementation}}}}
	case "ClusterChange":
		return []any{fields{"name": "mine"}, fields{"slaves": 0}}
	case "NewSiteImage":
		return []any{fields{"name": "mine"}}
	case "ImageAtSite":
		return []any{fields{}, fields{"ref": "mine"}}
	case "NewImage":
		return []any{fields{"image": "debian-12"}}
	case "ObjectChange":
		return []any{fields{"set": fields{"color": "blue"}}}
	case "NewProperty":
		return []any{fields{"value": "blue"}}
	case "NewDefinition":
		return []any{fields{}}
	case "InstancePatch":
		return []any{fields{"labels": fields{"color": "blue", "size": nil}, "expires": 60},
			fields{"protected": true}, fields{"protected": false}}
	case "Expiry":
		return []any{fields{"expires": 60}}
	case "NewAggregate":
		return []any{fields{"name": b.aggregate}}
	case "NewDistance":
		return []any{fields{"a": b.aggregate, "b": b.host, "distance": 1}}
	case "NewSize":
		return []any{fields{"name": "mine", "resources": fields{"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1}}}
	case "SizeChange":
		return []any{fields{"name": "mine"}, fields{"default": true}}
	case "PolicyText":
		return []any{fields{"text": "use " + b.host + "; take 1"}}
	case "PolicyCheck":
		return []any{fields{"name": "x", "text": "use " + b.host + "; take 1"}}
	case "AggregateChange":
		return []any{fields{"public": true}, fields{"add_hosts": []string{b.host}}}
	case "NewVolume":
		return []any{fields{"name": b.name, "size_gb": 20000}, fields{"name": "x", "size_gb": 1, "host": b.host},
			fields{"name": "x", "size_gb": 1, "near": b.name}, fields{"name": "x", "size_gb": 1, "near": b.id},
			fields{"name": "x", "size_gb": 1, "storage": b.name},
			fields{"name": "x", "size_gb": 1, "storage": "../" + b.project}}
	case "NewCatalogImage":
		return []any{fields{"name": b.name, "size_bytes": 1, "sha256": strings.Repeat("0", 64)},
			fields{"name": "x", "size_bytes": 1, "sha256": strings.Repeat("0", 64), "public": true},
			fields{"name": "x", "url": "file:///etc/shadow"}}
	case "CatalogImageChange":
		return []any{fields{"public": true}, fields{"share": []string{"mallory"}}, fields{"description": "x"}}
	case "SavedImage":
		return []any{fields{"name": "x"}}
	case "VolumeAttachment":
		return []any{fields{"instance": b.name}, fields{"instance": b.id}}
	case "InstanceSize":
		return []any{map[string]any{"resources": map[string]int64{"VCPU": 2}},
			map[string]any{"resources": map[string]int64{"VCPU": 1 << 40, "DISK_GB": 1 << 40}}}
	case "VolumeSize":
		return []any{fields{"size_gb": 2}}
	case "NewSnapshot":
		return []any{fields{}, fields{"name": b.name}}
	case "SnapshotRollback":
		return []any{fields{}, fields{"stop": true}}
	case "NewBackup":
		return []any{fields{}, fields{"name": b.name, "store": b.name}}
	case "BackupRestore":
		return []any{fields{"as": "mine"}, fields{"in_place": true}, fields{"as": "mine", "host": b.host}}
	case "NewBackupStore":
		return []any{fields{"name": b.name, "repository": "/" + b.name, "password": "x",
			"projects": []string{b.project}}}
	case "NewBackupSchedule":
		return []any{fields{"name": "mine", "instance": b.name, "every": 3600}, fields{"name": "mine", "at": "03:00",
			"store": b.name}}
	case "NewKey":
		return []any{fields{"name": b.key, "line": "no key"}}
	case "NewProject":
		return []any{fields{"name": "below", "parent": b.project}}
	case "ProjectChange":
		return []any{fields{"note": "mine now"}}
	case "Members":
		return []any{fields{"members": fields{"anna": "project-admin"}}}
	case "Limits":
		return []any{fields{"limits": fields{"instances": 0}}}
	case "Defaults":
		return []any{fields{"limits": fields{"instances": 0}, "generation": 0}}
	case "NewMapping":
		return []any{fields{"peer": b.id, "theirs": b.project, "role": "member"}}
	case "NewPeer":
		return []any{fields{"card": fields{"card": 1, "partition": b.id, "endpoint": "https://east.example",
			"keys": []string{}}}}
	case "HostFence":
		return []any{fields{"how": "confirmed", "confirm": b.host}}
	case "NewInvitation":
		return []any{fields{"host": b.host, "life": "1h"}}
	case "NewToken":
		return []any{fields{"user": b.user, "role": "member", "life": "24h"}}
	}
	return nil
}

// try is one request that a tenant sends with names of another.
type try struct {
	method, path string
	header       http.Header
	body         any
}

// tries returns all requests of an operation: with no parameter, and with each parameter alone, each with each body.
func (b belongings) tries(t *testing.T, o controltest.Operation) (all []try) {
	t.Helper()
	paths, header, needed := []string{o.Path}, http.Header{}, url.Values{}
	for _, p := range o.Parameters {
		if values := b.values(o, p); p.In == "query" && p.Required && len(values) > 0 {
			needed.Set(p.Name, values[0])
		}
	}
	queries := []string{"?" + needed.Encode()}
	for _, p := range o.Parameters {
		values := b.values(o, p)
		if len(values) == 0 {
			t.Errorf("%s: say in values what a tenant may try with the parameter %s in the %s", o.ID, p.Name, p.In)
		}
		switch p.In {
		case "path":
			var filled []string
			for _, path := range paths {
				for _, v := range values {
					filled = append(filled, strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(v)))
				}
			}
			paths = filled
		case "query":
			for _, v := range values {
				query := maps.Clone(needed)
				query.Set(p.Name, v)
				queries = append(queries, "?"+query.Encode())
			}
		case "header":
			header.Set(p.Name, values[0])
		}
	}
	bodies := b.bodies(o.Body)
	if len(bodies) == 0 {
		t.Errorf("%s: say in bodies what a tenant may try with %s", o.ID, o.Body)
	}
	for _, path := range paths {
		for _, query := range queries {
			for _, body := range bodies {
				all = append(all, try{o.Method, path + query, header, body})
			}
		}
	}
	return all
}

// send sends a request and returns status and body; of a stream, the data that arrives within a moment. It retries
// rate-limited requests.
func (try try) send(t *testing.T, server, token string) (status int, text string) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		body, err := json.Marshal(try.body)
		if err != nil {
			t.Fatal(err)
		}
		if try.body == nil {
			body = nil
		}
		r, err := http.NewRequestWithContext(ctx, try.method, server+try.path, strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = try.header.Clone()
		r.Header.Set(api.RequestIDHeader, "test") // so that equal problems are equal documents
		r.Header.Set("Authorization", "Bearer "+token)
		if slices.Contains([]string{"console", "display", "forward"}, path.Base(r.URL.Path)) {
			for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
				"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
				r.Header.Set(name, value)
			}
		}
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", try.method, try.path, err)
		}
		if strings.HasPrefix(got.Header.Get("Content-Type"), "text/event-stream") {
			time.AfterFunc(200*time.Millisecond, cancel)
		} else if got.StatusCode == http.StatusSwitchingProtocols {
			time.AfterFunc(200*time.Millisecond, func() { _ = got.Body.Close() })
		}
		all, _ := io.ReadAll(got.Body) // a stream ends with an error
		_ = got.Body.Close()
		if got.StatusCode != http.StatusTooManyRequests {
			return got.StatusCode, string(all)
		}
		if err := delay.For(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// TestATenantLearnsNothingOfOthers tries every operation of the document with every name of another tenant, as a
// member, a reader and an admin of a separate project. The answers have to be the same as for names that do not exist.
func TestATenantLearnsNothingOfOthers(t *testing.T) {
	t.Parallel()
	server, _ := controltest.StartWithPools(t)
	a := newAsker(t, server)
	for _, name := range []croft.Project{"berta", "anna"} {
		a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: name}).
			want(t, http.StatusCreated, "")
	}
	mine := a.victim(t)
	ghost := belongings{project: "ghost", user: "ghosts-v", id: string(croft.NewInstanceID()), name: "ghosts-vm",
		group: "ghosts-group", key: "ghosts-key", token: string(access.NewSecret().ID), host: "ghost1",
		aggregate: "ghosts-aggregate", pool: "ghosts", ticket: "4711", resource: "4712",
		cluster: string(croft.NewClusterID()), clusterName: "ghosts-cluster", appliance: "ghosts-appliance",
		credential: string(cluster.NewCredentialID()), credentialName: "ghosts-credential",
		implementation: string(cluster.NewImplementationID()), use: string(cluster.NewUseID()),
		member: string(cluster.NewUseID())}
	before := a.everything(t, mine)

	tried := 0
	for _, o := range controltest.Operations() {
		victims, ghosts := mine.tries(t, o), ghost.tries(t, o)
		for i := range victims {
			for _, as := range []string{"anna", "reader", "admin"} {
				tried += 2
				status, text := victims[i].send(t, server, as)
				ghostStatus, ghostText := ghosts[i].send(t, server, as)
				what := fmt.Sprintf("%s: %s %s %v as %s", o.ID, o.Method, victims[i].path, victims[i].body, as)
				if status != ghostStatus {
					t.Errorf("%s: %d, and %d of what is not there\n%s\n%s", what, status, ghostStatus, text, ghostText)
				}
				same := mine.anonymous(text) == ghost.anonymous(ghostText)
				if status >= http.StatusBadRequest && !same {
					t.Errorf("%s is told from what is not there:\n%s%s", what, text, ghostText)
				}
				asked := fmt.Sprint(victims[i].path, victims[i].body)
				for _, name := range append(mine.all(), "victim", "10.0.", victimKey[20:40]) {
					if strings.Contains(text, name) && !strings.Contains(asked, name) && o.ID != "getDocument" &&
						o.ID != "listActions" {
						t.Errorf("%s tells %q: %s", what, name, text)
					}
				}
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d requests were made", tried)
	}
	t.Logf("%d requests of %d operations", tried, len(controltest.Operations()))
	if after := a.everything(t, mine); after != before {
		t.Errorf("the things of the tenant were\n%s\nand are\n%s", before, after)
	}
	for _, e := range a.actions(t, "berta", "", 2) {
		if e.User != "berta" && e.User != "olga" {
			t.Errorf("what %s tried is in the log of the tenant: %+v", e.User, e)
		}
	}
}

// everything returns all that an operator sees of a tenant's objects.
func (a asker) everything(t *testing.T, b belongings) string {
	t.Helper()
	var all []string
	for _, path := range []string{"tickets?all=true&project=" + b.project, "instances/" + b.id,
		"keys?project=" + b.project, "tokens?project=" + b.project,
		"projects/" + b.project, "projects/" + b.project + "/quota", "quota", "clusters/" + b.cluster,
		"credentials?all=true&project=" + b.project, "appliances/" + b.appliance,
		"appliances/" + b.appliance + "/implementations"} {
		got := a.ask(t, "operator", http.MethodGet, "/v1/"+path, nil)
		if got.status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
		all = append(all, string(got.body))
	}
	return strings.Join(all, "\n")
}

// build builds a cluster as the tenant berta, from an appliance and with a credential of hers.
func (a asker) build(t *testing.T, mine *belongings) {
	t.Helper()
	type fields = map[string]any
	mine.clusterName, mine.credentialName, mine.appliance = "victim-cluster", "victim-credential", "victim-appliance"
	a.ask(t, "operator", http.MethodPost, "/v1/sites", fields{"name": "pretend", "type": "sim"}).
		want(t, http.StatusCreated, "")
	var key cluster.Credential
	a.ask(t, "berta", http.MethodPost, "/v1/credentials", fields{"name": mine.credentialName, "site": "pretend",
		"username": "victim-login", "project_name": "victim-there", "secret": "victim-secret"}).into(t, &key)
	a.ask(t, "berta", http.MethodPost, "/v1/appliances", fields{"name": mine.appliance}).want(t, http.StatusCreated, "")
	var how cluster.Implementation
	a.ask(t, "berta", http.MethodPost, "/v1/appliances/"+mine.appliance+"/implementations",
		fields{"site": "pretend", "template": "{}"}).into(t, &how)
	var made api.Cluster
	a.ask(t, "berta", http.MethodPost, "/v1/clusters?wait=60", fields{"name": mine.clusterName,
		"appliance": mine.appliance, "slaves": 1}).into(t, &made)
	if made.State != cluster.Ready || len(made.Uses) != 1 || len(made.Members) != 2 {
		t.Fatalf("the cluster is %+v", made)
	}
	mine.cluster, mine.credential, mine.implementation = string(made.ID), string(key.ID), string(how.ID)
	mine.use, mine.member = string(made.Uses[0].ID), string(made.Members[1].ID)
}
