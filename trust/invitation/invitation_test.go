package invitation_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/trust/invitation"
)

func newToken() invitation.JoinToken {
	return invitation.New(invitation.JoinToken{
		Endpoints: []string{"https://10.0.0.1:2379"}, CA: "-----BEGIN CERTIFICATE-----\n...\n",
		Partition: croft.NewPartitionID(),
	})
}

func TestATokenIsReadAsItWasMade(t *testing.T) {
	want := newToken()
	text := want.String()
	if strings.ContainsAny(text, " \n\t\"'$") {
		t.Errorf("a shell would not take %q for one word", text)
	}
	got, err := invitation.Parse("  " + text + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatIsNoWholeTokenIsRefused(t *testing.T) {
	whole := newToken().String()
	noSecret := newToken()
	noSecret.Secret = nil
	for name, text := range map[string]string{
		"nothing":          "",
		"another word":     "secret",
		"the first half":   whole[:len(whole)/2],
		"the last half":    whole[len(whole)/2:],
		"something inside": whole[:20] + "!" + whole[21:],
		"no secret":        noSecret.String(),
		"no pin": invitation.New(invitation.JoinToken{Servers: []string{"10.0.0.1:8777"},
			Partition: croft.NewPartitionID()}).String(),
		"an empty object": "croft1.e30",
	} {
		if _, err := invitation.Parse(text); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: got %v, want it refused", name, err)
		} else if len(text) > 20 && strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error tells the token: %v", name, err)
		}
	}
}

func TestAGrantIsReadWithItsTokenAlone(t *testing.T) {
	mine, other := newToken(), newToken()
	grant := invitation.Grant{Placement: "http://10.0.0.1:8778", Token: "some-long-word"}
	sealed := mine.Seal(grant)
	if bytes.Contains(sealed, []byte(grant.Token)) {
		t.Error("the sealed grant shows what is in it")
	}
	if got, err := mine.Open(sealed); err != nil || !cmp.Equal(got, grant) {
		t.Errorf("got %v, %v", got, err)
	}
	if mine.Name() == other.Name() || strings.Contains(mine.String(), mine.Name()) {
		t.Error("names are not the tokens' own")
	}
	elsewhere := mine
	elsewhere.Partition = croft.NewPartitionID()
	sealed2 := bytes.Clone(sealed)
	sealed2[3] ^= 1
	for name, open := range map[string]func() (invitation.Grant, error){
		"another token":      func() (invitation.Grant, error) { return other.Open(sealed) },
		"another partition":  func() (invitation.Grant, error) { return elsewhere.Open(sealed) },
		"a bit that flipped": func() (invitation.Grant, error) { return mine.Open(sealed2) },
		"nothing":            func() (invitation.Grant, error) { return mine.Open(nil) },
	} {
		if got, err := open(); croft.KindOf(err) != croft.Invalid || !cmp.Equal(got, invitation.Grant{}) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestWhoHasTheTokenCanProveIt(t *testing.T) {
	mine, other := newToken(), newToken()
	message := []byte("a request for a certificate")
	signature := mine.Sign(message)
	for _, c := range []struct {
		name      string
		verifier  []byte
		p         croft.PartitionID
		message   string
		signature []byte
		want      bool
	}{
		{"what was signed", mine.Verifier(), mine.Partition, string(message), signature, true},
		{"another message", mine.Verifier(), mine.Partition, "another", signature, false},
		{"another token's", mine.Verifier(), mine.Partition, string(message), other.Sign(message), false},
		{"another partition", mine.Verifier(), other.Partition, string(message), signature, false},
		{"no signature", mine.Verifier(), mine.Partition, string(message), nil, false},
		{"an invitation that nothing proves", nil, mine.Partition, string(message), signature, false},
	} {
		if got := invitation.Verify(c.verifier, c.p, []byte(c.message), c.signature); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for name, told := range map[string][]byte{"the verifier": mine.Verifier(), "the signature": signature} {
		if bytes.Contains(told, mine.Secret) {
			t.Errorf("%s tells the secret", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(newToken().String())
	f.Add("croft1.e30")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := invitation.Parse(text)
		if err != nil {
			return
		}
		again, err := invitation.Parse(got.String())
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("%q is read as %v and then as %v, %v", text, got, again, err)
		}
	})
}
