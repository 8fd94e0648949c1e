package images

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/adrg/xdg"
	"github.com/spf13/pflag"

	"croft/control/federation/assertion"
)

// answers are documents of a cloud with one host and one image, by the beginning of the path.
var answers = []struct{ path, answer string }{
	{"/v1/catalog/web/upload", `{"offset": 10, "size_bytes": 10, "name": "web", "state": "ready"}`},
	{"/v1/catalog/", `{"name": "web", "state": "ready"}`},
	{"/v1/catalog", `{"name": "web", "state": "ready", "images": [{"name": "web", "state": "ready"}]}`},
	{"/v1/hosts/h/images", `{"images": [{"sha256": "aa"}]}`},
	{"/v1/hosts", `{"hosts": [{"id": "01900000-0000-7000-8000-000000000001", "name": "h", "state": "up"}]}`},
	{"/v1/instances", `{"name": "web", "state": "ready"}`},
	{"/v1/projects", `{"projects": [{"name": "lab"}]}`},
}

// recorder is an API that keeps its requests.
type recorder struct {
	mu       sync.Mutex
	requests []string
	taken    string // the image that has the name already
	asked    int    // how often it was asked for
	cancel   func() // called when it is asked for again
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	r.requests = append(r.requests, fmt.Sprint(q.Method, " ", q.URL, " ", q.Header.Get(assertion.Header), " ",
		string(body)))
	r.mu.Unlock()
	if r.taken != "" && q.Method == http.MethodPost && q.URL.Path == "/v1/catalog" {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"status": 409, "code": "name_taken", "detail": "the name is taken"}`)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.taken != "" && strings.HasPrefix(q.URL.Path, "/v1/catalog/") {
		if r.asked++; r.asked > 1 && r.cancel != nil {
			r.cancel()
		}
		io.WriteString(w, r.taken)
		return
	}
	if strings.HasPrefix(q.URL.Path, "/v1/projects/othr") {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"status": 404, "code": "not_found", "detail": "there is none"}`)
		return
	}
	for _, a := range answers {
		if strings.HasPrefix(q.URL.Path, a.path) {
			io.WriteString(w, a.answer)
			return
		}
	}
	io.WriteString(w, "{}")
}

// outcome runs a command in a new directory and returns everything that it did: what it requested, printed and wrote,
// and its error.
func outcome(t *testing.T, remote bool, words ...string) string {
	t.Helper()
	return outcomeOf(t, t.Context(), &recorder{}, remote, words...)
}

func outcomeOf(t *testing.T, ctx context.Context, r *recorder, remote bool, words ...string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "CROFT_STATE_DIR"} {
		t.Setenv(name, dir)
	}
	xdg.Reload()
	api := httptest.NewServer(r)
	defer api.Close()
	t.Setenv("CROFT_URL", "")
	t.Setenv("CROFT_ETCD_ENDPOINTS", "https://127.0.0.1:1")
	t.Setenv("CROFT_ETCD_CA", "/no/file") // a cloud that is named, and refused without a connection
	if remote {
		t.Setenv("CROFT_URL", api.URL)
		t.Setenv("CROFT_ETCD_ENDPOINTS", "")
		t.Setenv("CROFT_ETCD_CA", "")
	}
	if err := os.WriteFile("file.img", []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := Command()
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetArgs(words)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(ctx)
	files, _ := os.ReadFile(filepath.Join(dir, "croft", "images.yaml"))
	slices.Sort(r.requests)
	return strings.NewReplacer(api.URL, "API", dir, "DIR").Replace(fmt.Sprintln(r.requests, stdout.String(),
		stderr.String(), string(files), err))
}

// givenFlags are a value for each flag, which cannot go unnoticed if it is used.
var givenFlags = map[string]string{
	"project": "lab", "partition": "far", "context": "nobody", "settings": "/no/file", "output": "jsom",
	"etcd": "%%", "placement": "%%", "cloud": "nobody",
	"sha256": strings.Repeat("a", 64), "sha512": strings.Repeat("b", 128), "sums": "SUMS", "signed-by": "/k.gpg",
	"signature": "SUMS.gpg", "user": "debian", "description": "an image", "machine": "true", "replace": "true",
	"public": "true", "max-gb": "3", "convert": "true", "cached": "true", "hosts": "nobody", "state-dir": "file.img",
	"dry-run":    "true",
	"generalize": "true", "arch": "aarch64",
}

