package mdserver_test

import (
	"net/http"
	"net/netip"
	"testing"

	"croft"
	"croft/mdserver"
)

const (
	tokenHeader = "X-aws-ec2-metadata-token"
	ttlHeader   = "X-aws-ec2-metadata-token-ttl-seconds"
)

// imdsGuests are two guests with the same requirements for readers.
func imdsGuests(i croft.IMDS) guests {
	a, b := web(), bare()
	a.IMDS, b.IMDS = i, i
	return guests{webAddr: a, bareAddr: b}
}

func tokenFrom(t *testing.T, at string, from netip.Addr) string {
	t.Helper()
	resp, token := do(t, clientFrom(t, from), http.MethodPut, "http://"+at+"/latest/api/token",
		http.Header{http.CanonicalHeaderKey(ttlHeader): {"60"}})
	if resp.StatusCode != 200 || resp.Header.Get(ttlHeader) != "60" {
		t.Fatalf("PUT gives %s and a token for %q s: %s", resp.Status, resp.Header.Get(ttlHeader), token)
	}
	return token
}

func TestWhoMayRead(t *testing.T) {
	with := func(token string) http.Header { return http.Header{http.CanonicalHeaderKey(tokenHeader): {token}} }
	for _, imds := range []croft.IMDS{"", croft.IMDSOptional, croft.IMDSRequired} {
		t.Run("IMDS "+string(imds), func(t *testing.T) {
			at := serve(t, mdserver.Config{Guests: imdsGuests(imds)})
			own, others := tokenFrom(t, at, webAddr), tokenFrom(t, at, bareAddr)
			without := 200
			if imds == croft.IMDSRequired {
				without = 401
			}
			for _, path := range []string{"/", "/latest/meta-data/instance-id", "/latest/user-data",
				"/openstack/latest/meta_data.json"} {
				for name, c := range map[string]struct {
					header http.Header
					want   int
				}{
					"no token":            {nil, without},
					"its own token":       {with(own), 200},
					"another's token":     {with(others), 401},
					"a token cut short":   {with(own[:20]), 401},
					"a token of nonsense": {with("x"), 401},
				} {
					if resp, body := do(t, clientFrom(t, webAddr), "GET", "http://"+at+path,
						c.header); resp.StatusCode != c.want {
						t.Errorf("%s with %s: %s %q, want %d", path, name, resp.Status, body, c.want)
					}
				}
			}
		})
	}
}

func TestAServerThatIsOffTellsNothing(t *testing.T) {
	at := serve(t, mdserver.Config{Guests: imdsGuests(croft.IMDSOff)})
	for _, c := range []struct{ method, path string }{{"GET", "/"}, {"GET", "/latest/user-data"}, {"GET", "/openstack"},
		{"PUT", "/latest/api/token"}} {
		resp, body := do(t, clientFrom(t, webAddr), c.method, "http://"+at+c.path,
			http.Header{http.CanonicalHeaderKey(ttlHeader): {"60"}})
		if resp.StatusCode != 403 {
			t.Errorf("%s %s: %s %q, want 403", c.method, c.path, resp.Status, body)
		}
	}
}

func TestTokensThatAreNotGiven(t *testing.T) {
	at := serve(t, mdserver.Config{Guests: twoGuests()})
	for name, c := range map[string]struct {
		header http.Header
		want   int
	}{
		"no time":           {nil, 400},
		"no number":         {http.Header{http.CanonicalHeaderKey(ttlHeader): {"soon"}}, 400},
		"no time at all":    {http.Header{http.CanonicalHeaderKey(ttlHeader): {"0"}}, 400},
		"a second too long": {http.Header{http.CanonicalHeaderKey(ttlHeader): {"21601"}}, 400},
		"forwarded by others": {http.Header{http.CanonicalHeaderKey(ttlHeader): {"60"},
			"X-Forwarded-For": {"10.0.0.1"}}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			if resp, body := do(t, clientFrom(t, webAddr), "PUT", "http://"+at+"/latest/api/token",
				c.header); resp.StatusCode != c.want {
				t.Errorf("%s %q, want %d", resp.Status, body, c.want)
			}
		})
	}
}

// TestWhatCloudInitGetsAsItsUserData: Amazon's tree has no other place for the parts of operators and croft.
func TestWhatCloudInitGetsAsItsUserData(t *testing.T) {
	at := serve(t, mdserver.Config{Guests: twoGuests()})
	for name, from := range map[string]netip.Addr{"web": webAddr, "bare": bareAddr} {
		// With a token, cloud-init does not send its own name.
		for _, client := range []string{"Cloud-Init/22.4.2", "python-requests/2.28.1"} {
			resp, body := do(t, clientFrom(t, from), "GET", "http://"+at+"/2009-04-04/user-data",
				http.Header{"User-Agent": {client}})
			if resp.StatusCode != 200 {
				t.Errorf("%s as %s: %s", name, client, resp.Status)
			}
			golden(t, "ec2-cloud-init-"+name+".golden", body)
		}
	}
}

// TestATokenOfAnEarlierInstanceIsWorthless gives the UUID and the address of an instance to an instance of another
// project, or to a later one of the same project.
func TestATokenOfAnEarlierInstanceIsWorthless(t *testing.T) {
	for name, change := range map[string]func(*mdserver.Guest){
		"of another project": func(g *mdserver.Guest) { g.Project = "heirs" },
		"of its own project": func(g *mdserver.Guest) { g.HostKey = "another key" },
	} {
		all := imdsGuests(croft.IMDSRequired)
		at := serve(t, mdserver.Config{Guests: all})
		former := tokenFrom(t, at, webAddr)
		next := all[webAddr]
		change(&next)
		all[webAddr] = next
		resp, body := do(t, clientFrom(t, webAddr), http.MethodGet, "http://"+at+"/latest/user-data",
			http.Header{http.CanonicalHeaderKey(tokenHeader): {former}})
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a later instance %s: the token of the former one reads %s %q", name, resp.Status, body)
		}
	}
}
