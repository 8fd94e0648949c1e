package pki_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/trust/pki"
)

// running runs a keeper until the end of the test.
func running(t *testing.T, k pki.Keeper) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	work.Go(func() {
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); work.Wait() })
	synctest.Wait()
}

// day is a life short enough for a check every few minutes.
const day = 24 * time.Hour

func TestACertificateIsRenewedAtTwoThirds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, partition)
		ca.Life = day
		k := keeper(t, ca, pki.Hosts, pki.MemberIdentity(partition, host), "10.0.0.1", "control")
		began := time.Now()
		running(t, k)
		first := leaf(t, k.Files)
		if got := first.NotAfter.Sub(began); got != day {
			t.Errorf("it counts for %s, want %s", got, day)
		}
		if err := errors.Join(first.VerifyHostname("10.0.0.1"), first.VerifyHostname("control")); err != nil {
			t.Error(err)
		}
		server := k.Files.Server(partition, true, anybody) // made once, and used throughout
		client := pki.Client(trust(t, ca), partition, anybody)
		time.Sleep(day*2/3 - 20*time.Minute)
		if got := shown(t, server, client); !got.Equal(first) {
			t.Error("it was renewed too early")
		}
		time.Sleep(30 * time.Minute)
		second := shown(t, server, client)
		if second.Equal(first) || time.Until(second.NotAfter) < day-time.Hour {
			t.Errorf("after two thirds of its life it was not renewed: it counts until %s", second.NotAfter)
		}
		for range 20 {
			time.Sleep(day)
			if got := shown(t, server, client); time.Until(got.NotAfter) < day/3-time.Hour {
				t.Fatalf("%s is left of a certificate", time.Until(got.NotAfter))
			}
		}
	})
}

// shown returns the certificate that a server shows.
func shown(t *testing.T, server, client *tls.Config) *x509.Certificate {
	t.Helper()
	synctest.Wait()
	client = client.Clone()
	verify := client.VerifyConnection
	var got *x509.Certificate
	client.VerifyConnection = func(state tls.ConnectionState) error {
		got = state.PeerCertificates[0]
		return verify(state)
	}
	if _, _, err := meet(server, client); err != nil {
		t.Fatal(err)
	}
	return got
}

// flaky is an issuer that can be made unavailable.
type flaky struct {
	pki.Issuer
	mu    sync.Mutex
	away  bool
	asked int
}

// set makes it available or not, and returns how often it was asked since the last call.
func (f *flaky) set(away bool) (asked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, f.asked, f.away = f.asked, 0, away
	return asked
}

func (f *flaky) Trusted(ctx context.Context, a pki.Authority) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.away {
		return nil, croft.Errorf(croft.Unavailable, "nobody answers")
	}
	return f.Issuer.Trusted(ctx, a)
}

func TestAnIssuerThatIsAwayIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, partition)
		ca.Life = day
		k := keeper(t, ca, pki.Hosts, pki.HostIdentity(partition, host))
		f := &flaky{Issuer: k.Issuer}
		var said bytes.Buffer
		k.Issuer, k.Log = f, slog.New(slog.NewTextHandler(&said, nil))
		running(t, k)
		first := leaf(t, k.Files)
		f.set(true)
		time.Sleep(day * 5 / 6)
		if n, most := f.set(false), int(day/(9*time.Minute)); n > most {
			t.Errorf("it asked %d times, want at most %d", n, most)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if leaf(t, k.Files).Equal(first) {
			t.Error("it was not renewed when the issuer came back")
		}
		if got := strings.Count(said.String(), "nobody answers"); got != 1 {
			t.Errorf("the failure was logged %d times:\n%s", got, said.String())
		}
		if got := strings.Count(said.String(), "certificate made"); got != 2 {
			t.Errorf("%d certificates were logged, want 2:\n%s", got, said.String())
		}
	})
}

func TestWhyACertificateIsMadeAnew(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, ca *pki.CA, k *pki.Keeper)
		anew   bool
	}{
		{"nothing happened", func(*testing.T, *pki.CA, *pki.Keeper) {}, false},
		{"it is gone", func(t *testing.T, _ *pki.CA, k *pki.Keeper) {
			if err := k.Files.Forget(); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"it is half written", func(t *testing.T, _ *pki.CA, k *pki.Keeper) {
			write(t, k.Files.Pair(), read(t, k.Files.Pair())[:100], 0o600)
		}, true},
		{"the authority was followed by another", func(t *testing.T, ca *pki.CA, _ *pki.Keeper) {
			if err := ca.Rotate(pki.Hosts); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"the other authority was", func(t *testing.T, ca *pki.CA, _ *pki.Keeper) {
			if err := ca.Rotate(pki.Etcd); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"it serves at another address", func(_ *testing.T, ca *pki.CA, k *pki.Keeper) {
			k.Issuer = ca.For(pki.MemberIdentity(partition, host), "10.0.0.2")
		}, true},
		{"it serves at fewer", func(_ *testing.T, ca *pki.CA, k *pki.Keeper) {
			k.Issuer = ca.For(pki.MemberIdentity(partition, host))
		}, false},
		{"it is another host", func(_ *testing.T, ca *pki.CA, k *pki.Keeper) {
			k.Issuer = ca.For(pki.MemberIdentity(partition, croft.NewHostID()))
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ca := newCA(t, partition)
			k := keeper(t, ca, pki.Hosts, pki.MemberIdentity(partition, host), "10.0.0.1")
			before := ensure(t, k)
			c.change(t, ca, &k)
			if after := ensure(t, k); after.Equal(before) == c.anew {
				t.Errorf("made anew: %v, want %v", !after.Equal(before), c.anew)
			}
		})
	}
}

// TestAClockThatIsWrong: the clock of a synctest bubble is decades behind the authority, like on a machine with an
// empty battery; certificates become valid once it is set.
func TestAClockThatIsWrong(t *testing.T) {
	ca := newCA(t, partition)
	k := keeper(t, ca, pki.Hosts, pki.HostIdentity(partition, host))
	before := ensure(t, k)
	synctest.Test(t, func(t *testing.T) {
		if _, err := k.Ensure(t.Context()); croft.KindOf(err) != croft.Unavailable ||
			!strings.Contains(err.Error(), "set the clock") {
			t.Errorf("long before the authority was made: %v", err)
		}
		time.Sleep(time.Until(before.NotBefore) - time.Minute)
		if !leaf(t, k.Files).Equal(before) {
			t.Error("the certificate was replaced by one that is over when the clock is set")
		}
		time.Sleep(time.Hour)
		if after := ensure(t, k); !after.Equal(before) {
			t.Error("it was made anew although it is good")
		}
		time.Sleep(20 * pki.Life) // the machine was asleep
		if after := ensure(t, k); time.Until(after.NotAfter) != pki.Life {
			t.Errorf("it counts for %s", time.Until(after.NotAfter))
		}
		time.Sleep(10 * 365 * 24 * time.Hour)
		if _, err := k.Ensure(t.Context()); croft.KindOf(err) != croft.Unavailable ||
			!strings.Contains(err.Error(), "croft ca rotate") {
			t.Errorf("after the authority's end: %v", err)
		}
		if err := ca.Rotate(pki.Hosts); err != nil {
			t.Fatal(err)
		}
		ensure(t, k)
	})
}
