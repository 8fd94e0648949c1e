package mdserver_test

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/mdserver"
)

// notebook stores guests' reports.
type notebook struct {
	mu        sync.Mutex
	told      map[croft.InstanceID]croft.CloudInit
	passwords map[croft.InstanceID]string
	err       error
}

func newNotebook() *notebook {
	return &notebook{told: map[croft.InstanceID]croft.CloudInit{}, passwords: map[croft.InstanceID]string{}}
}

func (n *notebook) CloudInit(_ context.Context, id croft.InstanceID, c croft.CloudInit) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told[id] = c
	return n.err
}

func (n *notebook) SetPassword(_ context.Context, id croft.InstanceID, password string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.passwords[id] != "" {
		return croft.Errorf(croft.Conflict, "instance %s has a password", id)
	}
	n.passwords[id] = password
	return nil
}

func (n *notebook) Password(_ context.Context, id croft.InstanceID) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.passwords[id], nil
}

func post(t *testing.T, from netip.Addr, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, text := send(t, clientFrom(t, from), req)
	return resp.StatusCode, text
}

func form(state, words string) string {
	return url.Values{"state": {state}, "error": {words}}.Encode()
}

func TestReports(t *testing.T) {
	long := strings.Repeat("ü", 300)
	tests := []struct {
		name   string
		from   netip.Addr
		body   string
		status int
		want   map[croft.InstanceID]croft.CloudInit
	}{
		{"it is done", webAddr, form("done", ""), 204, map[croft.InstanceID]croft.CloudInit{webID: {State: "done"}}},
		{"done has no error", webAddr, form("done", "x"), 204,
			map[croft.InstanceID]croft.CloudInit{webID: {State: "done"}}},
		{"it failed", bareAddr, form("failed", "no such\npackage"), 204,
			map[croft.InstanceID]croft.CloudInit{bareID: {State: "failed", Error: "no such package"}}},
		{"another's id changes nothing", webAddr, form("done", "") + "&instance_id=" + string(bareID), 204,
			map[croft.InstanceID]croft.CloudInit{webID: {State: "done"}}},
		{"an error is fit for a terminal", webAddr, form("failed", "\x1b[31mred\x00\u0085"+string([]byte{0xff})), 204,
			map[croft.InstanceID]croft.CloudInit{webID: {State: "failed", Error: "[31mred"}}},
		{"an error is read as it is written", webAddr, form("failed", "of \u202eelif\u2066 x\u200b"), 204,
			map[croft.InstanceID]croft.CloudInit{webID: {State: "failed", Error: "of elif x"}}},
		{"an error is not long", webAddr, form("failed", long), 204,
			map[croft.InstanceID]croft.CloudInit{webID: {State: "failed", Error: long[:512]}}},
		{"a state that does not exist", webAddr, form("splendid", ""), 400, nil},
		{"nothing", webAddr, "", 400, nil},
		{"too much", webAddr, form("failed", strings.Repeat("x", 9<<10)), 400, nil},
		{"a stranger", nobodyAddr, form("done", ""), 404, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNotebook()
			at := serve(t, mdserver.Config{Guests: twoGuests(), Reports: n})
			if status, text := post(t, tt.from, "http://"+at+"/croft/v1/phone-home", tt.body); status != tt.status {
				t.Errorf("%d %q, want %d", status, text, tt.status)
			}
			for id, c := range n.told {
				if c.At.IsZero() {
					t.Error("the report has no time")
				}
				n.told[id] = croft.CloudInit{State: c.State, Error: c.Error}
			}
			if tt.want == nil {
				tt.want = map[croft.InstanceID]croft.CloudInit{}
			}
			if diff := cmp.Diff(tt.want, n.told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAGuestThatReportsAllTheTime(t *testing.T) {
	n := newNotebook()
	at := serve(t, mdserver.Config{Guests: twoGuests(), Reports: n})
	var refused int
	for range 20 { // expected to take far less than twenty seconds
		if status, _ := post(t, webAddr, "http://"+at+"/croft/v1/phone-home", form("done", "")); status == 429 {
			refused++
		}
	}
	if refused == 0 {
		t.Error("twenty reports in a row are all taken")
	}
	if status, text := post(t, bareAddr, "http://"+at+"/croft/v1/phone-home", form("done", "")); status != 204 {
		t.Errorf("another guest's report gets %d %s", status, text)
	}
}

func TestAReportThatCannotBeKeptIsToBeSentAgain(t *testing.T) {
	n := newNotebook()
	n.err = croft.Errorf(croft.Unavailable, "the disk is full")
	at := serve(t, mdserver.Config{Guests: twoGuests(), Reports: n})
	if status, text := post(t, webAddr, "http://"+at+"/croft/v1/phone-home", form("done", "")); status != 503 ||
		strings.Contains(text, "disk") {
		t.Errorf("%d %q, want 503 and nothing of the host's troubles", status, text)
	}
}

func TestPasswords(t *testing.T) {
	n := newNotebook()
	at := "http://" + serve(t, mdserver.Config{Guests: twoGuests(), Reports: n, Passwords: true}) +
		"/openstack/2013-04-04/password"
	if resp, body := get(t, clientFrom(t, webAddr), at); resp.StatusCode != 200 || body != "" {
		t.Errorf("before there is one: %s %q", resp.Status, body)
	}
	if status, _ := post(t, webAddr, at, "not base64!"); status != 400 {
		t.Errorf("a password that is not encrypted gets %d", status)
	}
	if status, _ := post(t, webAddr, at, strings.Repeat("x", 3<<10)); status != 400 {
		t.Errorf("a great password gets %d", status)
	}
	if status, text := post(t, webAddr, at, "c2VjcmV0\n"); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	if _, body := get(t, clientFrom(t, webAddr), at); body != "c2VjcmV0" {
		t.Errorf("the guest reads %q", body)
	}
	if _, body := get(t, clientFrom(t, bareAddr), at); body != "" {
		t.Errorf("another guest reads %q", body)
	}
	if resp, _ := get(t, clientFrom(t, nobodyAddr), at); resp.StatusCode != 404 {
		t.Errorf("a stranger gets %s", resp.Status)
	}
}

func TestPasswordsAreOffUnlessAskedFor(t *testing.T) {
	at := "http://" + serve(t, mdserver.Config{Guests: twoGuests(), Reports: newNotebook()}) +
		"/openstack/latest/password"
	if resp, _ := get(t, clientFrom(t, webAddr), at); resp.StatusCode != 404 {
		t.Errorf("GET: %s", resp.Status)
	}
	if status, _ := post(t, webAddr, at, "c2VjcmV0"); status != 405 {
		t.Errorf("POST: %d", status)
	}
}
