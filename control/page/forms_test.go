package page_test

import (
	"context"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/control/api"
	"croft/control/page"
	"croft/internal/testing/patient"
	"croft/tenant/access"
)

var (
	formOf  = regexp.MustCompile(`(?s)<main.*?<form method="post" action="([^"]+)">(.*?)</form>`)
	inputOf = regexp.MustCompile(`(?s)<input([^>]*)>|<(textarea|select)([^>]*)>(.*?)</(?:textarea|select)>`)
	attrOf  = regexp.MustCompile(`([a-z-]+)(?:="([^"]*)")?`)
	choice  = regexp.MustCompile(`<option( selected)?[^>]*>([^<]+)</option>`)
)

// fields returns the address of the form of the last page, and its fields as a browser would send them untouched.
// Fields that are required and empty get a text.
func (v *visitor) fields() (string, url.Values) {
	v.t.Helper()
	found := formOf.FindStringSubmatch(v.text)
	if found == nil {
		v.t.Fatalf("%s has no form:\n%s", v.at, v.text)
	}
	all := url.Values{}
	for _, in := range inputOf.FindAllStringSubmatch(found[2], -1) {
		attributes := map[string]string{}
		for _, a := range attrOf.FindAllStringSubmatch(in[1]+in[3], -1) {
			attributes[a[1]] = html.UnescapeString(a[2])
		}
		value := attributes["value"]
		_, required := attributes["required"]
		switch _, checked := attributes["checked"]; {
		case attributes["type"] == "checkbox" && !checked, attributes["name"] == "":
			continue
		case in[2] == "textarea":
			value = html.UnescapeString(in[4])
		case in[2] == "select":
			value = ""
			for n, one := range choice.FindAllStringSubmatch(in[4], -1) {
				if one[1] != "" || n == 0 && required {
					value = html.UnescapeString(one[2])
				}
			}
		}
		if value == "" && required {
			value = "sweep"
			if attributes["inputmode"] == "numeric" {
				value = "1"
			}
		}
		all.Set(attributes["name"], value)
	}
	return html.UnescapeString(found[1]), all
}

// submit opens a form, changes fields of it, and sends it. The pairs are names of fields and their texts.
func (v *visitor) submit(want int, path string, pairs ...string) {
	v.t.Helper()
	v.get(http.StatusOK, "/ui"+path)
	at, f := v.fields()
	for n := 0; n+1 < len(pairs); n += 2 {
		if pairs[n] != "typed" && !f.Has(pairs[n]) && !strings.Contains(v.text, `name="`+pairs[n]+`"`) {
			v.t.Fatalf("%s has no field %s:\n%s", path, pairs[n], v.text)
		}
		f.Set(pairs[n], pairs[n+1])
	}
	v.send(want, at, f)
}

func changesVolumes(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	v.get(http.StatusOK, "/ui/volumes")
	v.says(`href="/ui/volumes/new"`)
	v.submit(http.StatusBadRequest, "/volumes/new", "name", "disk", "size_gb", "much")
	v.says("&#34;much&#34; is no whole number")
	v.says(`value="disk"`)
	v.submit(http.StatusOK, "/volumes/new", "name", "disk", "size_gb", "1", "near", "web")
	v.says("The volume is being created.")
	row := func(state string) {
		t.Helper()
		patient.Until(t, "the volume is "+state, func() bool {
			v.get(http.StatusOK, "/ui/volumes")
			_, text, _ := strings.Cut(v.text, "<bdi>disk</bdi>")
			text, _, _ = strings.Cut(text, "</tr>")
			return strings.Contains(text, state)
		})
	}
	row("available")
	v.submit(http.StatusOK, "/volumes/disk/attach", "instance", "web")
	row("in_use")
	v.hides("/ui/volumes/disk/attach")
	v.submit(http.StatusOK, "/volumes/disk/detach")
	row("available")
	v.submit(http.StatusOK, strings.TrimPrefix(at, "/ui")+"/volumes/attach", "name", "disk")
	row("in_use")
	v.submit(http.StatusOK, "/volumes/disk/detach")
	row("available")
	v.submit(http.StatusOK, "/volumes/disk/remove", "typed", "disk")
	patient.Until(t, "the volume is gone", func() bool {
		return v.status(v.request(http.MethodGet, "/ui/volumes/disk/grow", "")) == http.StatusNotFound
	})
	v.get(http.StatusBadRequest, "/ui/volumes/%2E%2E/grow")
}

