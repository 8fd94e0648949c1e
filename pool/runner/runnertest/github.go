// Package runnertest has a stand-in of GitHub for tests: its REST API of self-hosted runners as documented, with state,
// and a runner's program that takes one job.
package runnertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Token is the token that the stand-in accepts.
const Token = "ghp_standin"

// Program is the stand-in of the runner's program, run.sh. It needs sh, curl and base64.
const Program = `#!/bin/sh
# A stand-in of GitHub's runner: it takes one job, and ends.
config=$(printf %s "$ACTIONS_RUNNER_INPUT_JITCONFIG" | base64 -d) || exit 1
unset ACTIONS_RUNNER_INPUT_JITCONFIG
url=${config%% *} secret=${config#* }
say() { echo "$(date -u '+%Y-%m-%d %H:%M:%SZ'): $*"; }
curl -fsN -H "Authorization: Bearer $secret" "$url/session" | {
	IFS= read -r ready || { say 'Runner connect error'; exit 1; }
	say 'Listening for Jobs'
	IFS= read -r name && IFS= read -r script || exit 1
	say "Running job: $name"
	sh -c "$(printf %s "$script" | base64 -d)" > job.log 2>&1 < /dev/null
	code=$?
	curl -fsS -H "Authorization: Bearer $secret" --data-binary @job.log "$url/done?code=$code" || exit 1
	if [ $code = 0 ]; then say "Job $name completed with result: Succeeded"
	else say "Job $name completed with result: Failed"; fi
}
`

// Job is a job of a workflow.
type Job struct {
	Name   string
	Labels []string // runs-on
	Script string   // what it runs, by sh

	State  string // queued, running, done, lost
	Runner string // the name of the runner that has it
	Code   int
	Output string
}

// Runner is a registered runner.
type Runner struct {
	ID     int64
	Name   string
	Labels []string
	Online bool
	Job    *Job // nil: idle

	secret string
	offers chan *Job
}

// GitHub is the stand-in, for the organization example and the repository example/app. It is an http.Handler.
type GitHub struct {
	URL string // of the stand-in, for its own runners

	mu       sync.Mutex
	last     int64
	runners  []*Runner
	used     map[string]bool // secrets that had a session
	jobs     []*Job
	refuse   func(method, path string) (status int, header http.Header)
	requests []string // method and path after /actions/runners
}

// Refuse has the stand-in refuse the requests for which refuse returns a status; nil ends that.
func (g *GitHub) Refuse(refuse func(method, path string) (status int, header http.Header)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = refuse
}

// Queue adds a job.
func (g *GitHub) Queue(name, script string, labels ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs = append(g.jobs, &Job{Name: name, Labels: labels, Script: script, State: "queued"})
	g.assign()
}

// Job returns the newest job of a name.
func (g *GitHub) Job(name string) Job {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range slices.Backward(g.jobs) {
		if j.Name == name {
			return *j
		}
	}
	return Job{}
}

// Runners returns the registered runners.
func (g *GitHub) Runners() (all []Runner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.runners {
		all = append(all, *r)
	}
	return all
}

// Requests returns how many requests were made that contain a text, such as "POST /generate-jitconfig".
func (g *GitHub) Requests(text string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.requests {
		if strings.Contains(r, text) {
			n++
		}
	}
	return n
}

// Register adds a runner, as other clients do.
func (g *GitHub) Register(name string) *Runner {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.register(name, nil)
}

func (g *GitHub) register(name string, labels []string) *Runner {
	g.last++
	r := &Runner{ID: g.last, Name: name, Labels: labels, secret: rand.Text(), offers: make(chan *Job, 1)}
	g.runners = append(g.runners, r)
	return r
}

// Begin brings a runner online with its configuration, as its program does. next returns its job once it has one; end
// ends the job, and with it the runner.
func (g *GitHub) Begin(config string) (job func() *Job, end func(code int)) {
	text, _ := base64.StdEncoding.DecodeString(config) // an invalid one is of no runner
	_, secret, _ := strings.Cut(string(text), " ")
	r := g.session(secret)
	if r == nil {
		return nil, nil
	}
	return func() *Job { return <-r.offers }, func(code int) { g.done(r, code, "") }
}

// Lose takes a runner offline, as if its machine had died.
func (g *GitHub) Lose(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.runners {
		if r.Name == name {
			g.lose(r)
		}
	}
}

