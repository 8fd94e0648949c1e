package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"croft"
	"croft/trust/pki"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of random rotations")

// TestWhoeverRenewsInWhateverOrderIsNeverLeftOut rotates authorities at random, while hosts look for changes at random
// times. An authority is retired as documented: once no host has a certificate of it. All hosts trust each other
// throughout.
func TestWhoeverRenewsInWhateverOrderIsNeverLeftOut(t *testing.T) {
	t.Logf("-seed %d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	ca := newCA(t, partition)
	hosts := []pki.Keeper{keeper(t, ca, pki.Hosts, pki.MemberIdentity(partition, host))}
	for range 3 {
		hosts = append(hosts, keeper(t, ca, pki.Hosts, pki.HostIdentity(partition, croft.NewHostID())))
	}
	for _, k := range hosts {
		ensure(t, k)
	}
	rotations, retired := 0, 0
	for step := range 60 {
		var did string
		switch action := random.IntN(4); {
		case action == 0 && ca.Rotate(pki.Hosts) == nil:
			did, rotations = "rotate", rotations+1
		case action == 1 && allOfTheNewOne(t, ca, hosts) && ca.Retire(pki.Hosts) == nil:
			did, retired = "retire", retired+1
		default:
			did = "renew"
			ensure(t, hosts[random.IntN(len(hosts))])
		}
		from, to := hosts[random.IntN(len(hosts))].Files, hosts[random.IntN(len(hosts))].Files
		_, atServer, atClient := meet(to.Server(partition, false, anybody), from.Client(partition, anybody))
		if atServer != nil || atClient != nil {
			t.Fatalf("step %d, after %s: the server says %v, the client %v", step, did, atServer, atClient)
		}
	}
	if rotations == 0 {
		t.Error("nothing was followed by another")
	}
	t.Logf("%d rotations, %d retired", rotations, retired)
}

// allOfTheNewOne reports whether all hosts have certificates of the signing authority.
func allOfTheNewOne(t *testing.T, ca *pki.CA, hosts []pki.Keeper) bool {
	t.Helper()
	current, _, err := ca.Certificates(pki.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range hosts {
		if !bytes.Equal(leaf(t, k.Files).AuthorityKeyId, current.SubjectKeyId) {
			return false
		}
	}
	return true
}

// A connection whose certificate's authority was retired is no longer served.
func TestAChainCountsForAsLongAsItsAuthority(t *testing.T) {
	ca := newCA(t, partition)
	k := keeper(t, ca, pki.Hosts, pki.HostIdentity(partition, croft.NewHostID()))
	ensure(t, k)
	pair, err := k.Files.Load()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots, err := k.Files.Roots()
	if err != nil {
		t.Fatal(err)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: roots,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{TLS: &tls.ConnectionState{VerifiedChains: chains}}
	counts := func() bool {
		trusted, err := k.Files.Authorities()
		if err != nil {
			t.Fatal(err)
		}
		return pki.StillTrusted(r, trusted) == nil
	}
	if !counts() {
		t.Error("it does not count at first")
	}
	if err := ca.Rotate(pki.Hosts); err != nil {
		t.Fatal(err)
	}
	ensure(t, k)
	if !counts() {
		t.Error("it does not count while both authorities do")
	}
	if err := ca.Retire(pki.Hosts); err != nil {
		t.Fatal(err)
	}
	ensure(t, k)
	if counts() {
		t.Error("it counts still, and its authority was retired")
	}
}
