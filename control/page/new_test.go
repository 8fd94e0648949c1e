package page_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/control/api"
	"croft/tenant"
)

const checkAt = "/ui/instances/new/check"

// roomForm matches what a form says that fits on a host; other cases add hosts that have none.
var roomForm = regexp.MustCompile(`The host has room\.|Room on \d+ of \d+ hosts`)

func (v *visitor) saysRoom(t *testing.T) {
	t.Helper()
	if !roomForm.MatchString(v.text) {
		t.Errorf("no host has room: %s", v.text)
	}
}

func checksNewInstances(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	v.get(http.StatusOK, "/ui/instances/new")
	v.says("Nothing is chosen yet: an image is enough.")
	v.says(`<th scope="row">vCPU</th><td class="n">–</td>`)
	v.says(`<option value="debian-12">`)
	big := url.Values{"image": {"debian-12"}, "VCPU": {"1"}, "MEMORY_MB": {"65536"}, "DISK_GB": {"1"}}
	v.send(http.StatusOK, checkAt, big)
	v.says("No host has room now.")
	v.says("short of 65536")
	v.says("The smallest change:</strong> ask for memory\u00a0")
	v.says("<bdi>host 1</bdi>")
	v.hides("<bdi>host1</bdi>") // tenants see no hosts
	big.Set("use", field(t, v.text, "use"))
	v.send(http.StatusOK, checkAt, big)
	v.says(`name="VCPU" inputmode="numeric" value="1"`)
	v.hides(`value="65536"`)
	v.saysRoom(t)
	fits := url.Values{"image": {"debian-12"}, "VCPU": {"1"}, "MEMORY_MB": {"256"}, "DISK_GB": {"1"}}
	for _, c := range []struct{ name, field, value, says string }{
		{"a wrong name", "name", "Web_1", "is not a host name"},
		{"a name that is taken", "name", "web", "another instance of the project has this name"},
		{"cloud-config that is no YAML", "user_data", "#cloud-config\nhostname: [\n", "line 2"},
		{"a misspelt first line", "user_data", "#cloud_config\n", "begins with"},
		{"an image that does not exist", "image", "debain-12", "there is no image"},
		{"no image", "image", "", "choose an image, or an ISO that installs one"},
		{"amounts that are no numbers", "VCPU", "two", "write a whole number from 1"},
		{"a misspelt condition", "query", "requird=HW_CPU_X86_AVX2", "requird"},
		{"a condition that no host meets", "query", "required=HW_CPU_X86_AVX512F", "lacks HW_CPU_X86_AVX512F"},
		{"a tag without a value", "tags", "role", "write key=value"},
		{"a property without a value", "properties", "role", "write key=value"},
		{"a volume without a size", "disks", "data", "is not a size of a volume"},
		{"an expiry that is no time", "expires", "soon", "write a duration"},
		{"a size and amounts", "size", "small", "leave them empty"},
		{"a network that does not exist", "network", "nowhere", "nowhere"},
		{"an address that is none", "address", "1.2.3", "1.2.3"},
		{"a port that is none", "open", "http", "http"},
		{"secure boot without UEFI", "iso", "nowhere", "nowhere"},
	} {
		f := url.Values{c.field: {c.value}, "part": {"yes"}}
		for name, values := range fits {
			if !f.Has(name) {
				f[name] = values
			}
		}
		v.send(http.StatusOK, checkAt, f)
		if text := html.UnescapeString(v.text); !strings.Contains(text, c.says) ||
			roomForm.MatchString(text) {
			t.Errorf("%s: it says %s", c.name, text)
		}
		v.hides("<html")
	}
	v.send(http.StatusBadRequest, "/ui/instances/new", url.Values{"image": {"debian-12"}, "name": {"Web_1"},
		"user_data": {"#cloud-config\nkept: true\n"}})
	v.says("The instance is not created: ")
	v.says("kept: true")
	v.get(http.StatusOK, "/ui/instances?name=Web_1")
	v.says("No instance matches")
	r := s.login(t, "reader")
	r.send(http.StatusOK, checkAt, fits)
	r.says("it takes the role")
	r.send(http.StatusForbidden, checkAt, url.Values{"form": {"x"}})
}

