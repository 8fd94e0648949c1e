package ssh

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"croft"
)

// reached is what a configuration says about a host, in the words of ssh -G.
func reached(t *testing.T, file string, w where) (map[string]string, error) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Config{Home: me.HomeDir, File: file, Agent: none}.target(w)
	if err != nil {
		return nil, err
	}
	alias := strings.TrimSuffix(got.knownAs, ":22")
	if !strings.HasPrefix(alias, "alias") {
		alias = ""
	}
	ids := strings.Join(got.identities, " ")
	if !got.chosen {
		ids = ""
	}
	return map[string]string{
		"hostname": got.host, "port": got.port, "user": got.user, "proxyjump": strings.Join(got.jumps, ","),
		"identityfile": ids, "hostkeyalias": alias, "certificatefile": strings.Join(got.certificates, " "),
		"identitiesonly":     map[bool]string{true: "yes", false: "no"}[got.only],
		"userknownhostsfile": strings.Join(got.known[:max(0, len(got.known)-2)], " "),
	}, nil
}

// openSSH is the same, as ssh has it.
func openSSH(t *testing.T, file string, w where) (map[string]string, error) {
	t.Helper()
	args := []string{"-G", "-F", file}
	if w.user != "" {
		args = append(args, "-l", w.user)
	}
	if w.port != "" {
		args = append(args, "-p", w.port)
	}
	cmd := exec.CommandContext(t.Context(), "ssh", append(args, "--", w.host)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New(complaint.String())
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"proxyjump": "", "hostkeyalias": "", "certificatefile": ""}
	var ids, certs []string
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch value = strings.ReplaceAll(value, "~/", me.HomeDir+"/"); name {
		case "identityfile":
			ids = append(ids, value)
		case "certificatefile":
			certs = append(certs, value)
		default:
			all[name] = value
		}
	}
	all["identityfile"], all["certificatefile"] = strings.Join(ids, " "), strings.Join(certs, " ")
	if len(ids) > 0 && strings.HasSuffix(ids[0], "/id_rsa") && len(ids) > 4 { // its defaults
		all["identityfile"] = ""
	}
	return all, nil
}

func needSSH(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("there is no ssh: scripts/install-deps test installs it")
	}
}

// compare compares what we and ssh find for a host.
func compare(t *testing.T, file string, w where) {
	t.Helper()
	want, failed := openSSH(t, file, w)
	got, err := reached(t, file, w)
	if (failed != nil) != (err != nil) {
		t.Errorf("%+v: ssh says %v, we say %v", w, failed, err)
		return
	}
	for name, value := range got {
		if want[name] != value {
			t.Errorf("%+v: %s is %q, ssh has %q", w, name, value, want[name])
		}
	}
}

func TestAConfigurationMeansWhatItMeansForSSH(t *testing.T) {
	needSSH(t)
	hosts := []where{{host: "web1"}, {host: "web2.example.org"}, {host: "WEB1"}, {host: "db", user: "eva"},
		{host: "db", port: "2201"}, {host: "10.0.0.7"}}
	for name, text := range map[string]string{
		"the first value counts":      "Host web1\n Port 1\nHost *\n Port 2\n User u",
		"before any block":            "User a\nHost web1\n User b",
		"patterns and exceptions":     "Host web* !web2*\n Port 7\nHost w?b1\n User q\nHost !web1\n User n",
		"an equals sign":              "Host=web1\n Port=2222\n User = eva\nHostName   =  x.example.org",
		"quotes":                      "Host \"web1\" 'db'\n User \"eva\"\n IdentityFile \"/a b/key\"",
		"comments":                    "# one\nHost web1 # two\n\tPort 9 # three\n  # four\n User u#5",
		"keywords in any case":        "hOST web1\n pORT 9\n HOSTNAME other",
		"tokens in HostName":          "Host web*\n HostName %h.example.net",
		"identities add up":           "IdentityFile /a\nHost web1\n IdentityFile /b\n IdentityFile ~/c\n IdentitiesOnly yes",
		"certificates":                "CertificateFile /a-cert.pub\nCertificateFile ~/b-cert.pub",
		"Match host sees HostName":    "Host web1\n HostName inner\nMatch host inner\n Port 5\nMatch originalhost web1\n User o",
		"Match lists":                 "Match host db,web1\n Port 5\nMatch host !web1,*\n User n",
		"Match of two criteria":       "Match host db user eva\n Port 5\nMatch user eva host web1\n Port 6",
		"Match negated":               "Match !host db\n Port 5\nMatch !user eva\n HostKeyAlias alias1",
		"Match localuser":             "Match localuser nobody-here\n Port 5\nMatch !localuser nobody-here\n User l",
		"Match all":                   "Host web1\n Port 3\nMatch all\n Port 4",
		"Match user set before":       "User eva\nMatch user eva\n Port 9",
		"a jump":                      "Host db\n ProxyJump eva@gate:2200,inner\nHost web1\n ProxyJump none",
		"known hosts":                 "UserKnownHostsFile /k1 ~/k2\nGlobalKnownHostsFile /g1 /g2",
		"a file that is not there":    "Include /no/such/file*\nHost web1\n Port 4",
		"carriage returns":            "Host web1\r\n Port 4\r\n User u\r\n",
		"names in capitals":           "Host WEB1\n HostName Other.Example\nMatch host other.example\n Port 5",
		"a quote that does not end":   "Host web1\n User \"x",
		"a block without a pattern":   "Host\n Port 4",
		"a criterion without pattern": "Match host\n Port 4",
		"a flag that is none":         "IdentitiesOnly perhaps",
		"a family that is none":       "AddressFamily seven",
		"backslashes":                 `IdentityFile "/a \"b\" \\c"`,
		"Match final comes last":      "Match final\n Port 5\n User f\nHost web1\n Port 6\nHost *\n HostKeyAlias alias1",
		"Match final all":             "Host web1\n HostName inner\nMatch final all\n Port 5\n IdentityFile /a\nIdentityFile /a",
		"Match final and others":      "IdentityFile /i\nMatch final host db,web1 user eva\n Port 5\nMatch !final\n User n\n IdentityFile /n",
		"Match canonical":             "Match canonical all\n Port 5\nMatch !canonical\n User u",
		"Match canonical and final":   "Match canonical\n Port 5\nMatch final\n User u",
		"Match all before final":      "Match all final\n Port 5",
		"final in a block of others":  "Match host nowhere\nMatch host nowhere final\n Port 7\nMatch canonical\n User u",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, w := range hosts {
				compare(t, file, w)
			}
		})
	}
}

