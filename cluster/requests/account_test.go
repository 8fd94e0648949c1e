package requests_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/requests"
)

// withAgent returns a bench on which one server is the agent of all masters, and the address that was dialed last.
func withAgent(t *testing.T, answer http.HandlerFunc) (*bench, cluster.Cluster, *atomic.Value) {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	b := newBench(t)
	var dialed atomic.Value
	b.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Store(address)
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	b.Service = b.another()
	return b, b.manage(b.create(ask("one")).ID, cluster.Ready), &dialed
}

func TestAnAccountIsMadeOnce(t *testing.T) {
	var made atomic.Int64
	b, c, dialed := withAgent(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/new_account/" || r.Host != "192.0.2.1:80" &&
			r.Host != "192.0.2.1" {
			http.Error(w, fmt.Sprintf("%s %s %s", r.Method, r.Host, r.URL), http.StatusTeapot)
			return
		}
		time.Sleep(20 * time.Millisecond) // so that the other requests arrive meanwhile
		_, _ = fmt.Fprintf(w, `{"username": "user%d", "password": "swordfish"}`, made.Add(1))
	})
	servers := []*requests.Service{b.Service, b.another()}
	var news atomic.Int64
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			login, err := servers[i%2].Account(t.Context(), "physics", "one", "bob")
			if err != nil || login.Username != "user1" || login.Password.Reveal() != "swordfish" {
				t.Errorf("got %+v, %v", login, err)
			}
			if login.Made {
				news.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 || news.Load() != 1 || dialed.Load() != "192.0.2.1:80" {
		t.Errorf("%d accounts were made, %d answers say so, at %v", made.Load(), news.Load(), dialed.Load())
	}
	if strings.Contains(b.store.Dump()+b.logs.String(), "swordfish") || strings.Contains(b.store.Dump(), "making") {
		t.Error("the password is stored openly, or a mark is left")
	}
	b.manage(c.ID, cluster.Failed)
	if login, err := b.Account(t.Context(), "physics", "one", "bob"); err != nil || login.Username != "user1" {
		t.Errorf("of a cluster that failed since: got %+v, %v", login, err)
	}
	b.fatal(b.RemoveAccount(t.Context(), "physics", "one", "bob"))
	b.kind(b.RemoveAccount(t.Context(), "physics", "one", "bob"), croft.NotFound, "no account")
}

func TestAnAgentThatIsOfNoUse(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		text   string
	}{
		{"an error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
			"answers 502"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/x" {
				_, _ = fmt.Fprint(w, `{"username": "a", "password": "b"}`)
			}
			http.Redirect(w, r, "/x", http.StatusTemporaryRedirect)
		}, "answers 307"},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "swordfish") },
			"does not answer JSON with username and password"},
		{"no password", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"username": "a"}`) },
			"does not answer JSON with username and password"},
		{"too much", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"username": "a", "password": "b"%s}`, strings.Repeat(" ", 64<<10))
		}, "answers more than 65536 bytes"},
		{"a long password", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"username": "a", "password": "%s"}`, strings.Repeat("b", 2000))
		}, "more than 1024 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _, _ := withAgent(t, c.answer)
			_, err := b.Account(t.Context(), "physics", "one", "bob")
			b.kind(err, croft.Unavailable, c.text)
			if strings.Contains(err.Error(), "swordfish") || strings.Contains(b.store.Dump(), "making") {
				t.Errorf("%v: it quotes the answer, or a mark is left", err)
			}
		})
	}
}

// TestAnAccountThatWasJustMadeIsNotMadeAgain: between the last look and the mark of a request, another one makes the
// account and removes its own mark.
func TestAnAccountThatWasJustMadeIsNotMadeAgain(t *testing.T) {
	var made atomic.Int64
	b, _, _ := withAgent(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"username": "user%d", "password": "b"}`, made.Add(1))
	})
	account := func() error {
		login, err := b.Account(t.Context(), "physics", "one", "bob")
		if err == nil && login.Username != "user1" {
			t.Errorf("got %+v", login)
		}
		return err
	}
	b.store.Before = func(op string) error {
		if op != "AddAccount" {
			return nil
		}
		b.store.Before = nil
		return account()
	}
	b.fatal(account())
	if made.Load() != 1 {
		t.Errorf("%d accounts were made, want 1", made.Load())
	}
}

