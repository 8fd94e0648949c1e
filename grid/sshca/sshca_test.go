package sshca_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"croft"
	gridssh "croft/grid/ssh"
	"croft/grid/sshca"
	"croft/internal/testing/patient"
)

var _ gridssh.Credential = (*sshca.Credential)(nil)

// TestMain also acts as the Request program of a credential, if the environment names an authority.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SSHCA_DIR"); dir != "" {
		a := &sshca.CA{Dir: dir, Keys: os.Getenv("SSHCA_KEYS")}
		c, err := a.Serve(context.Background(), "eva", os.Args[1], os.Stdin)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(sshca.Text(c))
		os.Exit(0)
	}
	patient.SideBySide(4)
	goleak.VerifyTestMain(m)
}

const roles = `roles:
  ops:
    users: [eva, tom]
    principals: [ops, "${user}"]
    max_ttl: 8h
    extensions: [permit-pty]
    source_address: [10.0.0.0/8, "::1"]
    force_command: /usr/bin/uptime
  dev: {users: [eva], principals: [dev], ttl: 30m}
`

// authority makes an authority with these roles.
func authority(t *testing.T, roles string) *sshca.CA {
	t.Helper()
	dir := t.TempDir()
	a := &sshca.CA{Dir: filepath.Join(dir, "repository", "ca"), Keys: filepath.Join(dir, "keys")}
	if _, err := a.Init(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(a.Dir, "roles.yaml"), roles)
	return a
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newKey(t *testing.T) ssh.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestACertificateHasWhatItsRoleAllows(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	before := time.Now()
	c, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "eva", Role: "ops"})
	if err != nil {
		t.Fatal(err)
	}
	if c.KeyId != fmt.Sprintf("eva@ops#%d", c.Serial) || !slices.Equal(c.ValidPrincipals, []string{"ops", "eva"}) ||
		len(c.Extensions) != 1 || c.CriticalOptions["source-address"] != "10.0.0.0/8,::1" ||
		c.CriticalOptions["force-command"] != "/usr/bin/uptime" || len(c.CriticalOptions) != 2 ||
		c.CertType != ssh.UserCert {
		t.Errorf("got %+v", c)
	}
	if _, is := c.Extensions["permit-pty"]; !is {
		t.Errorf("extensions %v", c.Extensions)
	}
	from, to := time.Unix(int64(c.ValidAfter), 0), time.Unix(int64(c.ValidBefore), 0)
	if to.Sub(from) != time.Hour+time.Minute || before.Sub(from) > time.Minute+2*time.Second || !from.Before(before) {
		t.Errorf("valid from %s to %s, signed at %s", from, to, before)
	}
	all, err := a.Issued()
	if err != nil || len(all) != 1 || all[0].ID != c.KeyId || all[0].Serial != c.Serial || all[0].Kind != sshca.User {
		t.Errorf("the log has %+v, %v", all, err)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	for name, c := range map[string]struct {
		user, role string
		ttl        time.Duration
		want       croft.Kind // empty: signed
	}{
		"a role that is allowed":         {"eva", "ops", 0, ""},
		"the longest time":               {"eva", "ops", 8 * time.Hour, ""},
		"too long":                       {"eva", "ops", 8*time.Hour + time.Second, croft.Denied},
		"longer than a role without max": {"eva", "dev", 61 * time.Minute, croft.Denied},
		"less than nothing":              {"eva", "ops", -time.Hour, croft.Invalid},
		"less than a second":             {"eva", "ops", time.Millisecond, croft.Invalid},
		"another's role":                 {"tom", "dev", 0, croft.Denied},
		"no such role":                   {"eva", "root", 0, croft.Denied},
		"the only role":                  {"tom", "", 0, ""},
		"one of several":                 {"eva", "", 0, croft.Invalid},
		"a user without a role":          {"mallory", "", 0, croft.Denied},
		"a user who is none":             {"eva ops", "ops", 0, croft.Invalid},
		"no user":                        {"", "ops", 0, croft.Invalid},
	} {
		_, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: c.user, Role: c.role, TTL: c.ttl})
		if croft.KindOf(err) != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if all, err := a.Issued(); err != nil || len(all) != 3 {
		t.Errorf("%d are in the log, want those three that were signed, %v", len(all), err)
	}
}

func TestRolesThatAreWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"roles:\n  a: {users: [x]}":                                      "that would mean any user",
		"roles:\n  a: {principals: []}":                                  "no principals",
		"roles:\n  a: {principals: ['a,b']}":                             `"a,b" is not a principal`,
		"roles:\n  a: {principals: ['']}":                                `"" is not a principal`,
		"roles:\n  'a b': {principals: [x]}":                             `"a b" is not a name`,
		"roles:\n  a: {principals: [x], users: ['x y']}":                 `"x y" is not a user's name`,
		"roles:\n  a: {principals: [x], extensions: [permit-ptty]}":      `no extension "permit-ptty"; did you mean "permit-pty"?`,
		"roles:\n  a: {principals: [x], source_address: [10.0.0.1/8]}":   "give an address, or a prefix such as 10.0.0.0/8",
		"roles:\n  a: {principals: [x], source_address: ['10.0.0.1,*']}": "give an address",
		"roles:\n  a: {principals: [x], ttl: 17h}":                       "at most 16h",
		"roles:\n  a: {principals: [x], max_ttl: 17h}":                   "at most 16h",
		"roles:\n  a: {principals: [x], ttl: -1h}":                       "give a positive time",
		"roles:\n  a: {principals: [x], ttl: 2h, max_ttl: 1h}":           "ttl 2h is longer than max_ttl 1h",
		"roles:\n  a:\n    principle: [x]":                               "roles.yaml:3: ",
		"roles:\n  a: {principals: [x]}\n  a: {principals: [y]}":         "roles.yaml:3: ",
		"roles:\n\ta: x":          "roles.yaml:2: ",
		"<<<<<<< HEAD\nroles: {}": "roles.yaml:",
		"roles:\n  a: {principals: [x], force_command: \"a\\nb\"}":         "force_command: give one line",
		"roles: {}\n---\nroles: {}":                                        "more than one document",
		"roles:\n  a: {principals: [x], source_address: ['2001:db8::/3']}": "give an address",
	} {
		a := authority(t, text)
		_, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "x", Role: "a"})
		if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), filepath.Join(a.Dir, "roles.yaml")) {
			t.Errorf("%s:\n%v, want %q", text, err, want)
		}
	}
	a := authority(t, roles)
	if err := os.Remove(filepath.Join(a.Dir, "roles.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Roles(); !errors.Is(err, croft.Invalid) {
		t.Errorf("no file: %v", err)
	}
}

