package page_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"croft"
	"croft/control/api"
	"croft/internal/testing/browser"
	"croft/internal/testing/patient"
)

// violations runs axe-core in the page, and describes what it finds.
const violations = `axe.run(document, {runOnly: ["wcag2a",
	 "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
	.then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 200) + " " +
		n.any.map(a => a.message).join()).join(" | ")).join("\n"))`

// TestThePageInABrowser tests every view in Chromium, as each role, on a phone and on a large screen, light and dark.
func TestThePageInABrowser(t *testing.T) {
	t.Parallel()
	keys := make(chan uint32, 100)
	s := startBehind(t, screens(keys))
	axe, err := os.ReadFile("testdata/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	s.project(t, "org", "")
	s.project(t, "anna", "org")
	web := s.create(t, "anna", "web", func(in *api.NewInstance) { in.Machine.Display = croft.DisplayVNC })
	s.create(t, "anna", "db", func(in *api.NewInstance) { in.Protected = true })
	for _, name := range []string{"host2", "host3"} {
		if err := s.cloud.AddHost(t.Context(), name, 6); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.client(t, "operator").DrainHost(t.Context(), api.HostNamed{ID: "host2"}); err != nil {
		t.Fatal(err)
	}
	if err := s.cloud.StopHost(t.Context(), "host3"); err != nil {
		t.Fatal(err)
	}
	fillProject(t, s)
	cluster := fillThings(t, s)
	at := s.url + "/ui/instances/" + string(web.ID)
	b := browser.Open(t, s.url)
	check := func(name string) {
		t.Helper()
		browser.Eval[any](b, string(axe)+"; 1")
		for _, screen := range [][2]int{{2560, 1300}, {1280, 900}, {360, 740}} {
			b.Do(chromedp.EmulateViewport(int64(screen[0]), int64(screen[1])))
			if browser.Eval[bool](b, "document.documentElement.scrollWidth > innerWidth") {
				t.Errorf("%s: one has to move sideways at %d pixels", name, screen[0])
			}
			for _, scheme := range []string{"light", "dark"} {
				b.Prefer(scheme)
				b.Shot(fmt.Sprintf("%s-%d-%s", name, screen[0], scheme))
				if (screen[0] == 360) == (scheme == "dark") || screen[0] == 2560 {
					continue // each layout and each scheme is checked once
				}
				if bad := browser.Run(b, chromedp.Evaluate[string](violations, chromedp.EvalAwaitPromise)); bad != "" {
					t.Errorf("%s at %d, %s: axe-core finds %s", name, screen[0], scheme, bad)
				}
			}
		}
	}
	s.welcome(t)
	firstVM(t, s, b, true)
	firstVM(t, s, b, false)
	for _, token := range []string{"reader", "anna", "admin", "operator"} {
		b.Go(s.url + "/ui/login")
		if token == "reader" {
			check("login")
			for _, name := range []string{"", "/images", "/reference"} {
				b.Go(s.url + "/ui/docs" + name)
				check("docs" + strings.ReplaceAll(name, "/", "-"))
			}
			b.Go(s.url + "/ui/login")
		}
		b.Do(chromedp.SendKeys("#token", token+"\r"))
		b.Until(`document.querySelector("[data-list]") !== null && document.querySelector("#live.on") !== null`)
		check("instances-" + token)
		b.Go(at)
		b.Until(`document.querySelector("#live.on") !== null`)
		check("instance-" + token)
		views := map[string]string{} // views that are the same for each role are opened once
		switch token {
		case "reader":
			views["keys"], views["error"] = s.url+"/ui/keys", s.url+"/ui/nothing"
		case "anna":
			views["log"], views["empty"] = at+"/log", s.url+"/ui/instances?name=nothing"
			views["remove"], views["resize"] = at+"/remove", at+"/resize"
			views["dashboard"] = s.url + "/ui/dashboard"
			views["cluster"], views["sites"] = s.url+cluster, s.url+"/ui/sites"
			views["cluster-new"] = s.url + "/ui/clusters/new"
			views["schedule-new"] = s.url + "/ui/backups/schedules/new"
		case "admin":
			views["project"] = s.url + "/ui/project?of=instances"
			views["revoke"] = s.url + "/ui/project/tokens/remove?id=" + s.tokenOf(t, "ci")
		case "operator":
			for name := range strings.FieldsSeq("listInstances createInstance removeAggregate watchEvents") {
				views["try-"+name] = s.url + "/ui/try/" + name
			}
			views["new"], views["move"] = s.url+"/ui/instances/new", at+"/move"
			views["new-fits"] = s.url + "/ui/instances/new?image=debian-12&size=tiny&name=front&project=anna&expires=8h&" +
				"user_data=%23cloud-config%0Apackages:%20[nginx]%0A&tags=role=web"
			views["new-full"] = s.url + "/ui/instances/new?image=debian-12&VCPU=2&MEMORY_MB=65536&DISK_GB=1&name=web&" +
				"project=anna&user_data=%23cloud-config%0Apackages:%20[%0A&display=vnc"
			views["hosts"], views["host"] = s.url+"/ui/hosts", s.url+"/ui/hosts/"+string(s.hostCalled(t, "host1").ID)
			views["fence"], views["audit"] = views["host"]+"/fence", s.url+"/ui/audit"
			views["dashboard"], views["projects"] = s.url+"/ui/dashboard", s.url+"/ui/project"
			views["hosts-many"] = s.crowded(t, 1500).url + "/ui/hosts"
		}
		if token == "operator" {
			for name := range strings.FieldsSeq("volumes images backups pools clusters policies log peers more " +
				"sites/mine/change") {
				views[strings.ReplaceAll(name, "/", "-")] = s.url + "/ui/" + name
			}
		}
		for name, path := range views {
			b.Go(path)
			check(name + "-" + token)
		}
		if token == "anna" {
			useKeys(t, s, b)
			leadsTheEye(t, s, b, at)
			triesByKeyboard(t, s, b, check)
			useConsole(t, s, b, at, check)
			useScreen(t, b, at, keys, check)
		}
		b.Go(s.url + "/ui/instances")
		b.Do(chromedp.Click(`form[action="/ui/logout"] button`))
		b.Until(`document.querySelector("#token") !== null`)
	}
	comesBackFromTheIssuer(s, b, check)
	doesNoHarm(t, s, b, "operator", strings.TrimPrefix(at, s.url))
	aSleeperAsksForALogin(t, s, b, "bente")
	keepsTheTextInABrowser(t, s, b, "bente")
	if foreign := browser.Eval[string](b, `performance.getEntriesByType("resource").map(e => e.name)
		.filter(n => !n.startsWith(location.origin)).join()`); foreign != "" {
		t.Errorf("the page asks elsewhere: %s", foreign)
	}
	if troubles := b.Troubles(); len(troubles) > 0 {
		t.Errorf("the page complains: %q", troubles)
	}
}

// fillProject gives the project anna all that its page shows.
func fillProject(t *testing.T, s served) {
	t.Helper()
	admin := s.login(t, "admin")
	admin.get(200, "/ui/project")
	admin.send(200, "/ui/project/members", url.Values{"user": {"zoe"}, "role": {"member"},
		"version": {field(t, admin.text, "version")}})
	admin.send(200, "/ui/project/tokens", url.Values{"user": {"ci"}, "role": {"member"}, "life": {"90d"},
		"note": {"builds"}})
	admin.send(200, "/ui/project/keys", url.Values{"name": {"laptop"}, "line": {publicKey}})
	patient.Until(t, "usage is recorded", func() bool {
		admin.get(200, "/ui/project")
		return strings.Contains(admin.text, `class="chart"`)
	})
}

// useKeys stops an instance with the keyboard alone, and watches its row.
func useKeys(t *testing.T, s served, b *browser.Browser) {
	b.Do(chromedp.EmulateViewport(1280, 900))
	b.Go(s.url + "/ui/instances")
	b.Until(`document.querySelector("#live.on") !== null`)
	browser.Eval[any](b, "window.stayed = true")
	b.Do(chromedp.KeyEvent("?"))
	b.Until(`document.querySelector("dialog[open]") !== null`)
	b.Do(chromedp.KeyEvent("\x1b"), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("x"))
	b.Until(`document.querySelector("#picked").innerText === "1 instance picked"`)
	web := `[...document.querySelectorAll("[data-list] tbody tr")].find(r => r.innerText.includes("web"))`
	if !browser.Eval[bool](b, web+`.querySelector("input").checked`) {
		t.Error("j, j and x do not pick the second row")
	}
	b.Do(chromedp.KeyEvent("k"), chromedp.KeyEvent("j"))
	id := browser.Eval[string](b, web+".dataset.id")
	v := s.login(t, "anna")
	v.send(200, "/ui/instances/"+id+"/stop", nil)
	b.Until(web + `.innerText.includes("stopped")`)
	stayed := `window.stayed && ` + web + `.querySelector("input").checked && ` + web + `.classList.contains("at")`
	if !browser.Eval[bool](b, stayed) {
		t.Error("an update moved the cursor, put the row back or loaded the page anew")
	}
	b.Do(chromedp.KeyEvent("\r"))
	b.Until(`location.pathname.endsWith("` + id + `") && document.querySelector("#live.on") !== null`)
	v.send(200, "/ui/instances/"+id+"/start", nil)
	b.Until(`document.querySelector(".head .state").innerText.includes("running")`)
	b.Do(chromedp.KeyEvent("u"))
	b.Until(`location.pathname === "/ui/instances" && document.querySelector("#live.on") !== null`)
	b.Until(web + `.classList.contains("at") && ` + web + `.contains(document.activeElement)`)
	b.Type("/")
	if focus := browser.Eval[string](b, "document.activeElement.name"); focus != "name" {
		t.Errorf("/ leads to %q", focus)
	}
	b.Type("db\r")
	b.Until(`location.search.includes("name=db") && document.querySelector("[data-list]") !== null`)
	found := browser.Eval[string](b, "document.querySelector('[data-list]').innerText")
	if strings.Contains(found, "web") {
		t.Errorf("the search finds %s", found)
	}
	b.Go(s.url + "/ui/log")
	b.Do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	b.Until(`document.activeElement === document.querySelector("[data-list] tbody").rows[1]`) // rows without links
}

// triesByKeyboard finds an operation in the reference, and sends it with the keyboard alone. On the form of a new
// instance, which has a field for keys, ? shows the keys of the page.
func triesByKeyboard(t *testing.T, s served, b *browser.Browser, check func(string)) {
	t.Helper()
	b.Do(chromedp.EmulateViewport(1280, 900))
	b.Go(s.url + "/ui/docs/reference#getVolume")
	b.Until(`document.querySelector("#getVolume").open`)
	browser.Eval[any](b, `document.querySelector("#getVolume summary").focus()`)
	b.Do(chromedp.KeyEvent("\t"))
	for browser.Eval[bool](b, `!document.activeElement.matches("a.button")`) {
		b.Do(chromedp.KeyEvent("\t"))
	}
	b.Do(chromedp.KeyEvent("\r"))
	b.Until(`location.pathname === "/ui/try/getVolume"`)
	browser.Eval[any](b, `document.querySelector("[name='in.name']").focus()`)
	b.Type("data\r")
	b.Until(`document.activeElement.id === "h-answer"`)
	if says := browser.Eval[string](b, `document.querySelector("#the-answer").innerText`); !strings.Contains(says, `"data"`) {
		t.Errorf("the answer is %s", says)
	}
	check("tried")
	b.Do(chromedp.EmulateViewport(1280, 900))
	b.Go(s.url + "/ui/instances/new")
	browser.Eval[any](b, `document.activeElement.blur()`)
	b.Do(chromedp.KeyEvent("?"))
	b.Until(`document.querySelector("dialog[open]") !== null`)
	b.Do(chromedp.KeyEvent("\x1b"))
}

// fillThings makes some of everything that the lists show, and returns the path of a cluster.
func fillThings(t *testing.T, s served) string {
	t.Helper()
	operator, anna := s.login(t, "operator"), s.login(t, "anna")
	operator.submit(200, "/sizes/new", "name", "small", "resources", "VCPU:1,MEMORY_MB:512,DISK_GB:5", "default", "yes")
	operator.submit(200, "/aggregates/new", "name", "fast", "note", "solid state disks", "hosts", "host1")
	operator.submit(200, "/aggregates/new", "name", "slow")
	operator.submit(200, "/aggregates/distances/new", "a", "fast", "b", "slow", "distance", "3")
	operator.submit(200, "/capabilities/new", "name", "CUSTOM_FAST")
	operator.submit(200, "/sites/new", "name", "mine", "type", "sim", "defaults", "network=inner")
	operator.submit(200, "/sites/images/new", "name", "nodes")
	anna.submit(200, "/sites/appliances/new", "name", "batch", "description", "a queue for jobs")
	anna.submit(200, "/sites/appliances/batch/implementations/new", "site", "mine", "template", "{}")
	anna.submit(200, "/sites/credentials/new", "name", "own", "site", "mine", "username", "anna", "project_name",
		"anna",
		"secret", "hush")
	anna.submit(200, "/volumes/new", "name", "data", "size_gb", "1", "near", "web")
	anna.submit(200, "/images/new", "name", "base", "url", "debian-12", "description", "for all of our machines")
	anna.submit(200, "/pools/tickets/new", "tags", "shared")
	anna.submit(200, "/claims/new", "name", "yet-to-come", "query", "VCPU:1,MEMORY_MB:64,DISK_GB:1")
	anna.submit(200, "/clusters/new", "name", "work", "appliance", "batch", "slaves", "3")
	at, _, _ := strings.Cut(anna.at, "?")
	patient.Until(t, "the cluster is ready", func() bool {
		anna.get(200, at)
		return strings.Contains(anna.text, "READY")
	})
	return at
}
