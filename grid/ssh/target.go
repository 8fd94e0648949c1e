package ssh

import (
	"cmp"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
)

// A target is how one machine is reached.
type target struct {
	host, port, user string
	network          string // tcp, tcp4 or tcp6
	knownAs          string // host:port in known_hosts
	timeout          time.Duration

	// algorithms, the preferred ones first
	ciphers, macs, exchanges, hostKeys []string
	// of signatures: by the user's keys, by authorities of host certificates
	userKeys, authorities []string
	rsaLeast              int // bits of RSA keys, of hosts and users

	known        []string // files of known hosts
	weak         string   // where the configuration asks for less than verified host keys, or empty
	agent        string   // socket, or none
	identities   []string // key files
	chosen       bool     // the configuration names identities
	only         bool     // of the agent's keys, those of the identities alone
	certificates []string
	jumps        []string // what ProxyJump names, the first one first
}

// String is the target in error messages.
func (t *target) String() string { return t.user + "@" + net.JoinHostPort(t.host, t.port) }

// where is an address that somebody gave, divided.
type where struct{ user, host, port string }

// parseWhere reads host, host:port, [host]:port, user@host and ssh://user@host:port.
func parseWhere(address string) (where, error) {
	var w where
	rest := strings.TrimPrefix(address, "ssh://")
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		w.user, rest = rest[:i], rest[i+1:]
	}
	w.host = rest
	if strings.HasPrefix(rest, "[") || strings.Count(rest, ":") == 1 {
		var err error
		if w.host, w.port, err = net.SplitHostPort(rest); err != nil && strings.HasSuffix(rest, "]") {
			w.host, w.port = rest[1:len(rest)-1], ""
		} else if err != nil {
			return w, croft.Errorf(croft.Invalid, "address %q: give host, host:port or [address]:port", address)
		}
	}
	if w.host == "" || strings.HasPrefix(w.host, "-") || strings.ContainsAny(w.host, " \t\r\n/@") {
		return w, croft.Errorf(croft.Invalid, "address %q: give host, host:port or [address]:port", address)
	}
	if (w.port != "" || strings.HasSuffix(rest, ":") && w.host+":" == rest) && !isPort(w.port) {
		return w, croft.Errorf(croft.Invalid, "address %q: a port is a number from 1 to 65535", address)
	}
	return w, nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// target finds how a machine is reached: what was given, then what the ssh configuration says, then defaults.