func createsWhatTheFormSays(t *testing.T, s served, _ string) {
	v := s.login(t, "bente")
	v.get(http.StatusOK, "/ui/instances/new")
	id := field(t, v.text, "id")
	f := url.Values{"id": {id}, "name": {"formed"}, "image": {"debian-12"}, "VCPU": {"1"}, "MEMORY_MB": {"256"},
		"DISK_GB": {"1"}, "query": {"CUSTOM_NOTHING:0"},
		"tags": {"role=web"}, "properties": {"env=test"}, "expires": {"8h"},
		"user_data": {"#!/bin/sh\r\nid"}, "display": {"vnc"}, "apart": {"db"}}
	v.send(http.StatusBadRequest, "/ui/instances/new", f)
	f.Del("query")
	v.send(http.StatusOK, "/ui/instances/new", f)
	v.says("The instance is being created.")
	v.get(http.StatusOK, "/ui/instances")
	v.send(http.StatusOK, "/ui/instances/new", f) // a second click
	v.says("The instance is being created.")
	c := s.client(t, "bente")
	i, err := c.GetInstance(t.Context(), api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: "formed"}})
	if err != nil {
		t.Fatal(err)
	}
	if string(i.ID) != id || i.Tags["role"] != "web" || i.Labels["env"].String() != "test" || i.Expires.IsZero() ||
		string(i.UserData) != "#!/bin/sh\nid\n" || i.Machine.Display != croft.DisplayVNC || len(i.Affinities) != 1 {
		t.Errorf("got %+v", i)
	}
	if _, err := c.DestroyInstance(t.Context(), api.InstanceRemoval{InstanceChange: api.InstanceChange{
		InstanceNamed: api.InstanceNamed{ID: id}}}); err != nil {
		t.Error(err)
	}
}