// showsDifferences changes the same thing in two tabs: of objects with a version, and of ones without.
func showsDifferences(t *testing.T, s served, _ string) {
	v := s.login(t, "operator")
	v.submit(http.StatusOK, "/sizes/new", "name", "tiny", "resources", "VCPU:1,MEMORY_MB:64,DISK_GB:1")
	v.says("The size is stored.")
	v.submit(http.StatusOK, "/sites/new", "name", "twice", "type", "sim", "defaults", "network=one\ncount=2")
	for path, c := range map[string]struct{ field, first, second string }{
		"/sizes/tiny/change":  {"default", "yes", ""},
		"/sites/twice/change": {"defaults", "network=two", "network=three"},
	} {
		other := s.login(t, "operator")
		other.get(http.StatusOK, "/ui"+path)
		at, f := other.fields()
		v.submit(http.StatusOK, path, c.field, c.first)
		f.Set(c.field, c.second)
		if c.field == "default" {
			f.Del(c.field)
			f.Set("name", "small")
		}
		other.send(http.StatusPreconditionFailed, at, f)
		other.says("was changed meanwhile")
		other.says("<bdi>" + c.first + "</bdi>")
		at, f = other.fields()
		other.send(http.StatusOK, at, f)
		other.says("The change is stored.")
	}
	v.get(http.StatusOK, "/ui/sites/twice/change")
	v.says("network=three")
	v.get(http.StatusOK, "/ui/sizes")
	v.says("<bdi>small</bdi>")
	v.submit(http.StatusOK, "/sizes/small/remove", "typed", "small")
	v.submit(http.StatusOK, "/sites/twice/remove", "typed", "twice")
	v.says("The site is removed.")
}

func buildsClusters(t *testing.T, s served, _ string) {
	operator, v := s.login(t, "operator"), s.login(t, "anna")
	operator.submit(http.StatusOK, "/sites/new", "name", "pretend", "type", "sim")
	v.submit(http.StatusOK, "/sites/credentials/new", "name", "mine", "site", "pretend", "kind", "password", "username",
		"anna", "project_name", "anna", "secret", "hush")
	v.says("The credential is stored.")
	v.hides("hush")
	v.submit(http.StatusOK, "/sites/appliances/new", "name", "batch", "description", "batch jobs")
	v.submit(http.StatusOK, "/sites/appliances/batch/implementations/new", "site", "pretend", "template", "{}")
	v.says("New clusters are built by it.")
	v.submit(http.StatusOK, "/clusters/explain", "appliance", "batch", "slaves", "1")
	v.says("pretend")
	v.submit(http.StatusOK, "/clusters/new", "name", "work", "appliance", "batch", "slaves", "1", "keep_idle", "1h")
	v.says("The cluster is asked for.")
	at := strings.TrimPrefix(strings.TrimSuffix(v.at, "?done=clusters.new"), "/ui")
	at, _, _ = strings.Cut(at, "?")
	ready := func(members int) {
		t.Helper()
		patient.Until(t, "the cluster is ready", func() bool {
			v.get(http.StatusOK, "/ui"+at)
			return strings.Contains(v.text, "READY") && strings.Count(v.text, "ready: 4 of 4 steps") == members
		})
	}
	ready(2)
	v.submit(http.StatusOK, at+"/change", "slaves", "2")
	ready(3)
	v.submit(http.StatusOK, at+"/grow")
	ready(4)
	v.submit(http.StatusOK, at+"/hosts/last/remove", "typed", "last")
	ready(3)
	v.submit(http.StatusOK, at+"/remove", "typed", "work")
	v.says("The cluster is being removed.")
}

