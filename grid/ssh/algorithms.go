package ssh

import (
	"crypto/rsa"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// algorithms chooses from ours, in the order of preference, as a setting says: a list of names and patterns, or with +,
// - or ^ at its beginning what is added to the usual ones, taken away, or put first. What we do not have cannot be
// added, which only makes the choice smaller. An empty setting changes nothing.
func (l *lookup) algorithms(name string, ours []string) ([]string, error) {
	all := l.found[name]
	if all == nil {
		return ours, nil
	}
	list := l.first(name)
	patterns := strings.Split(strings.TrimLeft(list, "+-^"), ",")
	named := func(a string) bool { return matchWords(patterns, a) }
	var chosen []string
	switch {
	case strings.HasPrefix(list, "+"):
		chosen = ours
	case strings.HasPrefix(list, "-"):
		chosen = slices.DeleteFunc(slices.Clone(ours), named)
	default:
		for _, p := range patterns {
			for _, a := range ours {
				if matchPattern(p, a) && !slices.Contains(chosen, a) {
					chosen = append(chosen, a)
				}
			}
		}
		if strings.HasPrefix(list, "^") {
			for _, a := range ours {
				if !slices.Contains(chosen, a) {
					chosen = append(chosen, a)
				}
			}
		}
	}
	if len(chosen) == 0 {
		return nil, all[0].errorf("%s %s leaves none of those that croft has: %s", all[0].name, list,
			strings.Join(ours, ", "))
	}
	return chosen, nil
}

// crypto sets the algorithms of a connection.
func (t *target) crypto(l *lookup) (err error) {
	have := ssh.SupportedAlgorithms()
	for _, c := range []struct {
		name string
		ours []string
		to   *[]string
	}{
		{"ciphers", have.Ciphers, &t.ciphers},
		{"macs", have.MACs, &t.macs},
		{"kexalgorithms", have.KeyExchanges, &t.exchanges},
		{"hostkeyalgorithms", slices.Concat(certificateAlgorithms, keyAlgorithms), &t.hostKeys},
		{l.called("pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes"), userAlgorithms, &t.userKeys},
		{"casignaturealgorithms", keyAlgorithms, &t.authorities},
	} {
		if *c.to, err = l.algorithms(c.name, c.ours); err != nil {
			return err
		}
	}
	t.rsaLeast = 1024 // as in OpenSSH
	if all := l.found["requiredrsasize"]; all != nil {
		if t.rsaLeast, err = strconv.Atoi(l.first("requiredrsasize")); err != nil || t.rsaLeast < 0 {
			return all[0].errorf("RequiredRSASize %s: give a number of bits", l.first("requiredrsasize"))
		}
	}
	return nil
}

// userAlgorithms are the algorithms by which users log in, with the keys of tokens, which an agent signs with.
var userAlgorithms = slices.Concat(certificateAlgorithms, keyAlgorithms, []string{
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256, ssh.CertAlgoSKED25519v01, ssh.CertAlgoSKECDSA256v01})

// called returns the name of two by which a keyword is in the configuration.
func (l *lookup) called(name, former string) string {
	if l.found[name] == nil && l.found[former] != nil {
		return former
	}
	return name
}

// accept returns a signer of the user's that signs by the algorithms which PubkeyAcceptedAlgorithms leaves. An error:
// it leaves none, or RequiredRSASize is greater than the key.
func (t *target) accept(s ssh.Signer) (ssh.Signer, error) {
	key, algorithms := s.PublicKey(), []string{s.PublicKey().Type()}
	if with, ok := s.(ssh.MultiAlgorithmSigner); ok {
		algorithms = with.Algorithms()
	}
	cert, certified := key.(*ssh.Certificate)
	if certified {
		key = cert.Key
	}
	if err := t.longEnough(key); err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(slices.Clone(algorithms), func(a string) bool {
		if named := certAlgorithm[a]; certified && named != "" {
			a = named
		}
		return !slices.Contains(t.userKeys, a)
	})
	if len(left) == 0 {
		return nil, fmt.Errorf("PubkeyAcceptedAlgorithms leaves out %s", strings.Join(algorithms, " and "))
	}
	if with, ok := s.(ssh.AlgorithmSigner); ok && len(left) < len(algorithms) {
		return ssh.NewSignerWithAlgorithms(with, left)
	}
	return s, nil
}

// certAlgorithm names the algorithms of RSA certificates by those of their keys; those of other types have one name.
var certAlgorithm = map[string]string{
	ssh.KeyAlgoRSASHA512: ssh.CertAlgoRSASHA512v01, ssh.KeyAlgoRSASHA256: ssh.CertAlgoRSASHA256v01,
}

// longEnough is the error of an RSA key that is shorter than RequiredRSASize.
func (t *target) longEnough(key ssh.PublicKey) error {
	public, ok := key.(ssh.CryptoPublicKey)
	if !ok {
		return nil
	}
	if r, is := public.CryptoPublicKey().(*rsa.PublicKey); is && r.N.BitLen() < t.rsaLeast {
		return fmt.Errorf("an RSA key of %d bits is shorter than RequiredRSASize, %d", r.N.BitLen(), t.rsaLeast)
	}
	return nil
}