func showsTheQuotaOfTheFirstLimit(t *testing.T, s served, _ string) {
	s.project(t, "above", "")
	s.project(t, "under", "above")
	c := s.client(t, "operator")
	p, err := c.GetProject(t.Context(), api.ProjectNamed{Project: "above"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetQuota(t.Context(), api.Limits{ProjectBase: api.ProjectBase{Base: api.MatchOf(p.Generation),
		ProjectNamed: api.ProjectNamed{Project: "above"}}, Limits: tenant.Limits{"VCPU": 1}}); err != nil {
		t.Fatal(err)
	}
	v := s.login(t, "operator")
	f := url.Values{"image": {"debian-12"}, "VCPU": {"1"}, "MEMORY_MB": {"256"}, "DISK_GB": {"1"}}
	v.get(http.StatusOK, "/ui/instances/new?project=under")
	v.send(http.StatusOK, checkAt+"?project=under", f)
	v.says(`<td class="n">1</td><td class="n">1</td><td><bdi>above</bdi>, above</td>`)
	v.saysRoom(t)
	f.Set("VCPU", "2")
	v.send(http.StatusOK, checkAt+"?project=under", f)
	v.says("Over the quota: vCPU (limit of above)")
}

var sameText = regexp.MustCompile(`(?s)<pre id="(same-[a-z]+)"[^>]*><code>(.*?)</code></pre>`)

// textsOf returns the texts of the last page for other programs.
func (v *visitor) textsOf() map[string]string {
	all := map[string]string{}
	for _, found := range sameText.FindAllStringSubmatch(v.text, -1) {
		all[found[1]] = html.UnescapeString(found[2])
	}
	return all
}

// hostileForm is a form whose fields have what shells and JSON read in their own way.
func hostileForm() url.Values {
	return url.Values{"name": {"web2"}, "image": {"https://images.example/a b'$(touch hit).qcow2"}, "VCPU": {"1"},
		"MEMORY_MB": {"256"}, "DISK_GB": {"1"}, "query": {"required=!HW_CPU_X86_SSE"},
		"tags":       {"a b=it's\r\nc=`touch hit`\r\nd=$HOME ${x} %{y}\r\n-e=\\"},
		"properties": {"env='; touch hit #\r\nn=1"},
		"user_data":  {"#!/bin/sh\r\nEND\r\ntouch hit\r\nEND1\r\necho '\"\\$x`y` ${z}'"}, "expires": {"36h"},
		"keys": {publicKey}, "protected": {""}, "display": {"vnc"}, "tpm": {"yes"}, "open": {"tcp/80 udp/53"},
		"disks": {"20G:data:/srv/it-s:xfs\r\n1T"}, "apart": {"db"}, "together": {"cache:soft"}, "restart": {"never"},
		"policy": {"pack"}}
}

func writesTheSameRequest(t *testing.T, s served, _ string) {
	v := s.login(t, "anna")
	v.send(http.StatusOK, checkAt, hostileForm())
	texts := v.textsOf()
	if len(texts) != 3 {
		t.Fatalf("the page has no texts:\n%s", v.text)
	}
	want := []string{"croft", "schedule", "VCPU:1,MEMORY_MB:256,DISK_GB:1&required=!HW_CPU_X86_SSE",
		"https://images.example/a b'$(touch hit).qcow2", "--name", "web2", "--policy", "pack", "--key", publicKey,
		"--open", "tcp/80", "--open", "udp/53", "--disk", "20G:data:/srv/it-s:xfs", "--disk", "1024G", "--tpm",
		"--display", "vnc", "--restart", "never", "--anti-affinity", "db", "--affinity", "cache:soft", "--tag", "-e=\\",
		"--tag", "a b=it's", "--tag", "c=`touch hit`", "--tag", "d=$HOME ${x} %{y}", "--property", "env='; touch hit #",
		"--property", "n=1", "--expires", "1d12h", "--user-data", "-"}
	const script = "#!/bin/sh\nEND\ntouch hit\nEND1\necho '\"\\$x`y` ${z}'\n"
	dir := t.TempDir()
	// run gives a text to a shell in which the programs print their arguments and their input.
	run := func(text string) (args []string, input string) {
		t.Helper()
		const stub = `show() { for word; do printf '%s\0' "$word"; done; printf '\1'; }
			croft() { show croft "$@"; cat; }
			curl() { show curl "$@"; }
			CROFT_URL=https://cloud.example CROFT_TOKEN=secret
			`
		shell := exec.CommandContext(t.Context(), "sh", "-eu")
		shell.Dir, shell.Stdin = dir, strings.NewReader(stub+text)
		out, err := shell.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s\n%s", err, out, text)
		}
		if _, err := os.Stat(filepath.Join(dir, "hit")); err == nil {
			t.Fatalf("the shell ran a part of a field:\n%s", text)
		}
		words, input, _ := strings.Cut(string(out), "\x01")
		return strings.Split(strings.TrimSuffix(words, "\x00"), "\x00"), input
	}
	args, input := run(texts["same-command"])
	if diff := cmp.Diff(want, args); diff != "" || input != script {
		t.Errorf("the command has the input %q, and the words %s", input, diff)
	}
	args, rest := run(texts["same-call"])
	if at := slices.Index(args, "--json"); at < 1 || args[at-1] != "https://cloud.example/v1/instances" {
		t.Fatalf("the call has the words %q", args)
	} else {
		var got api.InstanceRequest
		if err := json.Unmarshal([]byte(args[at+1]), &got); err != nil {
			t.Fatal(err)
		}
		if string(got.UserData) != script || got.Tags["d"] != "$HOME ${x} %{y}" || got.Disks[1].SizeGB != 1024 ||
			got.Mounts[0] != (croft.Mount{Volume: "data", Path: "/srv/it-s", Filesystem: "xfs"}) || !got.Machine.TPM {
			t.Errorf("the call has %+v", got)
		}
	}
	if !strings.Contains(rest, "/v1/instances/web2\x00--json\x00") || !strings.Contains(rest, `"env": "'; touch hit #"`) {
		t.Errorf("the second call is %q", rest)
	}
	tofu := texts["same-tofu"]
	for _, part := range []string{`resource "terraform_data" "web2" {`, `uuidv5("dns", "web2.anna")`,
		`"d": "$HOME $${x} %%{y}"`, "web2-properties = {"} {
		if !strings.Contains(tofu, part) {
			t.Errorf("the text for OpenTofu has no %s:\n%s", part, tofu)
		}
	}
	for name, f := range map[string]url.Values{
		"an escape of a terminal":   {"image": {"debian-12"}, "user_data": {"#!/bin/sh\n\x1b[201~touch hit\n"}},
		"a change of the direction": {"image": {"debian-12"}, "user_data": {"#!/bin/sh\n# \u202e\n"}},
	} {
		v.send(http.StatusOK, checkAt, f)
		if texts := v.textsOf(); texts["same-command"] != "" {
			t.Errorf("%s is in the command %q", name, texts["same-command"])
		}
		v.says("a field has invisible characters")
	}
	v.send(http.StatusOK, checkAt, url.Values{"image": {"debian-12"}})
	if got := v.textsOf()["same-command"]; got != "croft instance create debian-12\n" {
		t.Errorf("the shortest command is %q", got)
	}
}