// Include passes over what OpenSSH passes over: links that lead nowhere, and directories.
func TestWhatIncludePassesOver(t *testing.T) {
	needSSH(t)
	dir := t.TempDir()
	for _, err := range []error{
		os.Symlink("/nonexistent/work.conf", filepath.Join(dir, "10-work")),
		os.Mkdir(filepath.Join(dir, "20-dir"), 0o700),
		os.WriteFile(filepath.Join(dir, "30-file"), []byte("User eva\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "config"), []byte("Include "+dir+"/*0-*\nHost web1\n Port 7\n"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	compare(t, filepath.Join(dir, "config"), where{host: "web1"})
	got, err := Config{Home: dir, File: filepath.Join(dir, "config")}.target(where{host: "web1"})
	if err != nil || got.user != "eva" || got.port != "7" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := (Config{Home: dir, File: filepath.Join(dir, "nowhere")}).target(where{host: "web1"}); err == nil {
		t.Error("a file that is named and not there is no error")
	}
}

// TestAnyConfigurationMeansWhatItMeansForSSH compares random configurations of several files.
func TestAnyConfigurationMeansWhatItMeansForSSH(t *testing.T) {
	needSSH(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	pattern := func() string {
		return pick("", "", "!") + pick("web1", "web*", "db", "*", "w?b1", "*.example.org", "inner", "x.inner")
	}
	dir := t.TempDir()
	var write func(file string, depth int) string
	write = func(file string, depth int) string {
		var b strings.Builder
		for range 3 + r.IntN(8) {
			switch r.IntN(11) {
			case 0, 1:
				fmt.Fprintf(&b, "Host %s %s\n", pattern(), pattern())
			case 2:
				fmt.Fprintf(
					&b,
					"Match %s%s %s,%s %s\n",
					pick("", "", "final ", "!final ", "canonical ")+pick("", "!"),
					pick(
						"host",
						"originalhost",
					),
					pattern(),
					pattern(),
					pick("", "user eva", "!user eva", "localuser x", "final"),
				)
			case 3:
				if depth < 3 {
					fmt.Fprintf(&b, "Include %s\n", write(fmt.Sprint(file, "-", r.IntN(1000)), depth+1))
				}
			case 4:
				fmt.Fprintf(&b, " HostName %s\n", pick("inner", "%h.inner", "x.%h"))
			case 5:
				fmt.Fprintf(&b, "\tPort %d\n", 1+r.IntN(9))
			case 6:
				fmt.Fprintf(&b, " User %s\n", pick("eva", "tom"))
			case 7:
				fmt.Fprintf(&b, " IdentityFile %s\n", pick("/a", "~/b", `"/c d"`))
			case 8:
				fmt.Fprintf(&b, " ProxyJump %s\n", pick("gate", "none", "eva@gate:22,b"))
			case 9:
				fmt.Fprintf(&b, " %s %s\n", pick("HostKeyAlias", "hostkeyalias"), pick("alias1", "alias2"))
			case 10:
				fmt.Fprintf(&b, " IdentitiesOnly %s\n", pick("yes", "no"))
			}
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for i := range 60 {
		file := write(filepath.Join(dir, fmt.Sprint("config", i, "_")), 0)
		for _, w := range []where{{host: "web1"}, {host: "db", user: "eva"}, {host: "a.example.org", port: "77"}} {
			compare(t, file, w)
		}
		if t.Failed() {
			files, _ := filepath.Glob(file + "*")
			for _, file := range files {
				text, _ := os.ReadFile(file)
				t.Logf("%s:\n%s", file, text)
			}
			t.FailNow()
		}
	}
}

func TestWhatCannotBeHonoredIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"Host web1\n ProxyCommand nc %h %p":   "config:2: croft cannot honor ProxyCommand for web1; ",
		"KnownHostsCommand /bin/x":            "config:1: croft cannot honor KnownHostsCommand",
		"\nRevokedHostKeys /etc/krl":          "config:2: croft cannot honor RevokedHostKeys",
		"Prot 22":                             "config:1: croft cannot honor Prot",
		"Match exec true\n Port 5":            "config:1: croft cannot evaluate Match exec; it knows all, canonical, final, host",
		"RequiredRSASize many":                "config:1: RequiredRSASize many: give a number of bits",
		"CASignatureAlgorithms x":             "config:1: CASignatureAlgorithms x leaves none",
		"Match all host x\n Port 5":           "config:1: Match all stands alone",
		"IdentityFile %Z":                     "config:1: IdentityFile %Z: croft does not know %Z",
		"IdentityFile ${NO_SUCH_VARIABLE_}/x": "config:1: IdentityFile ${NO_SUCH_VARIABLE_}/x: the variable",
		"Host web1\n Port x":                  "config:2: Port x: give a number",
		"ConnectTimeout soon":                 "config:1: ConnectTimeout soon: give seconds",
		"Ciphers 3des-cbc":                    "config:1: Ciphers 3des-cbc leaves none of those that croft has: ",
		"HostKeyAlgorithms -*":                "config:1: HostKeyAlgorithms -* leaves none",
		"PubkeyAcceptedAlgorithms ssh-rsa":    "config:1: PubkeyAcceptedAlgorithms ssh-rsa leaves none",
		"a\x00b":                              "an ssh configuration is text",
	} {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Config{Home: "/home/x", File: file}.target(where{host: "web1"})
		if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"Host other\n ProxyCommand nc", "ProxyCommand none", "GSSAPIAuthentication yes",
		"PubkeyAcceptedAlgorithms +ssh-rsa\nCiphers ^aes128-ctr\nMACs *etm*\nKexAlgorithms -*sha1",
		"ForwardAgent yes\nSendEnv LANG LC_*", "Match host other exec true\n Port 5", "IgnoreUnknown Foo*\nFooBar 1"} {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (Config{Home: "/home/x", File: file}).target(where{host: "web1"}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestListsOfAlgorithms(t *testing.T) {
	ours := []string{"aes-a", "aes-b", "chacha", "gcm"}
	for list, want := range map[string]string{
		"chacha,aes-a": "chacha aes-a", "aes-*": "aes-a aes-b", "+other": "aes-a aes-b chacha gcm",
		"-aes-*,gcm": "chacha", "^gcm": "gcm aes-a aes-b chacha", "other,gcm": "gcm", "gcm,*": "gcm aes-a aes-b chacha",
	} {
		l := &lookup{found: map[string][]setting{"ciphers": {{name: "Ciphers", args: []string{list}}}}}
		if got, err := l.algorithms("ciphers", ours); strings.Join(got, " ") != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", list, got, err, want)
		}
	}
}

func TestFilesThatIncludeEachOther(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("Include "+file), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Config{Home: "/home/x", File: file}).target(where{host: "web1"}); !errors.Is(err, croft.Invalid) {
		t.Errorf("got %v", err)
	}
	_, err := Config{Home: "/home/x", File: file + "2"}.target(where{host: "web1"})
	if !errors.Is(err, croft.Invalid) {
		t.Errorf("a file that was asked for and is not there: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]where{
		"web1": {host: "web1"}, "web1:2222": {host: "web1", port: "2222"}, "10.0.0.1": {host: "10.0.0.1"},
		"::1": {host: "::1"}, "[::1]:22": {host: "::1", port: "22"}, "[::1]": {host: "::1"},
		"eva@web1:22": {"eva", "web1", "22"}, "ssh://eva@web1": {user: "eva", host: "web1"},
	} {
		if got, err := parseWhere(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":22", "web1:0", "web1:x", "web1:70000", "a b", "-oProxyCommand=x", "[::1", "a/b",
		"eva@", "web1:"} {
		if got, err := parseWhere(text); !errors.Is(err, croft.Invalid) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, line := range []string{"Host a b", `User "x y"`, "Port=2", `A \" '`, "# x"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		s, err := split("file", 1, line)
		if err == nil && s.name == "" && len(s.args) > 0 && !strings.HasPrefix(strings.TrimLeft(line, " \t\r\f"), "=") {
			t.Errorf("%q has arguments %q of no keyword", line, s.args)
		}
		if err == nil && slices.Contains(s.args, "") && !strings.ContainsAny(line, `"'`) {
			t.Errorf("%q has an empty argument", line)
		}
	})
}

func TestPatterns(t *testing.T) {
	long := strings.Repeat("a*", 50)
	if matchPattern(long+"b", strings.Repeat("a", 200)) || !matchPattern(long, strings.Repeat("a", 200)) {
		t.Error("a long pattern")
	}
}
