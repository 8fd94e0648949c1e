package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/internal/egress"
	"croft/internal/plain"
	"croft/internal/userfile"
	"croft/internal/wording"
)

// GitHub registers runners for an organization or a repository, over GitHub's REST API.
type GitHub struct {
	Owner     string // the organization, or organization/repository
	Group     int64  // ID of the runner group
	TokenFile string // read before every request, so that the token may be replaced

	base string // of all requests
	http *http.Client
}

// NewGitHub returns a client for the organization or repository that a URL names. Invalid.
func NewGitHub(address, tokenFile string, group int64) (*GitHub, error) {
	u, err := url.Parse(strings.TrimRight(address, "/"))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, croft.Errorf(croft.Invalid, "%q is no address of an organization or repository: use "+
			"https://github.com/ORG or https://github.com/ORG/REPO", address)
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return nil, croft.Errorf(croft.Invalid, "%s: use https://, because the token would be readable on its way", address)
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	g := &GitHub{Group: group, TokenFile: tokenFile, Owner: strings.Join(parts, "/"),
		http: &http.Client{Transport: egress.Outward(egress.Environment), Timeout: time.Minute}}
	kind := "orgs"
	switch {
	case len(parts) == 2:
		kind = "repos"
	case len(parts) != 1 || parts[0] == "":
		return nil, croft.Errorf(croft.Invalid, "%s names neither an organization nor a repository: use "+
			"https://HOST/ORG or https://HOST/ORG/REPO", address)
	}
	api := u.Scheme + "://" + u.Host + "/api/v3" // GitHub Enterprise Server
	if host := strings.ToLower(u.Hostname()); host == "github.com" || host == "www.github.com" {
		api = "https://api.github.com"
	} else if strings.HasSuffix(host, ".ghe.com") {
		api = "https://api." + u.Host
	}
	g.base = api + "/" + kind + "/" + u.EscapedPath()[1:] + "/actions/runners"
	return g, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// CloseIdle closes idle connections.
func (g *GitHub) CloseIdle() { g.http.CloseIdleConnections() }

// Registered is a runner as GitHub knows it.
type Registered struct {
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"` // online, offline
	Busy   bool   `json:"busy"`
}

// Refused is the error of a request that GitHub refuses for now.
type Refused struct {
	After time.Duration // when the request may be repeated; 0: unknown
	text  string
}

// Error implements error.
func (r *Refused) Error() string { return r.text }

// Unwrap returns the error's kind.
func (*Refused) Unwrap() error { return croft.Unavailable }

// Check returns nil if the token may register runners. Denied; NotFound; Unavailable.
func (g *GitHub) Check(ctx context.Context) error {
	if err := g.ask(ctx, http.MethodGet, "?per_page=1", nil, nil); err != nil {
		return err
	}
	return g.ask(ctx, http.MethodPost, "/registration-token", nil, nil) // needs the same right as the registration
}

// List returns all runners.
func (g *GitHub) List(ctx context.Context) (all []Registered, err error) {
	for page := 1; ; page++ {
		var list struct {
			Total   int          `json:"total_count"`
			Runners []Registered `json:"runners"`
		}
		if err := g.ask(ctx, http.MethodGet, "?per_page=100&page="+strconv.Itoa(page), nil, &list); err != nil {
			return nil, err
		}
		all = append(all, list.Runners...)
		if len(list.Runners) == 0 || len(all) >= list.Total {
			return all, nil
		}
	}
}

// Get returns a runner. NotFound: it is not registered, for example after its job.
func (g *GitHub) Get(ctx context.Context, id int64) (r Registered, err error) {
	return r, g.ask(ctx, http.MethodGet, "/"+strconv.FormatInt(id, 10), nil, &r)
}

// Remove removes a runner. A runner that does not exist is no error. Conflict: the runner has a job.
func (g *GitHub) Remove(ctx context.Context, id int64) error {
	err := g.ask(ctx, http.MethodDelete, "/"+strconv.FormatInt(id, 10), nil, nil)
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	if errors.Is(err, croft.Invalid) { // 422: it is running a job
		return croft.Errorf(croft.Conflict, "%w", err)
	}
	return err
}

// Register registers a runner for one job, and returns the configuration with which the runner takes it. The
// configuration is a secret.
func (g *GitHub) Register(ctx context.Context, name string, labels []string) (Registered, string, error) {
	body := map[string]any{"name": name, "runner_group_id": g.Group, "labels": labels, "work_folder": "_work"}
	var made struct {
		Runner Registered `json:"runner"`
		Config string     `json:"encoded_jit_config"`
	}
	err := g.ask(ctx, http.MethodPost, "/generate-jitconfig", body, &made)
	if err == nil && (made.Runner.ID == 0 || made.Config == "" || strings.ContainsAny(made.Config, " \r\n")) {
		err = croft.Errorf(croft.Unavailable, "GitHub's answer to the registration of runner %s has no configuration", name)
	}
	return made.Runner, made.Config, err
}

// Download is where the program of the runner is, for one architecture.
type Download struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	URL          string `json:"download_url"`
	Token        string `json:"temp_download_token"`
	SHA256       string `json:"sha256_checksum"`
}

