package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"croft"
	"croft/compute"
	"croft/hosts/audit"
	"croft/internal/plain"
	"croft/internal/testing/pty"
)

// steering is the output of a hostile host: it clears the screen, sets the title and the clipboard, forges a line
// of croft, reverses the reading direction, and is long.
var steering = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\u009b1m\u202eevil\u2066\r\ncroft: all is well\r\n" +
	strings.Repeat("long ", 10_000)

// hostileAgent replaces host1's agent by this handler.
func hostileAgent(t *testing.T, c *testCloud, answer http.HandlerFunc) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	hosts, err := c.Store.Registry.Hosts(t.Context())
	check(t, err)
	h := hosts[c.Hosts["host1"].ID]
	h.API, h.Name = server.URL, "h\x1b[2J\u202e1"
	check(t, c.Store.Registry.PutHost(t.Context(), h))
}

// commandsOfAgents are the commands that print responses of agents.
func commandsOfAgents(name string) [][]string {
	return [][]string{
		{"croft", "audit"},
		{"croft", "audit", "-o", "json"},
		{"croft", "audit", "-o", "yaml"},
		{"croft", "audit", "--fix"},
		{"croft", "schedule", "logs", name},
		{"croft", "image", "pull", "http://127.0.0.1:1/image"},
		{"croft", "image", "pull", "http://127.0.0.1:1/image", "-o", "json"},
		{"croft", "image", "pull", "http://127.0.0.1:1/image", "-o", "yaml"},
		{"croft", "host", "list"},
		{"croft", "host", "list", "-o", "json"},
		{"croft", "host", "list", "-o", "yaml"},
		{"croft", "host", "drain", "h\x1b[2J\u202e1"},
		{"croft", "schedule", "show", name, "-o", "table"},
		{"croft", "schedule", "show", name, "-o", "yaml"},
		{"croft", "schedule", "show", name, "-o", "json"},
		{"croft", "top", "--once"},
	}
}

// wantPlain fails if a text would control a terminal, or has a forged line.
func wantPlain(t *testing.T, what, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		if i := strings.IndexFunc(line, func(r rune) bool {
			return plain.Steers(r) && r != '\t'
		}); i >= 0 || !utf8.ValidString(line) {
			t.Errorf("%s: %.100q steers the terminal", what, line[max(i, 0):])
		}
		if line == "croft: all is well" {
			t.Errorf("%s: a line is forged", what)
		}
		if len(line) > 4<<10 {
			t.Errorf("%s: a line has %d bytes: %.200q", what, len(line), line)
		}
	}
}

func TestWhatAgentsAnswerSteersNoTerminal(t *testing.T) {
	c := cloudFor(t, 4)
	var out, words bytes.Buffer
	if code := Run(t.Context(), c.args("croft", "schedule", "VCPU:1,MEMORY_MB:256,DISK_GB:1", "--name", "web",
		"--wait"), nil, &out, &words); code != 0 {
		t.Fatal(words.String())
	}
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		check(t, err)
		return text
	}
	stray := audit.Contents{
		Guests:      []audit.Guest{{Instance: croft.NewInstanceID()}, {Instance: croft.InstanceID(steering[:80])}},
		Directories: []croft.InstanceID{croft.InstanceID(steering[:80]), "../../x"},
	}
	for how, answer := range map[string]http.HandlerFunc{
		"refuses": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, steering, http.StatusInternalServerError)
		},
		"has none":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, steering, http.StatusNotFound) },
		"is in the way": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, steering, http.StatusConflict) },
		"lies": func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/v1/images":
				w.Write(encode(compute.Pull{Image: &compute.Pulled{Format: steering[:80], SHA256: steering[:80]}}))
			default:
				w.Write(encode(stray))
			}
		},
		"fails": func(w http.ResponseWriter, _ *http.Request) {
			w.Write(encode(compute.Pull{Error: &compute.PullError{Kind: croft.NotFound, Message: steering}}))
		},
	} {
		hostileAgent(t, c, answer)
		for _, command := range commandsOfAgents("web") {
			var out, words bytes.Buffer
			Run(t.Context(), c.args(command...), strings.NewReader(""), &out, &words)
			what := "an agent that " + how + ": " + strings.Join(command, " ")
			if command[1] != "schedule" || command[2] != "logs" { // a log in a file is unchanged
				wantPlain(t, what, out.String())
			}
			wantPlain(t, what, words.String())
		}
	}
}

func TestAnAgentSendsItsCallersNowhere(t *testing.T) {
	c := cloudFor(t, 4)
	var out, words bytes.Buffer
	if code := Run(t.Context(), c.args("croft", "schedule", "VCPU:1,MEMORY_MB:256,DISK_GB:1", "--name", "web",
		"--wait"), nil, &out, &words); code != 0 {
		t.Fatal(words.String())
	}
	var sent atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect} {
		hostileAgent(t, c, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, status) })
		for _, command := range commandsOfAgents("web") {
			Run(t.Context(), c.args(command...), strings.NewReader(""), &out, &words)
		}
	}
	if n := sent.Load(); n > 0 {
		t.Errorf("the operator's client was sent elsewhere %d times", n)
	}
}

func TestAGuestsLogSteersNoTerminal(t *testing.T) {
	c := cloudFor(t, 4)
	var out, words bytes.Buffer
	if code := Run(t.Context(), c.args("croft", "schedule", "VCPU:1,MEMORY_MB:256,DISK_GB:1", "--name", "web",
		"--wait"), nil, &out, &words); code != 0 {
		t.Fatal(words.String())
	}
	hostileAgent(t, c, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("\x1b[32mOK\x1b[0m " + steering + "the end"))
	})
	screen := pty.New(t)
	if code := Run(t.Context(), c.args("croft", "schedule", "logs", "web"), strings.NewReader(""), screen.File,
		screen.File); code != 0 {
		t.Fatalf("ended with %d", code)
	}
	screen.Await(t, "the end")
	shown := screen.End()
	if !strings.Contains(shown, "\x1b[32mOK\x1b[0m") {
		t.Errorf("colors are gone: %.100q", shown)
	}
	shown = strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "", "\r\n", "\n").Replace(shown)
	if i := strings.IndexFunc(shown, func(r rune) bool { return plain.Steers(r) && r != '\n' }); i >= 0 {
		t.Errorf("%.100q steers the terminal", shown[i:])
	}
}