// lose ends the session of a runner. GitHub fails its job, which the real one does some minutes later.
func (g *GitHub) lose(r *Runner) {
	r.Online = false
	if r.Job != nil {
		r.Job.State, r.Job = "lost", nil
	}
}

// session starts the only session of a runner; nil: the secret is invalid, or was used.
func (g *GitHub) session(secret string) *Runner {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.runners, func(r *Runner) bool { return r.secret == secret })
	if i < 0 || g.used[secret] {
		return nil
	}
	if g.used == nil {
		g.used = map[string]bool{}
	}
	g.used[secret] = true
	g.runners[i].Online = true
	g.assign()
	return g.runners[i]
}

// assign gives queued jobs to idle runners that have their labels.
func (g *GitHub) assign() {
	for _, j := range g.jobs {
		if j.State != "queued" {
			continue
		}
		i := slices.IndexFunc(g.runners, func(r *Runner) bool {
			return r.Online && r.Job == nil && !slices.ContainsFunc(j.Labels, func(l string) bool {
				return !slices.Contains(r.Labels, l)
			})
		})
		if i >= 0 {
			r := g.runners[i]
			j.State, j.Runner, r.Job = "running", r.Name, j
			r.offers <- j
		}
	}
}

// done ends the job of a runner, and removes the runner, which had this job alone.
func (g *GitHub) done(r *Runner, code int, output string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Job == nil {
		return
	}
	r.Job.State, r.Job.Code, r.Job.Output = "done", code, output
	r.Job = nil
	g.runners = slices.DeleteFunc(g.runners, func(o *Runner) bool { return o == r })
}

// ServeHTTP implements http.Handler.
func (g *GitHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/runner/session":
		g.serveSession(w, r)
	case path == "/runner/done":
		g.serveDone(w, r)
	case path == "/runner.tar.gz":
		_, _ = w.Write(Archive())
	default:
		for _, owner := range []string{"/api/v3/orgs/example", "/api/v3/repos/example/app"} {
			if rest, ok := strings.CutPrefix(path, owner+"/actions/runners"); ok {
				g.serveAPI(w, r, rest)
				return
			}
		}
		answer(w, http.StatusNotFound, message("Not Found"))
	}
}

func message(text string) map[string]any {
	return map[string]any{"message": text, "documentation_url": "https://docs.github.com/rest"}
}

func answer(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	if document != nil {
		_ = json.NewEncoder(w).Encode(document) // the client may be gone
	}
}