func TestEveryFlagOfAnImageCommandIsUsedOrRefused(t *testing.T) {
	reference, file := "https://example.com/x.qcow2", "file.img"
	for _, v := range []struct {
		name   string
		remote bool
		words  []string
	}{
		{"an address into the cloud's catalog", true, []string{"add", "web", reference}},
		{"an upload", true, []string{"add", "web", file}},
		{"an upload to be converted", true, []string{"add", "web", file, "--convert"}},
		{"a named image into the cloud's catalog", true, []string{"add", "web", "debian-13"}},
		{"a public image", true, []string{"add", "web", reference, "--public"}},
		{"a file's catalog", false, []string{"add", "web", reference}},
		{"an image of a file's catalog is replaced", true, []string{"add", "web", reference, "--replace"}},
		{"the cloud's list", true, []string{"list"}},
		{"this host's list", true, []string{"list", "--state-dir", "/no/other"}},
		{"the list of hosts", true, []string{"list", "--hosts", "all"}},
		{"an image of the cloud", true, []string{"show", "web"}},
		{"an image of this host", true, []string{"show", "debian-13", "--state-dir", "/no/other"}},
		{"removing from the cloud's catalog", true, []string{"remove", "web"}},
		{"removing from a file's catalog", false, []string{"remove", "web"}},
		{"removing from this host's cache", true, []string{"remove", "debian-13", "--cached"}},
		{"removing from caches of hosts", true, []string{"remove", "web", "--cached", "--hosts", "all"}},
		{"pruning this host's cache", false, []string{"prune", "--state-dir", "/no/other"}},
		{"pruning caches of hosts", true, []string{"prune", "--hosts", "all"}},
		{"saving", true, []string{"save", "i", "web"}},
		{"sharing", true, []string{"share", "web", "other"}},
		{"unsharing", true, []string{"unshare", "web", "other"}},
		{"pulling", true, []string{"pull", "web"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			base := outcome(t, v.remote, v.words...)
			if again := outcome(t, v.remote, v.words...); again != base {
				t.Fatalf("the same command did something else:\n%s\n%s", base, again)
			}
			cmd, _, err := Command().Find(v.words)
			if err != nil {
				t.Fatal(err)
			}
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				value, known := givenFlags[f.Name]
				switch {
				case f.Name == "help" || slices.Contains(v.words, "--"+f.Name):
					return
				case f.Name == "replace" && !v.remote:
					return // there is nothing to replace here
				case !known:
					t.Errorf("--%s has no value in this test: known are %q", f.Name,
						slices.Sorted(maps.Keys(givenFlags)))
				case outcome(t, v.remote, append(v.words, "--"+f.Name+"="+value)...) == base:
					t.Errorf("--%s=%s is ignored silently: with and without it, the command did\n%s", f.Name, value, base)
				}
			})
		})
	}
}

func TestAChecksumThatIsGivenIsNeverDropped(t *testing.T) {
	wrong, short := strings.Repeat("a", 64), "zzz"
	for _, v := range []struct {
		name, want, not string
		words           []string
	}{
		{"of an address", `"url":"https://example.com/x#sha256=` + wrong + `"`, "", []string{"https://example.com/x",
			"--sha256", wrong}},
		{"of a public address", `#sha256=` + wrong, "", []string{"https://example.com/x", "--public", "--sha256", wrong}},
		{"a list", `#sums=SUMS`, "", []string{"https://example.com/x", "--sums", "SUMS"}},
		{"malformed", "64 hexadecimal digits", "POST", []string{"https://example.com/x", "--sha256", short}},
		{"malformed SHA-512", "128 hexadecimal digits", "POST", []string{"https://example.com/x", "--sha512", short}},
		{"two", "not several", "POST", []string{"https://example.com/x", "--sha256", wrong, "--sums", "SUMS"}},
		{"malformed of an upload", "64 hexadecimal digits", "POST", []string{"file.img", "--sha256", short}},
		{"wrong of an upload", "nothing was uploaded", "POST", []string{"file.img", "--sha256", wrong}},
		{"empty", "--sha256 is empty", "POST", []string{"https://example.com/x", "--sha256", ""}},
		{"empty of an upload", "--sha256 is empty", "POST", []string{"file.img", "--sha256", ""}},
		{"right of an upload", `"name":"web"`, "nothing was uploaded", []string{"file.img", "--sha256",
			"84D89877F0D4041EFB6BF91A16F0248F2FD573E6AF05C19F96BEDB9F882F7882"}},
		{"list for an upload", "--sums has no effect on a file that is uploaded", "POST", []string{"file.img", "--sums",
			"SUMS"}},
		{"of a named image", "--sha256 has no effect on an image that already has a name", "POST", []string{"debian-13",
			"--sha256", wrong}},
	} {
		t.Run(v.name, func(t *testing.T) {
			got := outcome(t, true, append([]string{"add", "web"}, v.words...)...)
			if !strings.Contains(got, v.want) || v.not != "" && strings.Contains(got, v.not) {
				t.Errorf("got %s, want %q and not %q", got, v.want, v.not)
			}
		})
	}
}

func TestAnInterruptedAddIsContinuedOnlyWithTheSameOrigin(t *testing.T) {
	pending := `{"name": "web", "project": "lab", "state": "pending", "charged_gb": 10, "origin": "https://example.com/x"}`
	remedy := "`croft image show web --project lab` shows its state, and `croft image remove web --project lab` ends it"
	ctx, cancel := context.WithCancel(t.Context())
	got := outcomeOf(t, ctx, &recorder{taken: pending, cancel: cancel}, true, "add", "web", "https://example.com/x")
	if !strings.Contains(got, "image web is being fetched") ||
		!strings.Contains(got, "is charged IMAGE_GB:10; "+remedy) {
		t.Errorf("the same command, interrupted, did %s", got)
	}
	for _, words := range [][]string{{"https://example.com/y"}, {"file.img"}, {"https://example.com/x", "--user", "me"},
		{"https://example.com/x", "--sha256", strings.Repeat("a", 64)}} {
		got := outcomeOf(t, t.Context(), &recorder{taken: pending}, true, append([]string{"add", "web"}, words...)...)
		if !strings.Contains(got, "the name is taken; it is pending") || !strings.Contains(got, remedy) {
			t.Errorf("%q did %s", words, got)
		}
	}
}

func TestSharingWithAProjectThatIsNotSeenWarns(t *testing.T) {
	got := outcome(t, true, "share", "web", "othr")
	if !strings.Contains(got, "until you unshare it and share it again") {
		t.Errorf("a project that does not exist: %s", got)
	}
}