func changesPools(t *testing.T, s served, _ string) {
	operator, v := s.login(t, "operator"), s.login(t, "anna")
	operator.submit(http.StatusOK, "/pools/everybodys/size", "max", "2")
	operator.says("The size is set.")
	operator.get(http.StatusOK, "/ui/pools/everybodys/size")
	operator.says(`value="2"`)
	operator.submit(http.StatusOK, "/pools/everybodys/size", "max", "")
	operator.get(http.StatusOK, "/ui/pools/everybodys/size")
	operator.says(`value="3"`)
	v.submit(http.StatusOK, "/pools/tickets/new", "tags", "shared", "ttl", "1h")
	v.says("The ticket is open.")
	found := regexp.MustCompile(`/ui/pools/tickets/(\d+)/renew`).FindStringSubmatch(v.text)
	if found == nil {
		t.Fatalf("the ticket has no link:\n%s", v.text)
	}
	v.submit(http.StatusOK, "/pools/tickets/"+found[1]+"/renew")
	v.submit(http.StatusUnprocessableEntity, "/pools/tickets/"+found[1]+"/close", "typed", "no")
	v.submit(http.StatusOK, "/pools/tickets/"+found[1]+"/close", "typed", found[1])
	v.says("The ticket is closed.")
}

func invitesHosts(t *testing.T, s served, _ string) {
	v := s.login(t, "operator")
	v.submit(http.StatusBadRequest, "/backups/stores/new", "name", "No name", "repository", "/backups", "password",
		"hush",
		"environment", "AWS_SECRET_ACCESS_KEY=hush")
	v.says(`value="/backups"`)
	v.hides("hush")
	v.get(http.StatusOK, "/ui/hosts")
	v.says(`href="/ui/invitations"`)
	v.submit(http.StatusBadRequest, "/invitations/new", "life", "soon")
	v.submit(http.StatusOK, "/aggregates/new", "name", "fast", "hosts", "host1")
	v.submit(http.StatusOK, "/aggregates/new", "name", "slow", "note", "old disks")
	v.submit(http.StatusOK, "/aggregates/distances/new", "a", "fast", "b", "slow", "distance", "3")
	v.says("The distance is stored.")
	v.submit(http.StatusOK, "/aggregates/distances/between/remove?a=fast&b=slow&type=failure")
	v.says("The distance is removed.")
	v.submit(http.StatusOK, "/aggregates/fast/change", "remove_hosts", "host1", "public", "yes")
	v.submit(http.StatusOK, "/aggregates/fast/remove", "typed", "fast")
}