func TestAccountsNeedAReadyCluster(t *testing.T) {
	b, c, dialed := withAgent(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"username": "a", "password": "b"}`)
	})
	for _, state := range []cluster.State{cluster.Scheduling, cluster.Building, cluster.Failed, cluster.Deleting} {
		b.manage(c.ID, state)
		_, err := b.Account(t.Context(), "physics", string(c.ID), "bob")
		b.kind(err, croft.Unavailable, "it makes accounts once it is ready")
	}
	b.appliance(cluster.Appliance{Name: "plain", Public: true})
	i, err := b.stores.AddImplementation(t.Context(), cluster.Implementation{ID: cluster.NewImplementationID(),
		Appliance: "plain", Site: "east", Enabled: true})
	b.fatal(err)
	r := ask("two")
	r.Appliance = "plain"
	b.manage(b.create(r).ID, cluster.Ready, func(c *cluster.Cluster) { c.Implementation = i.ID })
	_, err = b.Account(t.Context(), "physics", "two", "bob")
	b.kind(err, croft.Invalid, "appliance plain makes no accounts")
	if dialed.Load() != nil {
		t.Errorf("%v was dialed", dialed.Load())
	}
}

func TestOnlyMachinesAreCalled(t *testing.T) {
	for _, c := range []struct {
		ip, dialed string // "": not called
	}{
		{"192.0.2.7", "192.0.2.7:80"}, {"10.1.2.3", "10.1.2.3:80"}, {"2001:db8::1", "[2001:db8::1]:80"},
		{"fd00::1", "[fd00::1]:80"}, {"::ffff:192.0.2.1", "192.0.2.1:80"},
		{"127.0.0.1", ""}, {"::1", ""}, {"::ffff:127.0.0.1", ""}, {"169.254.169.254", ""}, {"::ffff:169.254.169.254",
			""},
		{"fe80::1", ""}, {"fe80::1%eth0", ""}, {"fd00:ec2::254", ""}, {"0.0.0.0", ""}, {"::", ""}, {"224.0.0.1", ""},
		{"ff02::1", ""}, {"255.255.255.255", ""}, {"64:ff9b::7f00:1", ""}, {"192.0.2.1:8080", ""}, {"192.0.2.1/x", ""},
		{"user@192.0.2.1", ""}, {"localhost", ""}, {"", ""}, {"010.0.0.1", ""},
	} {
		t.Run(c.ip, func(t *testing.T) {
			b, one, dialed := withAgent(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprint(w, `{"username": "a", "password": "b"}`)
			})
			b.manage(one.ID, cluster.Ready, func(x *cluster.Cluster) { x.MasterIP = c.ip })
			_, err := b.Account(t.Context(), "physics", "one", "bob")
			if got, _ := dialed.Load().(string); got != c.dialed || (err == nil) != (c.dialed != "") {
				t.Errorf("dialed %q, %v, want %q", got, err, c.dialed)
			}
			if err != nil {
				b.kind(err, croft.Unavailable, "does not call the address")
			}
		})
	}
}

// Clocks of servers may differ: the age of a mark is measured from when it was first seen, not from the time in it.
func TestTheMarkOfAServerThatEndedIsRemoved(t *testing.T) {
	for name, made := range map[string]time.Duration{"a clock that is behind": -time.Hour, "the same clock": 0,
		"a clock that is ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var asked atomic.Int64
				b.dial = func(context.Context, string, string) (net.Conn, error) {
					asked.Add(1)
					here, there := net.Pipe()
					go answerOnce(there, `{"username": "a", "password": "b"}`)
					return here, nil
				}
				b.Service = b.another()
				c := b.manage(b.create(ask("one")).ID, cluster.Ready)
				b.fatal(b.stores.AddAccount(t.Context(), cluster.Account{Cluster: c.ID, User: ".making.bob",
					Created: time.Now().Add(made)}))
				begun, ended := time.Now(), make(chan time.Duration, 1)
				go func() {
					if login, err := b.Account(t.Context(), "physics", "one", "bob"); err != nil || !login.Made {
						t.Errorf("got %+v, %v", login, err)
					}
					ended <- time.Since(begun)
				}()
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if _, err := b.stores.Account(t.Context(), c.ID, ".making.bob"); err != nil || asked.Load() > 0 {
					t.Errorf("a server that may be at work is not waited for: asked %d times, %v", asked.Load(), err)
				}
				if took := <-ended; took > 40*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// answerOnce answers one request.
func answerOnce(conn net.Conn, body string) {
	defer conn.Close()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

func TestALostAnswerOfTheStoreKeepsTheAccount(t *testing.T) {
	var made atomic.Int64
	b, _, _ := withAgent(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"username": "user%d", "password": "b"}`, made.Add(1))
	})
	times := 0
	b.store.After = func(op string) error {
		if op == "AddAccount" {
			if times++; times == 2 { // the first write is the mark
				return croft.Errorf(croft.Unavailable, "the answer was lost")
			}
		}
		return nil
	}
	for range 2 {
		if login, err := b.Account(t.Context(), "physics", "one", "bob"); err != nil || login.Username != "user1" {
			t.Errorf("got %+v, %v", login, err)
		}
	}
}

// At another site, a tenant's template determines the address of the master.
func TestTheMasterOfAnotherSiteIsCalledInTheInternetAndWhereAnOperatorAllowsIt(t *testing.T) {
	for _, c := range []struct {
		ip      string
		allowed bool
		dialed  string // "": not called
	}{
		{"203.0.113.7", false, "203.0.113.7:80"}, {"10.1.2.3", false, ""}, {"10.1.2.3", true, "10.1.2.3:80"},
		{"10.9.2.3", true, ""}, {"192.168.0.1", false, ""}, {"fd00::1", false, ""}, {"127.0.0.1", true, ""},
		{"169.254.169.254", true, ""}, {"100.64.0.1", false, ""},
	} {
		b, one, dialed := withAgent(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, `{"username": "a", "password": "b"}`)
		})
		if c.allowed {
			b.outbound.Allow = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
		}
		b.Service = b.another()
		site := storedSite(t, b, one.Site)
		site.Type = cluster.OpenStack
		_, err := b.stores.PutSite(t.Context(), site)
		b.fatal(err)
		b.manage(one.ID, cluster.Ready, func(x *cluster.Cluster) { x.MasterIP = c.ip })
		_, err = b.Account(t.Context(), "physics", "one", "bob")
		if got, _ := dialed.Load().(string); got != c.dialed || (err == nil) != (c.dialed != "") {
			t.Errorf("%s: dialed %q, %v, want %q", c.ip, got, err, c.dialed)
		}
	}
}

// storedSite returns the stored record of a site.
func storedSite(t *testing.T, b *bench, name string) cluster.Site {
	t.Helper()
	all, err := b.stores.Sites(t.Context())
	b.fatal(err)
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no site %s", name)
	return cluster.Site{}
}