func secretOf(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// serveAPI serves the documented API.
func (g *GitHub) serveAPI(w http.ResponseWriter, r *http.Request, path string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests = append(g.requests, r.Method+" "+path)
	if secretOf(r) != Token {
		answer(w, http.StatusUnauthorized, message("Bad credentials"))
		return
	}
	if g.refuse != nil {
		if status, header := g.refuse(r.Method, path); status != 0 {
			for name, values := range header {
				w.Header()[name] = values
			}
			answer(w, status, message(http.StatusText(status)))
			return
		}
	}
	id, err := strconv.ParseInt(strings.TrimPrefix(path, "/"), 10, 64)
	at := slices.IndexFunc(g.runners, func(one *Runner) bool { return one.ID == id })
	switch {
	case path == "" && r.Method == http.MethodGet:
		g.serveList(w, r)
	case path == "/registration-token" && r.Method == http.MethodPost:
		answer(w, http.StatusCreated, map[string]any{"token": rand.Text(), "expires_at": time.Now().Add(time.Hour)})
	case path == "/generate-jitconfig" && r.Method == http.MethodPost:
		g.serveJIT(w, r)
	case path == "/downloads" && r.Method == http.MethodGet:
		sum := sha256.Sum256(Archive())
		var all []map[string]any
		for _, architecture := range []string{"x64", "arm64"} {
			all = append(all, map[string]any{"os": "linux", "architecture": architecture,
				"download_url": g.URL + "/runner.tar.gz", "filename": "runner.tar.gz",
				"sha256_checksum": hex.EncodeToString(sum[:])})
		}
		answer(w, http.StatusOK, all)
	case err != nil || at < 0:
		answer(w, http.StatusNotFound, message("Not Found"))
	case r.Method == http.MethodGet:
		answer(w, http.StatusOK, shown(g.runners[at]))
	case r.Method == http.MethodDelete && g.runners[at].Job != nil:
		answer(w, http.StatusUnprocessableEntity, message("Runner \""+g.runners[at].Name+
			"\" is currently running a job and cannot be deleted."))
	case r.Method == http.MethodDelete:
		close(g.runners[at].offers)
		g.runners = slices.Delete(g.runners, at, at+1)
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(w, http.StatusNotFound, message("Not Found"))
	}
}

func shown(r *Runner) map[string]any {
	labels := []map[string]any{}
	for i, l := range r.Labels {
		labels = append(labels, map[string]any{"id": i + 1, "name": l, "type": "custom"})
	}
	return map[string]any{"id": r.ID, "name": r.Name, "os": "linux", "busy": r.Job != nil, "labels": labels,
		"runner_group_id": 1, "status": map[bool]string{true: "online", false: "offline"}[r.Online]}
}

// serveList serves a page of the runners.
func (g *GitHub) serveList(w http.ResponseWriter, r *http.Request) {
	size, page := 30, 1
	if n, err := strconv.Atoi(r.FormValue("per_page")); err == nil {
		size = max(1, min(n, 100))
	}
	if n, err := strconv.Atoi(r.FormValue("page")); err == nil {
		page = max(1, n)
	}
	all := []map[string]any{}
	for i := (page - 1) * size; i < min(page*size, len(g.runners)); i++ {
		all = append(all, shown(g.runners[i]))
	}
	answer(w, http.StatusOK, map[string]any{"total_count": len(g.runners), "runners": all})
}

// serveJIT registers a runner for one job.
func (g *GitHub) serveJIT(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name   string   `json:"name"`
		Group  int64    `json:"runner_group_id"`
		Labels []string `json:"labels"`
		Folder string   `json:"work_folder"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Name == "" || in.Group != 1 || len(in.Labels) < 1 ||
		len(in.Labels) > 100 || len(in.Name) > 64 {
		answer(w, http.StatusUnprocessableEntity, message("Validation Failed"))
		return
	}
	if slices.ContainsFunc(g.runners, func(o *Runner) bool { return o.Name == in.Name }) {
		answer(w, http.StatusConflict, message("Already exists - A runner with the name already exists"))
		return
	}
	made := g.register(in.Name, in.Labels)
	config := base64.StdEncoding.EncodeToString([]byte(g.URL + "/runner " + made.secret))
	answer(w, http.StatusCreated, map[string]any{"runner": shown(made), "encoded_jit_config": config})
}

// serveSession keeps the connection of a runner's program, which is online until it ends.
func (g *GitHub) serveSession(w http.ResponseWriter, r *http.Request) {
	one := g.session(secretOf(r))
	if one == nil {
		answer(w, http.StatusConflict, message("the configuration is not valid, or was used"))
		return
	}
	send := func(text string) {
		_, _ = io.WriteString(w, text) // the runner may be gone, which the request's context says
		_ = http.NewResponseController(w).Flush()
	}
	send("ready\n")
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.lose(one)
	}()
	select {
	case j := <-one.offers:
		if j == nil {
			return // the runner was removed
		}
		send(fmt.Sprintf("%s\n%s\n", j.Name, base64.StdEncoding.EncodeToString([]byte(j.Script))))
	case <-r.Context().Done():
		return
	}
	for r.Context().Err() == nil && g.has(one) {
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (g *GitHub) has(r *Runner) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.runners, r)
}

// serveDone takes the result of a job.
func (g *GitHub) serveDone(w http.ResponseWriter, r *http.Request) {
	output, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	code, bad := strconv.Atoi(r.FormValue("code"))
	g.mu.Lock()
	i := slices.IndexFunc(g.runners, func(o *Runner) bool { return o.secret == secretOf(r) })
	var one *Runner
	if i >= 0 {
		one = g.runners[i]
	}
	g.mu.Unlock()
	if err != nil || bad != nil || one == nil {
		answer(w, http.StatusNotFound, message("Not Found"))
		return
	}
	g.done(one, code, string(output))
}

// Archive is the archive of the runner's program.
var Archive = sync.OnceValue(func() []byte {
	var text bytes.Buffer
	zip := gzip.NewWriter(&text)
	archive := tar.NewWriter(zip)
	err := archive.WriteHeader(&tar.Header{Name: "run.sh", Mode: 0o755, Size: int64(len(Program))})
	if err == nil {
		_, err = io.WriteString(archive, Program)
	}
	if err == nil {
		err = archive.Close()
	}
	if err == nil {
		err = zip.Close()
	}
	if err != nil { // nothing can fail in memory
		panic(err)
	}
	return text.Bytes()
})
