package resalloc_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"croft/internal/testing/patient"
	"croft/pool"
	"croft/pool/pooltest"
	"croft/pool/resalloc"
	"croft/pool/server"
	"croft/pool/shell"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const onePool = `
small:
  cmd_new: echo secret-$RESALLOC_ID
  cmd_delete: "true"
  max: 4
  max_prealloc: 1
  tags: [x86_64]
`

// serve serves a pool until the test ends; with grants, only to holders of their tokens.
func serve(t *testing.T, store pool.Store, grants ...server.Grant) (url string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pools.yaml"), []byte(onePool), 0o600); err != nil {
		t.Fatal(err)
	}
	hooks, err := shell.New(shell.Config{Dir: dir, Mark: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := pool.New(pool.Config{Partition: "test", Store: store, Hooks: hooks,
		File: filepath.Join(dir, "pools.yaml"), Me: pool.Server{Name: "one", Machine: "here"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Config{Manager: m, Tokens: tokens(t, dir, grants), Local: grants == nil,
		RPC: resalloc.Handler})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s.Handler())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
		cancel()
		if err := errors.Join(<-ended, hooks.Close()); err != nil {
			t.Error(err)
		}
	})
	return listener.URL
}

func tokens(t *testing.T, dir string, grants []server.Grant) *server.PoolTokens {
	t.Helper()
	if grants == nil {
		return nil
	}
	var text strings.Builder
	for _, g := range grants {
		text.WriteString(g.Line())
	}
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := server.LoadTokens(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// clients makes the tokens of two clients.
func clients(quota server.Quota) (ci, other string, grants []server.Grant) {
	ci, first, _ := server.NewToken("ci", server.RoleClient)
	other, second, _ := server.NewToken("other", server.RoleClient)
	first.Quota = quota
	return ci, other, []server.Grant{first, second}
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patient.Longest)
	t.Cleanup(cancel)
	return ctx
}

// call makes a call with a token, which may be empty, as its URL's password.
func call(t *testing.T, url, token, method, param string) (int, string) {
	t.Helper()
	text := "<?xml version=\"1.0\"?><methodCall><methodName>" + method + "</methodName><params><param><value>" + param +
		"</value></param></params></methodCall>"
	r, err := http.NewRequestWithContext(bounded(t), http.MethodPost, url+"/RPC2", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "text/xml")
	if token != "" {
		r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("any:"+token)))
	}
	alone := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := alone.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

const anyTag = "<array><data><value>x86_64</value></data></array>"

func TestWhoMayCall(t *testing.T) {
	ci, other, grants := clients(server.Quota{})
	url := serve(t, pooltest.NewMemory(), grants...)
	if status, answer := call(t, url, other, "takeTicket", anyTag); status != 200 ||
		!strings.Contains(answer, "<int>1</int>") {
		t.Fatalf("%d %s", status, answer)
	}
	for _, c := range []struct {
		name, token string
		status      int
		want        string
	}{
		{"nobody", "", 401, "wants a token"},
		{"a client sees no ticket of another", ci, 200, "<name>ready</name>\n<value><nil/></value>"},
		{"its owner sees it", other, 200, "<name>ready</name>\n<value><boolean>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if status, answer := call(t, url, c.token, "collectTicket", "<int>1</int>"); status != c.status ||
				!strings.Contains(answer, c.want) {
				t.Errorf("%d %s, want %d and %q", status, answer, c.status, c.want)
			}
		})
	}
}

func TestAClientTakesNoMoreThanItsQuota(t *testing.T) {
	ci, _, grants := clients(server.Quota{Open: 2, Rate: 0.001})
	url := serve(t, pooltest.NewMemory(), grants...)
	for range 2 {
		if _, answer := call(t, url, ci, "takeTicket", anyTag); strings.Contains(answer, "<fault>") {
			t.Fatal(answer)
		}
	}
	if _, answer := call(t, url, ci, "takeTicket", anyTag); !strings.Contains(answer, "<fault>") ||
		!strings.Contains(answer, "too fast") {
		t.Error(answer)
	}
}