func TestKeysThatAreNotSigned(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	cert, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"})
	if err != nil {
		t.Fatal(err)
	}
	private, err := os.ReadFile(filepath.Join(a.Keys, "user_ca"))
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	shortKey, err := ssh.NewPublicKey(&short.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	least, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	leastKey, err := ssh.NewPublicKey(&least.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sshca.ParseKey(ssh.MarshalAuthorizedKey(leastKey)); err != nil {
		t.Errorf("an RSA key of the least size: %v", err)
	}
	good := string(ssh.MarshalAuthorizedKey(newKey(t)))
	for name, c := range map[string]struct{ text, want string }{
		"a certificate":     {sshca.Text(cert), `this is the certificate "tom@ops#`},
		"a private key":     {string(private), "this is a private key"},
		"nothing":           {"", "not a public key"},
		"words":             {"hello world\n", "not a public key"},
		"two keys":          {good + good, "more than one line"},
		"options":           {`command="x" ` + good, "there are options before the key"},
		"a short RSA key":   {string(ssh.MarshalAuthorizedKey(shortKey)), "an RSA key of 1024 bits is too short"},
		"a DSA key":         {dsa, "DSA keys are broken"},
		"a very long text":  {strings.Repeat("x", 20000), "less than"},
		"a key cut in half": {good[:40], "not a public key"},
	} {
		_, err := sshca.ParseKey([]byte(c.text))
		if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := sshca.ParseKey([]byte("\n" + good)); err != nil {
		t.Error(err)
	}
}

// A DSA key that ssh-keygen made.
const dsa = "ssh-dss AAAAB3NzaC1kc3MAAACBAKUyMyXx3nFVQIS/uY1VhY00C3IEjjFqfu3imNeeyDZMNWUuiA1xZbH2ENcA67" +
	"0pzWQsYFs/brKY5wrsxx1rZWmzRJitxnNxyD2KKMow14b+SNjHDvDq0nM1wX1qn3qMd3uxkteqby9GIK90Broijc0n" +
	"div9seQi8rpsRjkd7TkRAAAAFQCWTJPtcvIA8v3XsQO3WHC/6Ed/MQAAAH9zsKDvEfnrAKYrrVu59rkLdzxl9PLGOh" +
	"NuJoMQ9I+PP40P+ZBq7FlMX0n9rsLyABH4iE9hEPx/eZHOCGsHb+0QH1s1Mb3Oyqd/7nr3RxDE1+aCRhujIwsaM49x" +
	"GoAe72CS1PzLA6vlvmopr6K5neXM8wHEY2uSb9jzzkvJ+KulAAAAgE5DY+hSMLalgeDoH0874NboQ/S6iwEqL54z08" +
	"1agB5ZKh6csA/dpTIAS8ukIUwoMW9PlMy4pRXejBV/COBsDkAS/xGRYTo6+WmBjdgOyefBoQs4jHsoV5WlQCHMfjLb" +
	"WqdhTPMWAu2bq+GZXdfJunKdgU/240KMR/noOiYBX6Bf x\n"

func TestAuthoritiesThatAreNotUsed(t *testing.T) {
	t.Parallel()
	sign := func(a *sshca.CA) error {
		_, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"})
		return err
	}
	for name, c := range map[string]struct {
		change func(a *sshca.CA)
		want   croft.Kind
		words  string
	}{
		"others may read the key": {func(a *sshca.CA) {
			if err := os.Chmod(filepath.Join(a.Keys, "user_ca"), 0o640); err != nil {
				t.Fatal(err)
			}
		}, croft.Denied, "others may read the authority's key (mode 0640)"},
		"another private key": {func(a *sshca.CA) {
			if err := os.Rename(filepath.Join(a.Keys, "host_ca"), filepath.Join(a.Keys, "user_ca")); err != nil {
				t.Fatal(err)
			}
		}, croft.Conflict, "is not the private key of"},
		"no private key": {func(a *sshca.CA) {
			if err := os.Remove(filepath.Join(a.Keys, "user_ca")); err != nil {
				t.Fatal(err)
			}
		}, croft.NotFound, "name the directory of the private keys"},
		"an RSA authority, which could sign with SHA-1": {func(a *sshca.CA) {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				t.Fatal(err)
			}
			public, err := ssh.NewPublicKey(&key.PublicKey)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(a.Dir, "user.pub"), string(ssh.MarshalAuthorizedKey(public)))
		}, croft.Invalid, "an authority signs with ed25519 or ECDSA"},
		"no public key": {func(a *sshca.CA) {
			if err := os.Remove(filepath.Join(a.Dir, "user.pub")); err != nil {
				t.Fatal(err)
			}
		}, croft.NotFound, "make an authority with croft sshca init"},
		"an agent that is away": {func(a *sshca.CA) { a.Agent = "/no/such/agent" }, croft.Unavailable, "agent"},
	} {
		a := authority(t, roles)
		c.change(a)
		if err := sign(a); croft.KindOf(err) != c.want || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
		if all, err := a.Issued(); err != nil || len(all) > 0 {
			t.Errorf("%s: the log has %v, %v", name, all, err)
		}
	}
}

func TestInit(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	before, err := os.ReadFile(filepath.Join(a.Keys, "user_ca"))
	if err != nil {
		t.Fatal(err)
	}
	if made, err := a.Init(t.Context(), nil); err != nil || len(made) > 0 {
		t.Errorf("a second time made %q, %v", made, err)
	}
	if after, err := os.ReadFile(filepath.Join(a.Keys, "user_ca")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the key has changed, %v", err)
	}
	for name, keys := range map[string]string{
		"the repository": filepath.Dir(a.Dir), "a directory of it": filepath.Join(a.Dir, "private"),
		"not there yet": filepath.Join(filepath.Dir(a.Dir), "x", "y"),
	} {
		inside := &sshca.CA{Dir: a.Dir, Keys: keys}
		if _, err := inside.Init(t.Context(), nil); !errors.Is(err, croft.Invalid) {
			t.Errorf("private keys in %s: %v", name, err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(a.Dir), link); err != nil {
		t.Fatal(err)
	}
	if _, err := (&sshca.CA{Dir: a.Dir, Keys: filepath.Join(link, "k")}).Init(t.Context(), nil); !errors.Is(err,
		croft.Invalid) {
		t.Errorf("private keys in the repository by a symlink: %v", err)
	}
	if err := os.Remove(filepath.Join(a.Dir, "host.pub")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Init(t.Context(), nil); !errors.Is(err, croft.Conflict) {
		t.Errorf("a private key without its public one: %v", err)
	}
}

func TestSerialNumbersNeverRepeat(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	var mu sync.Mutex
	seen := map[uint64]bool{}
	sign := func() {
		c, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"})
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[c.Serial] {
			t.Errorf("serial %d twice", c.Serial)
		}
		seen[c.Serial] = true
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(sign)
	}
	all.Wait()
	log, serial := filepath.Join(a.Keys, "issued.log"), filepath.Join(a.Keys, "serial")
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(){
		"the log is gone":          func() { _ = os.Remove(log) },
		"the serial file is gone":  func() { _ = os.Remove(serial) },
		"a line is cut off":        func() { write(t, log, string(text[:len(text)-30])) },
		"and the next one signed":  func() {},
		"an old copy was restored": func() { write(t, serial, "3\n"); _ = os.Remove(log) },
		"the log is an old one":    func() { write(t, log, string(text)) },
	} {
		change()
		before := len(seen)
		sign()
		if len(seen) != before+1 {
			t.Errorf("%s: no new serial", name)
		}
	}
	synctest.Test(t, func(*testing.T) { sign() }) // a clock that is decades slow
	write(t, log, string(text)+"garbage\n")
	if _, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"}); !errors.Is(err, croft.Invalid) ||
		!strings.Contains(err.Error(), fmt.Sprintf("issued.log:%d: ", strings.Count(string(text), "\n")+1)) {
		t.Errorf("a log that cannot be read: %v", err)
	}
	write(t, log, string(text))
	write(t, serial, "x")
	if _, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"}); !errors.Is(err, croft.Invalid) {
		t.Errorf("a serial file that cannot be read: %v", err)
	}
}

// 200,000 entries are indexed once; afterwards, signing reads only the lines after the index.
func TestALongLogIsReadOnce(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	log, index := filepath.Join(a.Keys, "issued.log"), filepath.Join(a.Keys, "issued.index")
	sign := func() *ssh.Certificate {
		t.Helper()
		c, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	sign()
	first, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	high := uint64(time.Now().Add(1000 * time.Hour).UnixMilli()) // the serial number of a line in the middle
	raised := regexp.MustCompile(`"serial":\d+`).ReplaceAll(first, fmt.Appendf(nil, `"serial":%d`, high))
	text := slices.Concat(bytes.Repeat(first, 1000), raised, bytes.Repeat(first, 1000))
	write(t, log, string(text))
	if c := sign(); c.Serial != high+1 {
		t.Errorf("got the serial number %d after %d", c.Serial, high)
	}
	// Lines that the index covers are not read again: a damaged line there goes unnoticed, one after it does not.
	damaged := slices.Concat([]byte("x"), text[1:])
	write(t, log, string(damaged))
	serial := filepath.Join(a.Keys, "serial")
	if err := os.Remove(serial); err != nil {
		t.Fatal(err)
	}
	if c := sign(); c.Serial != high+1 {
		t.Errorf("got the serial number %d from the index, which has %d", c.Serial, high)
	}
	write(t, log, string(damaged)+"garbage\n")
	if _, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"}); !errors.Is(err, croft.Invalid) ||
		!strings.Contains(err.Error(), "issued.log:2002: ") {
		t.Errorf("a damaged line after the index: %v", err)
	}
	// An index that was moved forward twice counts the lines before both.
	write(t, log, string(text))
	sign()
	write(t, log, string(text)+string(bytes.Repeat(first, 300)))
	sign()
	write(t, log, string(text)+string(bytes.Repeat(first, 300))+"garbage\n")
	if _, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"}); !errors.Is(err, croft.Invalid) ||
		!strings.Contains(err.Error(), "issued.log:2302: ") {
		t.Errorf("a damaged line after an index that was moved twice: %v", err)
	}
	write(t, log, string(text))
	if err := os.Remove(index); err != nil {
		t.Fatal(err)
	}
	sign()
	write(t, log, string(damaged))
	// An index of another log of the same length is ignored.
	other := bytes.ReplaceAll(damaged, []byte("tom"), []byte("eva"))
	write(t, log, string(other))
	if _, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"}); !errors.Is(err, croft.Invalid) {
		t.Errorf("a damaged line of another log: %v", err)
	}
	// A log that is shorter than its index, or whose index cannot be read, is read as a whole.
	for name, change := range map[string]func(){
		"a shorter log":             func() { write(t, log, string(text[:len(text)/2])) },
		"a torn index":              func() { write(t, index, `{"size":`) },
		"an index of negative size": func() { write(t, index, `{"size":-1,"lines":1}`) },
	} {
		write(t, log, string(text))
		change()
		if c := sign(); c.Serial <= high {
			t.Errorf("%s: got the serial number %d after %d", name, c.Serial, high)
		}
	}
}

// A serial number is greater than all earlier ones, even if the serial file is lost and the clock was set back.
func TestSerialNumbersGrow(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	serial := filepath.Join(a.Keys, "serial")
	var last uint64
	sign := func(t *testing.T, name string) {
		c, err := a.SignUser(t.Context(), sshca.Request{Key: newKey(t), User: "tom"})
		if err != nil {
			t.Fatal(err)
		}
		if c.Serial <= last {
			t.Errorf("%s: %d after %d", name, c.Serial, last)
		}
		last = c.Serial
	}
	sign(t, "the first")
	synctest.Test(t, func(t *testing.T) {
		sign(t, "a clock that was set back")
		if err := os.Remove(serial); err != nil {
			t.Fatal(err)
		}
		sign(t, "the log alone knows it")
		for range 3 {
			sign(t, "several in one millisecond")
		}
	})
	// The file is replaced, never written in place, so a crash leaves either the old or the new number.
	old := serial + ".old"
	if err := os.Link(serial, old); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprintf("%d\n", last)
	sign(t, "a file that is replaced")
	if text, err := os.ReadFile(old); err != nil || string(text) != before {
		t.Errorf("the old file has %q, want %q: %v", text, before, err)
	}
}

// Several runs of init at once make one authority, whose private and public keys belong together.
func TestInitAtOnceMakesOneAuthority(t *testing.T) {
	t.Parallel()
	for range 10 {
		dir := t.TempDir()
		a := &sshca.CA{Dir: filepath.Join(dir, "repository", "ca"), Keys: filepath.Join(dir, "keys")}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := a.Init(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, k := range sshca.Kinds {
			private, err := os.ReadFile(filepath.Join(a.Keys, string(k)+"_ca"))
			if err != nil {
				t.Fatal(err)
			}
			signer, err := ssh.ParsePrivateKey(private)
			if err != nil {
				t.Fatal(err)
			}
			if public, err := a.Public(k); err != nil || !bytes.Equal(public.Marshal(), signer.PublicKey().Marshal()) {
				t.Errorf("the %s keys do not belong together: %v", k, err)
			}
		}
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	a := authority(t, roles)
	c, err := a.SignHost(t.Context(), newKey(t), "web1",
		[]string{"10.0.0.1", "2001:db8::1", "web1.example.org", "web1"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.CertType != ssh.HostCert || !slices.Equal(c.ValidPrincipals, []string{"web1", "10.0.0.1", "2001:db8::1",
		"web1.example.org"}) || c.KeyId != fmt.Sprintf("web1#%d", c.Serial) || len(c.Extensions) > 0 {
		t.Errorf("got %+v", c)
	}
	for name, f := range map[string]func() error{
		"a node without a name": func() error { _, err := a.SignHost(t.Context(), newKey(t), "", nil, 0); return err },
		"a name with a comma": func() error {
			_, err := a.SignHost(t.Context(), newKey(t), "web1", []string{"a,b"}, 0)
			return err
		},
		"a negative time": func() error { _, err := a.SignHost(t.Context(), newKey(t), "web1", nil, -1); return err },
	} {
		if err := f(); !errors.Is(err, croft.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.SignHost(t.Context(), newKey(t), "web1", nil, 400*24*time.Hour); !errors.Is(err, croft.Denied) {
		t.Errorf("too long: %v", err)
	}
}
