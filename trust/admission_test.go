package trust

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/internal/httpapi"
	"croft/placementclient"
	"croft/trust/pki"
)

// anyone accepts every identity.
func anyone(pki.Identity) error { return nil }

func TestAHostRenewsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Admission{}
		given := 0
		for range 10_000 {
			if err := a.mayRenew("one"); err == nil {
				given++
			} else if !errors.Is(err, croft.Unavailable) {
				t.Fatal(err)
			}
		}
		if given != renewAtOnce {
			t.Errorf("a host that asks without end gets %d certificates", given)
		}
		if err := a.mayRenew("two"); err != nil {
			t.Errorf("another host: %v", err)
		}
		time.Sleep(time.Minute)
		if err := a.mayRenew("one"); err != nil {
			t.Errorf("a minute later: %v", err)
		}
	})
}

// A client that keeps its connection open and one that connects later are both served during a rotation of the
// authority: at most they reconnect.
func TestNobodyNoticesThatTheAuthorityIsReplaced(t *testing.T) {
	partition := croft.NewPartitionID()
	ca, err := pki.OpenCA(filepath.Join(t.TempDir(), "ca"), partition)
	if err != nil {
		t.Fatal(err)
	}
	keeper := func(id pki.Identity) pki.Keeper {
		return pki.Keeper{Files: pki.Files{Dir: t.TempDir(), Authority: pki.Hosts}, Issuer: ca.For(id),
			Log: slog.New(slog.DiscardHandler)}
	}
	server, operator := keeper(pki.MemberIdentity(partition, croft.NewHostID())),
		keeper(pki.OperatorIdentity(partition, "anna"))
	renew := func(all ...pki.Keeper) {
		t.Helper()
		for _, k := range all {
			if _, err := k.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew(server, operator)

	a := &Admission{Files: server.Files} // operators are not in the store
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving := httptest.NewUnstartedServer(a.Guard("token", http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		httpapi.Answer(w, http.StatusOK, map[string]any{"allocations": map[string]any{}})
	})))
	serving.Listener.Close()
	serving.Listener = tls.NewListener(l, server.Files.Server(partition, true, anyone))
	serving.Start()
	t.Cleanup(serving.Close)
	ask := func(c *placementclient.Client, when string) {
		t.Helper()
		if _, err := c.Claims(t.Context(), croft.NewHostID()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	connect := func() *placementclient.Client {
		t.Helper()
		c, err := placementclient.New(placementclient.Config{
			Endpoint: "https://" + l.Addr().String(), Auth: placementclient.StaticToken("token"),
			TLS: operator.Files.Client(partition, anyone)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}

	stays := connect()
	ask(stays, "to begin with")
	if err := ca.Rotate(pki.Hosts); err != nil {
		t.Fatal(err)
	}
	renew(operator) // before the server knows it
	early := connect()
	ask(early, "a certificate of an authority that the server does not know yet")
	renew(server)
	ask(stays, "while both authorities count")
	if err := ca.Retire(pki.Hosts); err != nil {
		t.Fatal(err)
	}
	renew(operator, server)
	ask(connect(), "another one, at once")
	a.rootsAt = time.Time{} // a moment later
	ask(early, "a connection whose certificate is of the authority that stays")
	ask(stays, "a connection whose certificate is of the authority before")
}