// A forgotten ticket has no known owner, so closing it has no effect.
func TestAForgottenTicketMayBeClosedWithAnyToken(t *testing.T) {
	store := pooltest.NewMemory()
	if err := store.Lead(t.Context(), pool.Server{}, func(ctx context.Context, term pool.Term) error {
		return term.Commit(ctx, pool.Batch{Head: &pool.Head{Ticket: 5}})
	}); err != nil {
		t.Fatal(err)
	}
	ci, _, grants := clients(server.Quota{})
	url := serve(t, store, grants...)
	for id, fault := range map[int]bool{3: false, 6: true} {
		if _, answer := call(t, url, ci, "closeTicket", fmt.Sprintf("<int>%d</int>", id)); strings.Contains(answer,
			"<fault>") != fault {
			t.Errorf("%d: %s", id, answer)
		}
	}
}

func TestAnOldClientNeedNotNameTheServer(t *testing.T) {
	url := serve(t, pooltest.NewMemory())
	const call = `<methodCall><methodName>collectTicket</methodName><params><param><value>1</value></param></params></methodCall>`
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /RPC2 HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(call), call); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn) // until the server closes the connection
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 200") ||
		!strings.Contains(string(answer), "<methodResponse>") {
		t.Errorf("got %s, %v", answer, err)
	}
}

// pythons are calls like those of resalloc's client; the output of each piece of code ends with a mark.
const pythons = `
import sys, xmlrpc.client
c = xmlrpc.client.ServerProxy(sys.argv[1], allow_none=True)
def fault(f, *a):
    try: return f(*a)
    except xmlrpc.client.Fault as e: return e.faultString
for code in sys.argv[2:]:
    exec(code)
    print(end="\x1e")
`

func TestResallocsCalls(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	url := serve(t, pooltest.NewMemory())
	cases := []struct{ name, code, want string }{
		{"a ticket gets its resource", `t = c.takeTicket(["x86_64"]); print(t, str(c.waitTicket(t)), end="")`,
			"1 secret-1\n"},
		{"numbers may be texts",
			`r = c.collectTicket("1"); print(r["ready"], r["closed"], r["failed"], str(r["output"]), end="")`,
			"True False False secret-1\n"},
		{"closing says nothing, twice", `print(c.closeTicket("1"), c.closeTicket(1))`, "None None\n"},
		{"a closed one tells what it had",
			`r = c.collectTicket(1); print(r["ready"], r["closed"], r["failed"], str(r["output"]), end="")`,
			"True True False secret-1\n"},
		{"one that there is not", `r = c.collectTicket(99); print(r["ready"], r["output"])`, "None None\n"},
		{"one that waits",
			`c.takeTicket(["none"], "box"); r = c.collectTicket(2); print(r["ready"], r["output"], r["closed"], r["failed"])`, "False None False False\n"},
		{"waiting for none is a fault", `print(fault(c.waitTicket, 99))`, "there is no ticket 99\n"},
		{"closing none is a fault", `print(fault(c.closeTicket, 99))`, "there is no ticket 99\n"},
		{"a word is the number of none", `print([c.collectTicket(n)["ready"] for n in ("x", "0", 0, -1)])`,
			"[None, None, None, None]\n"},
		{"waiting for a word is a fault", `print(fault(c.waitTicket, "x"))`,
			"\"x\" is not a ticket number: use a whole number from 1\n"},
		{"no list is a fault", `print(fault(c.takeTicket, "x86_64"))`,
			"takeTicket takes a list of tags, and the argument is not a list\n"},
		{"closed before it was served is a fault", `c.closeTicket(2); print(fault(c.waitTicket, 2))`,
			"ticket 2 was closed before it had a resource\n"},
		{"no tags mean any resource", `t = c.takeTicket([]); print(str(c.waitTicket(t))[:7])`, "secret-\n"},
		{"nor do tags that are left out, or nil",
			`print([str(c.waitTicket(c.takeTicket(*a)))[:7] for a in ((), (None,), (None, None))])`,
			"['secret-', 'secret-', 'secret-']\n"},
		{"the methods are listed", `print([m for m in c.system.listMethods() if "Ticket" in m])`,
			"['closeTicket', 'collectTicket', 'takeTicket', 'waitTicket']\n"},
	}
	args := []string{"-c", pythons, url}
	for _, c := range cases {
		args = append(args, c.code)
	}
	out, err := exec.CommandContext(bounded(t), python, args...).CombinedOutput()
	printed := strings.Split(string(out), "\x1e")
	if err != nil || len(printed) != len(cases)+1 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, c := range cases {
		if printed[i] != c.want {
			t.Errorf("%s: got %q, want %q", c.name, printed[i], c.want)
		}
	}
}