// sweepsForms sends every form as every role. What a role may not do through the API, it cannot do through the page,
// and the page does not offer it.
func sweepsForms(t *testing.T, s served, at string) {
	s.project(t, "anna", "")
	operator := s.login(t, "operator")
	anna := s.login(t, "anna")
	id := strings.TrimPrefix(at, "/ui/instances/")
	operator.submit(http.StatusOK, "/sizes/new", "name", "swept")
	operator.submit(http.StatusOK, "/aggregates/new", "name", "swept")
	operator.submit(http.StatusOK, "/capabilities/new", "name", "CUSTOM_SWEPT")
	operator.submit(http.StatusOK, "/sites/new", "name", "swept", "type", "sim")
	operator.submit(http.StatusOK, "/sites/images/new", "name", "swept")
	operator.submit(http.StatusOK, "/definitions/group/change", "unknown", "allow")
	anna.submit(http.StatusOK, "/sites/appliances/new", "name", "swept")
	anna.submit(http.StatusOK, "/sites/appliances/swept/implementations/new", "site", "swept", "template", "{}")
	implementation := regexp.MustCompile(`/ui/sites/appliances/swept/implementations/([0-9a-f-]{36})/change`).
		FindStringSubmatch(anna.text)[1]
	anna.submit(http.StatusOK, "/volumes/new", "name", "swept", "size_gb", "1")
	anna.submit(http.StatusOK, "/claims/new", "name", "swept", "query", "VCPU:1,MEMORY_MB:64,DISK_GB:1")
	claim := regexp.MustCompile(`/ui/claims/([0-9a-f-]{36})/use`).FindStringSubmatch(anna.text)
	if claim == nil {
		t.Fatalf("the claim has no link:\n%s", anna.text)
	}
	anna.submit(http.StatusOK, "/pools/tickets/new", "tags", "shared")
	ticket := regexp.MustCompile(`/ui/pools/tickets/(\d+)/renew`).FindStringSubmatch(anna.text)[1]
	patient.Until(t, "the volume exists", func() bool {
		anna.get(http.StatusOK, "/ui/volumes")
		return strings.Contains(anna.text, "available")
	})
	operator.submit(http.StatusOK, "/aggregates/new", "name", "far")
	anna.submit(http.StatusOK, "/images/new", "name", "swept", "url", "debian-12")
	operator.submit(http.StatusOK, "/aggregates/distances/new", "a", "swept", "b", "far", "distance", "3")
	operator.send(http.StatusOK, "/ui/policies", url.Values{"name": {"swept"}, "text": {"take 1"}, "do": {"save"}})
	operator.submit(http.StatusOK, "/backups/stores/new", "name", "swept", "repository", t.TempDir(), "password",
		"hush")
	anna.submit(http.StatusOK, "/backups/schedules/new", "name", "swept", "at", "03:00", "keep.last", "3", "store",
		"swept")
	anna.submit(http.StatusOK, "/sites/credentials/new", "name", "swept", "site", "swept", "username", "anna",
		"project_name", "anna", "secret", "hush")
	anna.submit(http.StatusOK, "/clusters/new", "name", "swept", "appliance", "swept", "slaves", "1")
	cluster := regexp.MustCompile(`/ui/clusters/([0-9a-f-]{36})/change`).FindStringSubmatch(anna.text)[1]
	anna.submit(http.StatusOK, "/volumes/new", "name", "held", "size_gb", "1", "near", "web")
	patient.Until(t, "the volume is attached", func() bool {
		anna.get(http.StatusOK, "/ui/volumes/held/attach")
		where, f := anna.fields()
		f.Set("instance", "web")
		return anna.status(anna.request(http.MethodPost, where, f.Encode())) == http.StatusOK
	})
	host := string(s.hostCalled(t, "host1").ID)
	values := func(form page.Form) map[string]string {
		first, _, _ := strings.Cut(strings.TrimPrefix(form.At, "/"), "/")
		ids := map[string]string{"instances": id, "hosts": host, "claims": claim[1], "sites": implementation,
			"pools": ticket, "clusters": cluster}
		name := "swept"
		switch first {
		case "capabilities":
			name = "CUSTOM_SWEPT"
		case "pools":
			name = "everybodys"
		}
		return map[string]string{"name": name, "id": ids[first], "kind": "group", "host": "last", "theirs": "swept",
			"output": "swept", "use": implementation}
	}
	address := func(form page.Form) string {
		path := form.At
		for name, value := range values(form) {
			if value == "" {
				value = "swept"
			}
			path = strings.ReplaceAll(path, "{"+name+"}", value)
		}
		return "/ui" + path
	}
	fields := map[string]url.Values{} // by form, as operators get them
	for _, form := range page.Forms() {
		r := operator.request(http.MethodGet, address(form)+"?project=anna", "")
		if status := operator.status(r); status == http.StatusOK {
			_, fields[form.At] = operator.fields()
		} else if status != http.StatusNotFound {
			t.Errorf("an operator gets %d from %s:\n%s", status, form.At, operator.text)
		}
	}
	offered := map[string]bool{}
	for token, role := range map[string]access.Role{"reader": access.Reader, "anna": access.Member,
		"admin": access.ProjectAdmin, "operator": access.PartitionAdmin} {
		v := s.login(t, token)
		query := ""
		if token == "operator" {
			query = "?project=anna"
		}
		pages := []string{at, "/ui/project", "/ui/policies?name=swept&", "/ui/hosts/" + host, "/ui/more",
			"/ui/clusters/" + cluster}
		for _, list := range page.Lists() {
			pages = append(pages, "/ui"+list)
		}
		all := ""
		for _, one := range pages {
			if strings.Contains(one, "?") {
				one += strings.TrimPrefix(query, "?")
			} else {
				one += query
			}
			v.status(v.request(http.MethodGet, one, ""))
			all += v.text
		}
		v.status(v.request(http.MethodGet, "/ui/project", "")) // operators get the list of projects
		all += v.text
		for _, form := range page.Forms() {
			may := form.Rule.Decide(role) == access.Yes || form.Rule.Decide(role) == access.Below
			see := form.See.Decide(role) == access.Yes || form.See.Decide(role) == access.Below
			link := regexp.MustCompile(`href="` + regexp.MustCompile(`\\\{[a-z]+\\\}`).
				ReplaceAllString(regexp.QuoteMeta("/ui"+form.At), `[^/"?]+`) + `["?]`)
			if link.MatchString(all) {
				offered[form.At] = true
				if !see {
					t.Errorf("%s is offered the form %s", token, form.At)
				}
			}
			f := maps.Clone(fields[form.At])
			if f == nil {
				f = url.Values{}
			}
			f.Set("form", v.form)
			f.Set("version", `"1"`)
			if !may { // also with the right name, nothing is changed
				before := s.done.of(token)
				for _, word := range []string{"swept", "CUSTOM_SWEPT", ticket, "web", "host1", "anna", "group", "last",
					implementation} {
					f.Set("typed", word)
					if status := v.status(v.request(http.MethodPost, address(form)+query, f.Encode())); status < 400 {
						t.Errorf("%s sends %s and gets %d:\n%s", token, form.At, status, v.text)
					}
				}
				if s.done.of(token) != before {
					t.Errorf("%s changes something with the form %s: %q", token, form.At, s.done.all[len(s.done.all)-1])
				}
				status := v.status(v.request(http.MethodGet, address(form)+query, ""))
				if status != http.StatusForbidden && status != http.StatusNotFound {
					t.Errorf("%s opens %s and gets %d", token, form.At, status)
				}
				continue
			}
			if form.Final { // the confirmation is wrong: it stays
				f.Set("typed", "nothing")
			}
			status := v.status(v.request(http.MethodPost, address(form)+query, f.Encode()))
			if status >= 500 && status != http.StatusServiceUnavailable || status == http.StatusForbidden &&
				!slices.Contains(personal, form.At) {
				t.Errorf("%s sends %s and gets %d:\n%s", token, form.At, status, v.text)
			}
		}
	}
	for _, form := range page.Forms() {
		if !offered[form.At] && !slices.Contains(seldom, form.At) {
			t.Errorf("no page leads to %s", form.At)
		}
	}
	if _, err := s.client(t, "anna").GetVolume(t.Context(), api.VolumeNamed{Name: "swept"}); err != nil {
		t.Errorf("the sweep removed a volume without a confirmation: %v", err)
	}
	if croft.KindOf(s.client(t, "anna").RemoveVolume(t.Context(), api.VolumeNamed{Name: "swept"})) == croft.NotFound {
		t.Error("the volume is gone")
	}
}

