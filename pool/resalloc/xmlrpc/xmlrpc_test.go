package xmlrpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func callWith(value string) string {
	return "<?xml version='1.0'?><methodCall><methodName>m</methodName><params><param><value>" + value +
		"</value></param></params></methodCall>"
}

func TestValuesAreRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       any
	}{
		{"a number", "<int>12</int>", int64(12)},
		{"a number of four bytes", "<i4>-3</i4>", int64(-3)},
		{"a number of eight bytes", "<i8>9000000000</i8>", int64(9000000000)},
		{"white space around a number", "<int>\n 7 </int>", int64(7)},
		{"a truth", "<boolean>1</boolean>", true},
		{"a text", "<string>a &lt;b&gt; </string>", "a <b> "},
		{"a text without a type", "x86_64", "x86_64"},
		{"an empty text", "", ""},
		{"a text in a section", "<string><![CDATA[<x>]]></string>", "<x>"},
		{"a comment is no text", "a<!-- no -->b", "ab"},
		{"a fraction", "<double>0.5</double>", 0.5},
		{"nothing", "<nil/>", nil},
		{"bytes over lines", "<base64>\nAQ\nI=\n</base64>", []byte{1, 2}},
		{"a time", "<dateTime.iso8601>20261121T22:00:00</dateTime.iso8601>",
			time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC)},
		{"a list", "<array><data>\n<value>a</value>\n<value><nil/></value></data></array>", []any{"a", nil}},
		{"an empty list", "<array><data/></array>", []any{}},
		{"a structure", "<struct><member><name>a</name><value><int>1</int></value></member></struct>",
			map[string]any{"a": int64(1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readCall(strings.NewReader(callWith(c.text)))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(call{"m", []any{c.want}}, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestCallWithoutParams(t *testing.T) {
	for _, text := range []string{
		"<methodCall><methodName> m </methodName></methodCall>",
		"<methodCall>\n<methodName>m</methodName>\n<params>\n</params>\n</methodCall>\n",
	} {
		if got, err := readCall(strings.NewReader(text)); err != nil || got.Method != "m" || len(got.Params) != 0 {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestWhatIsNoCall(t *testing.T) {
	deep := strings.Repeat("<array><data><value>", maxDepth+1) + strings.Repeat("</value></data></array>", maxDepth+1)
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "ends in the middle"},
		{"something else", "<html></html>", "<methodCall> is missing"},
		{"half a call", callWith("<int>1</int>")[:90], "unexpected EOF"},
		{"a word for a number", callWith("<int>one</int>"), `"one" is no int`},
		{"a type that there is not", callWith("<color>red</color>"), `"red" is no color`},
		{"two values in one", callWith("<int>1</int><int>2</int>"), "</value> is missing"},
		{"an element in a text", callWith("<string><b/></string>"), "where text belongs"},
		{"a fraction without end", callWith("<double>inf</double>"), `"inf" is no double`},
		{"depth", callWith(deep), errSize.Error()},
		{"many values", callWith("<array><data>" + strings.Repeat("<value>1</value>", maxValues) + "</data></array>"),
			errSize.Error()},
		{"length", callWith(strings.Repeat("x", maxBytes)), errSize.Error()},
		{"an entity of its own", `<!DOCTYPE a [<!ENTITY x "y">]>` + callWith("&x;"), "entity"},
		{"another encoding", "<?xml version='1.0' encoding='latin1'?>" + callWith("x")[21:], "not UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readCall(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func FuzzCall(f *testing.F) {
	f.Add(callWith("<struct><member><name>a</name><value><array><data><value><base64>AQI=</base64></value></data></array></value></member></struct>"))
	f.Add(callWith("<dateTime.iso8601>20261121T22:00:00</dateTime.iso8601>"))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := readCall(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, v := range c.Params { // what was read can be encoded, and decodes to the same
			var b bytes.Buffer
			if writeTyped(&b, v) != nil {
				continue // times are not encoded
			}
			again, err := readCall(strings.NewReader(callWith(b.String())))
			if err != nil {
				t.Fatalf("%#v became %s: %v", v, b.String(), err)
			}
			if d := cmp.Diff(v, again.Params[0]); d != "" && !strings.ContainsAny(text, "\ufffd") {
				t.Fatalf("%#v became %#v", v, again.Params[0])
			}
		}
	})
}

// answers serves the methods that the tests below call.
func answers(t *testing.T) *httptest.Server {
	t.Helper()
	h := NewHandler(map[string]Method{
		"echo": {"Says it again.", func(_ context.Context, p []any) (any, error) { return p, nil }},
		"big":  {"A number.", func(context.Context, []any) (any, error) { return int64(1) << 40, nil }},
		"fail": {"Fails.", func(context.Context, []any) (any, error) { return nil, errors.New("no <such> ticket") }},
		"odd":  {"Fails too.", func(context.Context, []any) (any, error) { return struct{}{}, nil }},
	})
	mux := http.NewServeMux()
	mux.Handle("/RPC2", h)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// TestPythonsClient tests the server with the client of Python's standard library.
func TestPythonsClient(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	s := answers(t)
	for _, c := range []struct{ name, code, want string }{
		{"all types come back", `print(p.echo(1, True, "ä<&>", 0.5, None, b"\x00\xff", [], {"a": [1]}))`,
			"[1, True, 'ä<&>', 0.5, None, <xmlrpc.client.Binary object at HERE>, [], {'a': [1]}]"},
		{"bytes are what they were", `print(p.echo(b"\x00\xff")[0].data)`, `b'\x00\xff'`},
		{"a number beyond 32 bits", `print(p.big())`, "1099511627776"},
		{"the methods tell of themselves", `print(p.system.listMethods(), p.system.methodHelp("echo"))`,
			"['big', 'echo', 'fail', 'odd', 'system.listMethods', 'system.methodHelp', 'system.methodSignature'] Says it again."},
		{"an error is a fault", "try: p.fail()\nexcept xmlrpc.client.Fault as f: print(f.faultCode, f.faultString)",
			"1 no <such> ticket"},
		{"so is a method that is not there", "try: p.none()\nexcept xmlrpc.client.Fault as f: print(f.faultString)",
			`there is no method "none"`},
		{"so is an answer that cannot be said", "try: p.odd()\nexcept xmlrpc.client.Fault as f: print(f.faultString)",
			"XML-RPC has no value for a struct {}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code := fmt.Sprintf("import re, xmlrpc.client\np = xmlrpc.client.ServerProxy(%q, allow_none=True)\n%s",
				s.URL, c.code)
			cmd := exec.CommandContext(t.Context(), python, "-c", code)
			cmd.Env = append(cmd.Environ(), "PYTHONIOENCODING=utf-8")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got := strings.TrimSpace(string(out))
			if at := strings.Index(got, "0x"); at >= 0 && strings.Contains(c.want, "HERE") {
				end := at + strings.IndexByte(got[at:], '>')
				got = got[:at] + "HERE" + got[end:]
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	s := answers(t)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(strings.Replace(callWith("<int>5</int>"), ">m<", ">echo<", 1)))
	_ = w.Close()
	for _, c := range []struct {
		name, method, encoding, body string
		status                       int
		want                         string
	}{
		{"reading is not calling", http.MethodGet, "", "", http.StatusMethodNotAllowed, "POST"},
		{"a packed call", http.MethodPost, "gzip", packed.String(), http.StatusOK, "<int>5</int>"},
		{"not packed as it says", http.MethodPost, "gzip", "as plain as can be", http.StatusNotImplemented, "gzip"},
		{"packed otherwise", http.MethodPost, "br", "", http.StatusNotImplemented, "not supported"},
		{"no call", http.MethodPost, "", "hello", http.StatusOK, "no call of XML-RPC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), c.method, s.URL+"/RPC2", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Encoding", c.encoding)
			resp, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var b bytes.Buffer
			_, _ = b.ReadFrom(resp.Body)
			if resp.StatusCode != c.status || !strings.Contains(b.String(), c.want) {
				t.Errorf("%d: %s", resp.StatusCode, b.String())
			}
		})
	}
}

// TestACallThatTheServersEndCutsShortIsAnswered: clients treat a missing answer as fatal, and retry after a
// fault.
func TestACallThatTheServersEndCutsShortIsAnswered(t *testing.T) {
	h := NewHandler(map[string]Method{"wait": {"Waits.", func(ctx context.Context, _ []any) (any, error) {
		<-ctx.Done()
		return nil, errors.New("this server stops")
	}}})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/RPC2",
		strings.NewReader("<methodCall><methodName>wait</methodName></methodCall>")))
	if !strings.Contains(w.Body.String(), "<fault>") || !strings.Contains(w.Body.String(), "this server stops") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}
