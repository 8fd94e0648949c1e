package mdserver_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/mdserver"
)

var randomSeed = regexp.MustCompile(`"random_seed":"[^"]*"`)

// TestEveryBody follows the listings from the root, like a client that walks the tree, and compares
// everything with the golden file.
func TestEveryBody(t *testing.T) {
	at := serve(t, mdserver.Config{Guests: twoGuests()})
	for name, from := range map[string]netip.Addr{"web": webAddr, "bare": bareAddr} {
		t.Run(name, func(t *testing.T) {
			var all strings.Builder
			walk(t, clientFrom(t, from), "http://"+at, "/", &all)
			golden(t, name+".golden", all.String())
		})
	}
}

func walk(t *testing.T, c *http.Client, base, path string, all *strings.Builder) {
	t.Helper()
	resp, body := get(t, c, base+path)
	body = randomSeed.ReplaceAllString(body, `"random_seed":"..."`)
	fmt.Fprintf(all, "== %s %d %s\n%s\n", path, resp.StatusCode, resp.Header.Get("Content-Type"), body)
	if !strings.HasSuffix(path, "/") {
		return
	}
	for line := range strings.Lines(body) {
		walk(t, c, base, path+childOf(path, strings.TrimSpace(line)), all)
	}
}

// childOf is a client's interpretation of one line of a listing.
func childOf(path, line string) string {
	isVersion := path == "/" && line != "openstack/" || path == "/openstack/"
	if isVersion {
		return line + "/"
	}
	if n, _, isKey := strings.Cut(line, "="); isKey {
		return n + "/"
	}
	return line
}

func TestWhatIsAnswered(t *testing.T) {
	at := serve(t, mdserver.Config{Guests: twoGuests()})
	tests := []struct {
		name         string
		from         netip.Addr
		method, path string
		header       http.Header
		status       int
		body         string // prefix of the body
	}{
		{"a guest learns its id", webAddr, "GET", "/latest/meta-data/instance-id", nil, 200, string(webID)},
		{"another guest learns its own", bareAddr, "GET", "/latest/meta-data/instance-id", nil, 200, string(bareID)},
		{"a directory is listed without its slash too", webAddr, "GET", "/latest", nil, 200, "meta-data/\nuser-data"},
		{"a file may be asked for with a slash", webAddr, "GET", "/latest/user-data/", nil, 200, "#!/bin/sh\n"},
		{"doubled slashes are one", webAddr, "GET", "//latest//meta-data//instance-id", nil, 200, string(webID)},
		{"the address is the one that asked", webAddr, "GET", "/latest/meta-data/local-ipv4", nil, 200, "127.0.0.2"},
		{"HEAD has no body", webAddr, "HEAD", "/latest/user-data", nil, 200, ""},
		{"an address that is nobody's gets nothing", nobodyAddr, "GET", "/latest/meta-data/instance-id", nil, 404,
			"no instance of this host has the address 127.0.0.4\n"},
		{"nor does it see the root", nobodyAddr, "GET", "/", nil, 404, "no instance"},
		{"no header makes another guest of it", nobodyAddr, "GET", "/latest/meta-data/instance-id", http.Header{
			"X-Forwarded-For": {"127.0.0.2"}, "X-Real-Ip": {"127.0.0.2"}, "Forwarded": {"for=127.0.0.2"},
			"X-Instance-Id": {string(webID)}, "X-Instance-Id-Signature": {"x"}, "Host": {"127.0.0.2"},
		}, 404, "no instance"},
		{"what is not there is 404", webAddr, "GET", "/latest/meta-data/kernel-id", nil, 404,
			`there is no "/latest/meta-data/kernel-id" for this instance`},
		{"below a file there is nothing", webAddr, "GET", "/latest/user-data/x", nil, 404, "there is no"},
		{"dots lead nowhere", webAddr, "GET", "/latest/meta-data/%2e%2e/user-data", nil, 404, "there is no"},
		{"a path is quoted, not echoed", webAddr, "GET", "/%0a%1b%5b31m", nil, 404, `there is no "/\n\x1b[31m"`},
		{"a version that Amazon has and we do not", webAddr, "GET", "/2021-03-23/meta-data/instance-id", nil, 404,
			"there is no"},
		{"no user-data is 404", bareAddr, "GET", "/latest/user-data", nil, 404, "there is no"},
		{"and in OpenStack's tree", bareAddr, "GET", "/openstack/latest/user_data", nil, 404, "there is no"},
		{"a token wants its time", webAddr, "PUT", "/latest/api/token", nil, 400,
			"X-Aws-Ec2-Metadata-Token-Ttl-Seconds must be from 1 to 21600\n"},
		{"a stranger gets no token", nobodyAddr, "PUT", "/latest/api/token",
			http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {"60"}}, 404, "no instance"},
		{"nothing else can be put", webAddr, "PUT", "/latest/user-data", nil, 405,
			"metadata can be read, not written\n"},
		{"nothing can be deleted", webAddr, "DELETE", "/latest/user-data", nil, 405,
			"metadata can be read, not written\n"},
		{"nobody listens to reports here", webAddr, "POST", "/croft/v1/phone-home", nil, 405, "metadata can be"},
		{"an identity document is not there", webAddr, "GET", "/latest/dynamic/instance-identity/document", nil, 404,
			"there is no"},
		{"the disk of the root", webAddr, "GET", "/latest/meta-data/block-device-mapping/root", nil, 200, "/dev/vda"},
		{"a tag", webAddr, "GET", "/latest/meta-data/tags/instance/role", nil, 200, "front"},
		{"no headers make another guest of one", webAddr, "GET", "/latest/meta-data/instance-id", http.Header{
			"X-Forwarded-For": {"127.0.0.3"}, "X-Real-Ip": {"127.0.0.3"}, "Forwarded": {"for=127.0.0.3"},
			"Via":           {"127.0.0.3"},
			"X-Instance-Id": {string(bareID)}, "X-Instance-Id-Signature": {"x"}, "X-Tenant-Id": {"x"},
			"Host": {"127.0.0.3"},
		}, 200, string(webID)},
		{"nor does another's id in the path", webAddr, "GET", "/" + string(bareID) + "/latest/meta-data/instance-id",
			nil, 404, "there is no"},
		{"nor in the query", webAddr, "GET", "/latest/meta-data/instance-id?instance-id=" + string(bareID) +
			"&address=127.0.0.3", nil, 200, string(webID)},
		{"nothing can be posted", webAddr, "POST", "/openstack/latest/password", nil, 405, "metadata can be"},
		{"a guest does not learn what serves it", webAddr, "GET", "/croft/health", nil, 404, "there is no"},
		{"nor does a stranger", nobodyAddr, "GET", "/croft/health", nil, 404, "no instance"},
		{"the host itself does", netip.MustParseAddr("127.0.0.1"), "GET", "/croft/health", nil, 200,
			"croft metadata server\n"},
		{"the host is nobody's address", netip.MustParseAddr("127.0.0.1"), "GET", "/latest", nil, 404, "no instance"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := do(t, clientFrom(t, tt.from), tt.method, "http://"+at+tt.path, tt.header)
			if resp.StatusCode != tt.status || !strings.HasPrefix(body, tt.body) {
				t.Errorf("%d %q, want %d %q", resp.StatusCode, body, tt.status, tt.body)
			}
			if tt.method == "HEAD" && body != "" {
				t.Errorf("HEAD has the body %q", body)
			}
			if tt.status == 405 && resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("405 allows %q", resp.Header.Get("Allow"))
			}
		})
	}
}

