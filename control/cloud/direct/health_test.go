package direct

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestAnAuthorityThatEndsSoonIsAProblem(t *testing.T) {
	t.Parallel()
	now := time.Now()
	authority := func(life time.Duration) []byte {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour),
			NotAfter: now.Add(life)}
		text, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})
	}
	long, soon := authority(10*365*24*time.Hour), authority(now.AddDate(0, 0, 30).Sub(now))
	over := authority(-time.Minute)
	day := now.AddDate(0, 0, 30).Local().Format(time.DateOnly)
	for name, c := range map[string]struct {
		text []byte
		says string
	}{
		"one that is valid for long":       {long, ""},
		"one that ends soon":               {soon, "counts until " + day},
		"one that has ended":               {over, "ran out on"},
		"an old one next to its successor": {append(soon, long...), ""},
		"none":                             {nil, ""},
		"something else":                   {[]byte("x"), ""},
	} {
		got := endingAuthority(c.text, now)
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) ||
			got != "" && !strings.Contains(got, "croft ca rotate") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