// Downloads returns where the programs of runners are.
func (g *GitHub) Downloads(ctx context.Context) (all []Download, err error) {
	return all, g.ask(ctx, http.MethodGet, "/downloads", nil, &all)
}

// longestToken bounds the file with the token.
const longestToken = 64 << 10

// token reads the token.
func (g *GitHub) token() (string, error) {
	file, err := userfile.Open(g.TokenFile)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "read the token of GitHub: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return "", croft.Errorf(croft.Invalid, "%s has the mode %#o, so that other users of this machine may read the token "+
			"of GitHub: chmod 600 it", g.TokenFile, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, longestToken))
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "read the token of GitHub: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \r\n\t") {
		return "", croft.Errorf(croft.Invalid, "%s has no token of GitHub: write the token alone into the file", g.TokenFile)
	}
	return token, nil
}

// longestAnswer bounds an answer of GitHub.
const longestAnswer = 8 << 20

// ask makes a request and decodes the answer into result, which may be nil.
func (g *GitHub) ask(ctx context.Context, method, path string, body, result any) error {
	token, err := g.token()
	if err != nil {
		return err
	}
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, g.base+path, bytes.NewReader(text))
	if err != nil {
		return croft.Errorf(croft.Invalid, "ask GitHub: %w", err)
	}
	r.Header.Set("Accept", "application/vnd.github+json")
	r.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	r.Header.Set("User-Agent", "croft")
	r.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := g.http.Do(r)
	if err != nil {
		return croft.Errorf(croft.Unavailable, "GitHub does not answer: %w", err)
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(answer.Body, longestAnswer)); err != nil {
		return croft.Errorf(croft.Unavailable, "GitHub's answer broke off: %w", err)
	}
	if answer.StatusCode >= 300 {
		return g.refusal(answer, text)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return croft.Errorf(croft.Unavailable, "%s does not answer as GitHub does: %w", r.URL.Host, err)
	}
	return nil
}

// refusal returns the error in an answer.
func (g *GitHub) refusal(answer *http.Response, text []byte) error {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(text, &said) // a proxy may have answered
	message := plain.Line(said.Message)
	if message == "" {
		message = answer.Status
	} else {
		message = fmt.Sprintf("%.300s (%d)", message, answer.StatusCode)
	}
	if after, limited := rateLimit(answer); limited {
		return &Refused{After: after, text: fmt.Sprintf("GitHub accepts no more requests for %s: %s",
			wording.Duration(after), message)}
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		return croft.Errorf(croft.Denied, "GitHub does not accept the token in %s: %s; write a valid one into the file",
			g.TokenFile, message)
	case http.StatusForbidden:
		return croft.Errorf(croft.Denied, "the token in %s may not manage the runners of %s: %s; give it that permission",
			g.TokenFile, g.Owner, message)
	case http.StatusNotFound:
		return croft.Errorf(croft.NotFound, "GitHub knows no runners of %s, or the token in %s may not see them: %s", g.Owner,
			g.TokenFile, message)
	case http.StatusConflict:
		return croft.Errorf(croft.Conflict, "GitHub refuses: %s", message)
	}
	if answer.StatusCode < 500 {
		return croft.Errorf(croft.Invalid, "GitHub refuses: %s", message)
	}
	return croft.Errorf(croft.Unavailable, "GitHub does not answer: %s", message)
}

// rateLimit returns when a request may be repeated that GitHub refused because there were too many.
func rateLimit(answer *http.Response) (time.Duration, bool) {
	if answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusForbidden {
		return 0, false
	}
	if seconds, err := strconv.ParseInt(answer.Header.Get("Retry-After"), 10, 32); err == nil && seconds >= 0 {
		return bounded(time.Duration(seconds) * time.Second), true
	}
	if answer.Header.Get("X-RateLimit-Remaining") == "0" {
		reset, err := strconv.ParseInt(answer.Header.Get("X-RateLimit-Reset"), 10, 64)
		if err == nil {
			return bounded(time.Until(time.Unix(reset, 0))), true
		}
	}
	return time.Minute, answer.StatusCode == http.StatusTooManyRequests
}

// bounded limits a pause that a server chose to an hour.
func bounded(pause time.Duration) time.Duration { return max(time.Second, min(pause, time.Hour)) }