func (c Config) target(w where) (*target, error) {
	l := &lookup{home: c.Home, host: w.host, user: w.user, found: map[string][]setting{}}
	files := []string{c.File}
	if c.File == "" {
		files = slices.DeleteFunc([]string{filepath.Join(c.Home, ".ssh", "config"), "/etc/ssh/ssh_config"},
			func(path string) bool { _, err := os.Stat(path); return errors.Is(err, fs.ErrNotExist) })
	}
	if err := l.read(files...); err != nil {
		return nil, err
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	t := &target{
		host: cmp.Or(l.first("hostname"), w.host),
		port: cmp.Or(w.port, l.first("port"), "22"),
		user: cmp.Or(w.user, l.first("user"), localUser()),
	}
	if !isPort(t.port) {
		return nil, l.found["port"][0].errorf("Port %s: give a number from 1 to 65535", t.port)
	}
	if s := l.found["hostname"]; s != nil {
		var err error
		if t.host, err = s[0].expand(t.host, map[byte]string{'h': w.host}); err != nil {
			return nil, err
		}
	}
	t.host = strings.ToLower(t.host)
	t.knownAs = net.JoinHostPort(cmp.Or(l.first("hostkeyalias"), t.host), t.port)
	if l.first("hostkeyalias") != "" {
		t.knownAs = net.JoinHostPort(l.first("hostkeyalias"), "22") // as OpenSSH has it: an alias has no port
	}
	if err := c.connecting(t, l); err != nil {
		return nil, err
	}
	if err := t.crypto(l); err != nil {
		return nil, err
	}
	if err := c.identity(t, l, w); err != nil {
		return nil, err
	}
	return t, nil
}

// connecting sets what the connection and its check need.
func (c Config) connecting(t *target, l *lookup) error {
	t.timeout = cmp.Or(c.Timeout, 10*time.Second)
	if all := l.found["connecttimeout"]; all != nil && c.Timeout == 0 && l.first("connecttimeout") != none {
		seconds, err := strconv.ParseUint(l.first("connecttimeout"), 10, 16)
		if err != nil || seconds == 0 {
			return all[0].errorf("ConnectTimeout %s: give seconds, 1 to 65535", l.first("connecttimeout"))
		}
		t.timeout = time.Duration(seconds) * time.Second
	}
	family := strings.ToLower(cmp.Or(l.first("addressfamily"), "any"))
	t.network = map[string]string{"any": "tcp", "inet": "tcp4", "inet6": "tcp6"}[family]
	if t.network == "" {
		return l.found["addressfamily"][0].errorf("AddressFamily %s: give any, inet or inet6", family)
	}
	if via := l.first("proxyjump"); via != "" && via != none {
		t.jumps = strings.Split(via, ",")
	}
	if all := l.found["stricthostkeychecking"]; all != nil {
		if v := strings.ToLower(l.first("stricthostkeychecking")); v != "yes" && v != "ask" {
			t.weak = all[0].file + ":" + strconv.Itoa(all[0].line) + ": StrictHostKeyChecking " + v
		}
	}
	return nil
}

// identity sets the files of known hosts and of the user's keys.
func (c Config) identity(t *target, l *lookup, w where) error {
	tokens := map[byte]string{
		'd': c.Home, 'h': t.host, 'n': w.host, 'p': t.port, 'r': t.user, 'u': localUser(),
		'i': strconv.Itoa(os.Getuid()), 'k': cmp.Or(l.first("hostkeyalias"), w.host),
	}
	if name, err := os.Hostname(); err == nil {
		tokens['l'] = name
		tokens['L'], _, _ = strings.Cut(name, ".")
	}
	paths := func(name string, defaults ...string) ([]string, error) {
		all := l.found[name]
		if all == nil {
			return defaults, nil
		}
		var list []string
		for _, s := range all {
			for _, arg := range s.args {
				if strings.EqualFold(arg, none) {
					continue
				}
				path, err := s.expand(arg, tokens)
				if err != nil {
					return nil, err
				}
				if path = tilde(path, c.Home); !slices.Contains(list, path) {
					list = append(list, path)
				}
			}
		}
		return list, nil
	}
	dir := filepath.Join(c.Home, ".ssh")
	own, err := paths("userknownhostsfile", filepath.Join(dir, "known_hosts"), filepath.Join(dir, "known_hosts2"))
	if err != nil {
		return err
	}
	global, err := paths("globalknownhostsfile", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
	if err != nil {
		return err
	}
	t.known = append(own, global...)
	t.chosen = l.found["identityfile"] != nil
	if t.identities, err = paths("identityfile", filepath.Join(dir, "id_ed25519"), filepath.Join(dir, "id_ecdsa"),
		filepath.Join(dir, "id_rsa")); err != nil {
		return err
	}
	if t.certificates, err = paths("certificatefile"); err != nil {
		return err
	}
	if all := l.found["identitiesonly"]; all != nil {
		if t.only, err = all[0].yes(); err != nil {
			return err
		}
	}
	t.agent = c.Agent
	if all := l.found["identityagent"]; all != nil && l.first("identityagent") != "SSH_AUTH_SOCK" {
		agent := l.first("identityagent")
		if name, is := strings.CutPrefix(agent, "$"); is && !strings.HasPrefix(name, "{") {
			agent = cmp.Or(os.Getenv(name), none)
		} else if agent, err = all[0].expand(agent, tokens); err != nil {
			return err
		}
		t.agent = tilde(agent, c.Home)
	}
	return nil
}

// expand replaces %-tokens and ${VARIABLES} in a value.
func (s setting) expand(value string, tokens map[byte]string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		switch {
		case value[i] == '%' && i+1 == len(value):
			return "", s.errorf("%s %s: a %% stands at the end", s.name, value)
		case value[i] == '%':
			i++
			token, known := tokens[value[i]]
			if !known && value[i] != '%' {
				return "", s.errorf("%s %s: croft does not know %%%c", s.name, value, value[i])
			}
			if value[i] == '%' {
				token = "%"
			}
			b.WriteString(token)
		case strings.HasPrefix(value[i:], "${") && strings.Contains(value[i:], "}"):
			name, _, _ := strings.Cut(value[i+2:], "}")
			text, set := os.LookupEnv(name)
			if !set {
				return "", s.errorf("%s %s: the variable %s is not set", s.name, value, name)
			}
			b.WriteString(text)
			i += len(name) + 2
		default:
			b.WriteByte(value[i])
		}
	}
	return b.String(), nil
}
