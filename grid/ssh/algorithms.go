package ssh

import (
	"slices"
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
	} {
		if *c.to, err = l.algorithms(c.name, c.ours); err != nil {
			return err
		}
	}
	return nil
}