func TestRandomSeedIsNewEachTime(t *testing.T) {
	at := serve(t, mdserver.Config{Guests: twoGuests()})
	var seeds []string
	for range 2 {
		_, body := get(t, clientFrom(t, webAddr), "http://"+at+"/openstack/latest/meta_data.json")
		var m struct {
			RandomSeed string `json:"random_seed"`
		}
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatal(err)
		}
		if raw, err := base64.StdEncoding.DecodeString(m.RandomSeed); err != nil || len(raw) != 512 {
			t.Errorf("the seed is %d bytes, %v", len(raw), err)
		}
		seeds = append(seeds, m.RandomSeed)
	}
	if slices.Equal(seeds[:1], seeds[1:]) {
		t.Error("two answers have the same seed")
	}
}

// broken fails lookups: at once, or only at the timeout.
type broken struct{ hangs bool }

func (b broken) Guest(ctx context.Context, _ netip.Addr) (mdserver.Guest, error) {
	if b.hangs {
		<-ctx.Done()
		return mdserver.Guest{}, ctx.Err()
	}
	return mdserver.Guest{}, croft.Errorf(croft.Unavailable, "libvirt does not answer")
}

func TestALookupThatCannotBeMadeIs503(t *testing.T) {
	for name, g := range map[string]broken{"it fails": {}, "it hangs": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			at := serve(t, mdserver.Config{Guests: g, LookupTimeout: 50_000_000, Lookups: 1})
			answers := make(chan *http.Response, 8)
			for range cap(answers) { // all but one wait for a slot
				go func() {
					resp, _ := get(t, clientFrom(t, webAddr), "http://"+at+"/latest/")
					answers <- resp
				}()
			}
			for range cap(answers) {
				if resp := <-answers; resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
					t.Errorf("%s, retry after %q", resp.Status, resp.Header.Get("Retry-After"))
				}
			}
		})
	}
}

// TestSlowConnections opens a thousand silent connections, half of them from the guest that then makes a request: the
// request is answered.
func TestSlowConnections(t *testing.T) {
	at := serve(t, mdserver.Config{Guests: twoGuests(), PerGuest: 8, Connections: 100})
	for i := range 1000 {
		from := []netip.Addr{webAddr, nobodyAddr}[i%2]
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}).DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET / HTTP/1.1\r\nSlow: ")
	}
	for _, from := range []netip.Addr{webAddr, bareAddr} {
		if resp, body := get(t, clientFrom(t, from), "http://"+at+
			"/latest/meta-data/instance-id"); resp.StatusCode != 200 {
			t.Errorf("%s is answered %s %s", from, resp.Status, body)
		}
	}
}

func TestAGreatHeaderIsRefused(t *testing.T) {
	at := serve(t, mdserver.Config{Guests: twoGuests()})
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: webAddr.AsSlice()}}).DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The server may stop reading before everything is written.
	fmt.Fprintf(conn, "GET /latest/ HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	answer, _ := io.ReadAll(conn)
	if len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
		t.Errorf("64 KiB of header are answered %q", answer)
	}
}

func TestNewAsksForWhatItNeeds(t *testing.T) {
	if _, err := mdserver.New(mdserver.Config{}); !errors.Is(err, croft.Invalid) {
		t.Errorf("an empty Config gives %v", err)
	}
}