// personal are forms that also depend on who the caller is.
var personal = []string{"/project/mappings/new", "/project/note", "/clusters/{id}/outputs/{output}"}

// seldom are forms that are offered for objects that this test does not have.
var seldom = []string{"/project/mappings/{id}/{theirs}/remove", "/peers/{id}/remove", "/peers/{id}/forget",
	"/invitations/{name}/revoke", "/peers/signers/{id}/retire", "/backups/{name}/check", "/backups/{name}/restore",
	"/backups/{name}/restore-in-place", "/backups/{name}/remove",
	"/hosts/{id}/accept", "/hosts/{id}/etcd", "/clusters/{id}/uses/{use}/end", "/clusters/{id}/outputs/{output}"}

// status sends a request, and reads the page that answers it.
func (v *visitor) status(r *http.Request) int {
	v.t.Helper()
	if r.Method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := v.http.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	v.read(answer)
	return answer.StatusCode
}

// followsLists follows lists whose rows are read again and again.
func followsLists(t *testing.T, s served, _ string) {
	v := s.login(t, "anna")
	follow := regexp.MustCompile(`data-follow="([^"]+)"`)
	stream := func(v *visitor, path, last string) (<-chan event, func()) {
		t.Helper()
		v.get(http.StatusOK, path)
		ctx, cancel := context.WithCancel(t.Context())
		events, status := v.follow(ctx, html.UnescapeString(follow.FindStringSubmatch(v.text)[1]), last)
		if status != http.StatusOK {
			t.Fatalf("%s: got %d", path, status)
		}
		return events, cancel
	}
	await := func(events <-chan event, kind string, parts ...string) event {
		t.Helper()
		for e := range events {
			if e.kind == kind && !slices.ContainsFunc(parts, func(p string) bool {
				return !strings.Contains(e.data,
					p)
			}) {
				return e
			}
		}
		t.Fatalf("the stream ends without the event %s with %q", kind, parts)
		return event{}
	}
	events, end := stream(v, "/ui/volumes", "")
	defer end()
	if first := <-events; first.kind != "live" || first.id == "" {
		t.Fatalf("got %+v first, although nothing has changed", first)
	}
	if _, err := s.client(t, "anna").CreateVolume(t.Context(), api.NewVolume{Name: "seen", SizeGB: 1}); err != nil {
		t.Fatal(err)
	}
	await(events, "row", "seen", "available")
	mark := await(events, "live").id
	again, endAgain := stream(v, "/ui/volumes", mark)
	if first := <-again; first.kind != "live" {
		t.Errorf("a browser that has all rows gets %+v", first)
	}
	endAgain()
	late, endLate := stream(v, "/ui/volumes", "0123456789abcdef")
	await(late, "row", "seen")
	await(late, "rows", "[")
	endLate()
	patient.Until(t, "the volume is removed", func() bool {
		return s.client(t, "anna").RemoveVolume(t.Context(), api.VolumeNamed{Name: "seen"}) == nil
	})
	await(events, "row", `"gone":true`)
	operator := s.login(t, "operator")
	hosts, endHosts := stream(operator, "/ui/hosts", "")
	defer endHosts()
	if first := <-hosts; first.kind != "live" {
		t.Errorf("got %+v first, although no host has changed", first)
	}
	if _, err := s.client(t, "operator").DrainHost(t.Context(), api.HostNamed{ID: "host1"}); err != nil {
		t.Fatal(err)
	}
	await(hosts, "row", "drained")
	if _, err := s.client(t, "operator").EnableHost(t.Context(), api.HostNamed{ID: "host1"}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/ui/hosts/events", "/ui/volumes/events?project=berta"} {
		events, status := v.follow(t.Context(), path, "")
		if e := <-events; status == http.StatusOK && e.kind != "refused" {
			t.Errorf("%s: a stranger gets %+v", path, e)
		}
	}
	for list := range strings.FieldsSeq("images backups pools clusters sites") {
		events, end := stream(v, "/ui/"+list, "")
		await(events, "live")
		end()
	}
}
