package openstack_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"croft/etcdstore/etcdtest"
	"croft/internal/testing/placementoracle"
	"croft/placement"
)

func TestMain(m *testing.M) {
	if os.Getenv(managedEtcd) != "" {
		if err := manage(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// packages are the Debian packages of the client and its plugin for Placement.
const packages = "python3-openstackclient python3-osc-placement"

// ids are the UUIDs used by the commands.
var ids = map[string]string{
	"SITE":  "a0000000-0000-4000-8000-000000000001",
	"HOST1": "a0000000-0000-4000-8000-000000000002",
	"HOST2": "a0000000-0000-4000-8000-000000000003",
	"DISK":  "a0000000-0000-4000-8000-000000000004",
	"NONE":  "a0000000-0000-4000-8000-000000000009",
	"GROUP": "b0000000-0000-4000-8000-000000000001",
	"GUEST": "c0000000-0000-4000-8000-000000000001",
	"OTHER": "c0000000-0000-4000-8000-000000000002",
	"THIRD": "c0000000-0000-4000-8000-000000000003",
	// The original remembers a consumer whose first claim named an unknown provider, and therefore rejects its next
	// claim; croft does not.
	"FOURTH": "c0000000-0000-4000-8000-000000000004",
}

// serve runs croft's Placement on a separate etcd and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	server, err := placement.New(placement.Config{Store: etcdtest.Start(t).Placement(0)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		web.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := server.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return web.URL
}

// front returns a server in front of the original, whose own server closes every connection without announcing it,
// which makes the client fail.
func front(t *testing.T, endpoint string) string {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{DisableKeepAlives: true}
	web := httptest.NewServer(proxy)
	t.Cleanup(web.Close)
	return web.URL
}

// TestTheClientDoesTheSameWithBoth sends both servers the same commands, in the oldest version that names users of
// claims, in one with trees, and in the newest.
func TestTheClientDoesTheSameWithBoth(t *testing.T) {
	if _, err := exec.LookPath("openstack"); err != nil {
		t.Skipf("openstack is not installed: apt-get install %s", packages)
	}
	original, ours := front(t, placementoracle.Start(t)), serve(t)
	for _, version := range []string{"1.12", "1.29", "1.39"} {
		t.Run(version, func(t *testing.T) {
			commands := script(t, version)
			want, got := told(t, original, version, commands), told(t, ours, version, commands)
			if len(want) != len(commands) {
				t.Fatalf("%d answers to %d commands:\n%q", len(want), len(commands), want)
			}
			refused := 0
			for i, command := range commands {
				if i >= len(got) {
					t.Fatalf("croft answered %d of %d commands", len(got), len(commands))
				}
				if strings.Contains(want[i], "(HTTP 4") {
					refused++
				}
				if diff := cmp.Diff(want[i], got[i]); diff != "" {
					t.Errorf("openstack %s\n(-original +croft):\n%s", command, diff)
				}
			}
			if refused < 20 || refused > len(commands)/2 {
				t.Errorf("%d of %d commands were refused, which shows little:\n%s", refused, len(commands),
					strings.Join(want, ""))
			}
		})
	}
}

// script returns the commands for a version.
func script(t *testing.T, version string) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/commands")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		commands = append(commands, os.Expand(line, func(name string) string {
			if name == "TYPE" && version == "1.39" {
				return "--consumer-type INSTANCE"
			}
			// The original remembers consumers without claims, so each version uses different ones.
			return strings.Replace(ids[name], "c0000000", "c00000"+version[2:], 1)
		}))
	}
	return commands
}

// mark is a command that does not exist; the client's error for it separates the answers.
const mark = "mark-between-answers"

var (
	marked = regexp.MustCompile(`(?m)^openstack: '` + mark +
		`' is not an openstack command.*\n(Did you mean one of these\?\n(  .*\n)*)?`)
	// The original lists dictionaries in no defined order.
	dictionary = regexp.MustCompile(`\{'[A-Z_a-z]+': \d+(, '[A-Z_a-z]+': \d+)*\}`)
	request    = regexp.MustCompile(`req-[0-9a-f-]{36}`)
	// dumps are the schema and the value that the original includes in errors; croft names only the rule and the
	// place.
	dumps = regexp.MustCompile(`(in schema(?:\[(?:'[^']*'|\d+)\])*):.*?(  On instance(?:\[(?:'[^']*'|\d+)\])*):.*( \(HTTP 400\))`)
)

// told runs client commands, all in one process because the client starts slowly, and returns the answer to each.
func told(t *testing.T, endpoint, version string, commands []string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "openstack")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n"+mark+"\n") + "\n" + mark + "\n")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C.UTF-8", "PYTHONUNBUFFERED=1",
		"OS_AUTH_TYPE=admin_token", "OS_ENDPOINT=" + endpoint, "OS_TOKEN=admin", "OS_PLACEMENT_API_VERSION=" + version}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("openstack: %v\n%s", err, out.String())
	}
	text := request.ReplaceAllString(out.String(), "REQUEST")
	text = dumps.ReplaceAllString(text, "$1$2$3")
	text = dictionary.ReplaceAllStringFunc(text, func(d string) string {
		items := strings.Split(strings.Trim(d, "{}"), ", ")
		slices.Sort(items)
		return "{" + strings.Join(items, ", ") + "}"
	})
	answers := marked.Split(text, -1)
	answers = answers[:len(answers)-1] // a newline follows the last mark
	for i := range answers {
		answers[i] = sortCandidates(answers[i])
	}
	return answers
}

// candidateRow is a row of a table of candidates, with its candidate's number.
var candidateRow = regexp.MustCompile(`^\| +(\d+) (\|.*\n)$`)

// sortCandidates sorts a table's candidates, which may have several rows each, by their text, and renumbers them:
// the original combines groups in no defined order.
func sortCandidates(table string) string {
	var head, tail []string
	var candidates []string
	last := ""
	for line := range strings.Lines(table) {
		row := candidateRow.FindStringSubmatch(line)
		switch {
		case row != nil && row[1] == last:
			candidates[len(candidates)-1] += row[2]
		case row != nil:
			candidates, last = append(candidates, row[2]), row[1]
		case candidates == nil:
			head = append(head, line)
		default:
			tail = append(tail, line)
		}
	}
	slices.Sort(candidates)
	for i, rows := range candidates {
		for row := range strings.Lines(rows) {
			head = append(head, fmt.Sprintf("| %d %s", i+1, row))
		}
	}
	return strings.Join(append(head, tail...), "")
}

func TestCandidatesInAnyOrderAreTheSame(t *testing.T) {
	const head, line = "+---+---+\n| # | a |\n+---+---+\n", "+---+---+\n"
	one := head + "| 1 | x |\n| 1 | y |\n| 2 | a |\n" + line
	other := head + "| 1 | a |\n| 2 | x |\n| 2 | y |\n" + line
	if sortCandidates(one) != other || sortCandidates(other) != other {
		t.Errorf("got\n%s and\n%s", sortCandidates(one), sortCandidates(other))
	}
	if mixed := head + "| 1 | x |\n| 2 | y |\n| 2 | a |\n" + line; sortCandidates(mixed) == other {
		t.Error("rows went from one candidate to another")
	}
	if told := "HTTP 400\n"; sortCandidates(told) != told {
		t.Errorf("got %q", sortCandidates(told))
	}
}
