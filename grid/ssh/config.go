package ssh

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"croft"
)

// none switches things off in an ssh configuration.
const none = "none"

const (
	includesMax = 16 // files that include each other, as in OpenSSH
	configMax   = 1 << 20
)

// A setting is a line of an ssh configuration.
type setting struct {
	file string
	line int
	name string // the keyword as it is written
	args []string
}

func (s setting) errorf(format string, args ...any) error {
	return croft.Errorf(croft.Invalid, "%s:%d: "+format, append([]any{s.file, s.line}, args...)...)
}

// A lookup finds what an ssh configuration says about one host: of each keyword the first setting, and all of those
// that add up.
type lookup struct {
	home     string
	host     string // as the user gave it
	named    string // what patterns of Host are compared with: host, the second time what HostName made of it
	user     string // as the user gave it, or empty
	found    map[string][]setting
	included int // files around the one that is read

	// As in OpenSSH, a configuration that has Match final is read a second time. Only then that criterion matches.
	wantsFinal, final bool
}

// read looks through configuration files, again if they have Match final.
func (l *lookup) read(paths ...string) error {
	for l.named = l.host; ; {
		for _, path := range paths {
			if err := l.file(path, true); err != nil {
				return err
			}
		}
		if !l.wantsFinal || l.final {
			return nil
		}
		l.final = true
		l.named = l.resolved()
		if l.found["hostname"] == nil { // from here on it is settled: a further HostName does not count
			l.found["hostname"] = []setting{{name: "HostName", args: []string{l.host}}}
		}
	}
}

// file reads one file. active: its settings outside of all blocks count.
func (l *lookup) file(path string, active bool) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, syscall.EISDIR) {
		return nil // as in OpenSSH, a directory has no lines
	} else if err != nil {
		return croft.Errorf(croft.Invalid, "read the ssh configuration: %w", err)
	}
	if len(text) > configMax || !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return croft.Errorf(croft.Invalid, "%s: an ssh configuration is text of at most 1 MiB", path)
	}
	now := active
	for i, line := range strings.Split(string(text), "\n") {
		s, err := split(path, i+1, line)
		if err != nil {
			return err
		}
		switch name := strings.ToLower(s.name); name {
		case "":
		case "host":
			if len(s.args) == 0 {
				return s.errorf("Host without a pattern")
			}
			now = active && matchWords(s.args, l.named)
		case "match":
			matched, err := l.match(s, active)
			if err != nil {
				return err
			}
			now = active && matched
		case "include":
			if err := l.include(s, now); err != nil {
				return err
			}
		default:
			if now {
				l.note(name, s)
			}
		}
	}
	return nil
}

// note keeps a setting that applies.
func (l *lookup) note(name string, s setting) {
	known := slices.ContainsFunc(l.found[name], func(k setting) bool { return k.file == s.file && k.line == s.line })
	if len(l.found[name]) == 0 || several[name] && !known { // each line is read twice where there is Match final
		l.found[name] = append(l.found[name], s)
	}
}

func (l *lookup) include(s setting, active bool) error {
	if len(s.args) == 0 {
		return s.errorf("Include without a file")
	}
	if l.included++; l.included > includesMax {
		return s.errorf("files include each other more than %d deep", includesMax)
	}
	defer func() { l.included-- }()
	for _, pattern := range s.args {
		path := tilde(pattern, l.home)
		if !filepath.IsAbs(path) {
			dir := filepath.Join(l.home, ".ssh")
			if strings.HasPrefix(s.file, "/etc/ssh/") {
				dir = "/etc/ssh"
			}
			path = filepath.Join(dir, path)
		}
		files, err := filepath.Glob(path)
		if err != nil {
			return s.errorf("Include %s: %w", pattern, err)
		}
		for _, file := range files {
			err := l.file(file, active)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // a dangling link is passed over
				return err
			}
		}
	}
	return nil
}

// match evaluates a Match line. Once a criterion is not met, the others do not matter.
func (l *lookup) match(s setting, active bool) (bool, error) {
	if len(s.args) == 0 {
		return false, s.errorf("Match without a criterion")
	}
	matched, passes := active, 0 // passes: criteria canonical and final before the others
	for args := s.args; len(args) > 0; {
		word, negated := strings.CutPrefix(args[0], "!")
		criterion, value, joined := strings.Cut(strings.ToLower(word), "=")
		if joined {
			value = word[len(criterion)+1:]
		}
		args = args[1:]
		switch criterion {
		case "canonical", "final":
			l.wantsFinal = l.wantsFinal || criterion == "final"
			if l.final == negated {
				matched = false
			}
			passes++
			continue
		case "all":
			if len(s.args) != 1+passes || len(args) > 0 || negated {
				return false, s.errorf("Match all stands alone, or after canonical or final")
			}
			return matched, nil
		}
		subject, known := l.subject(criterion)
		if !known && !matched {
			return false, nil
		}
		if !known {
			return false, s.errorf("croft cannot evaluate Match %s; it knows all, canonical, final, host, originalhost, user and "+
				"localuser",
				criterion)
		}
		if !joined {
			if len(args) == 0 {
				return false, s.errorf("Match %s without a pattern", criterion)
			}
			value, args = args[0], args[1:]
		}
		if strings.HasSuffix(criterion, "host") { // unlike those of Host, these ignore case
			value, subject = strings.ToLower(value), strings.ToLower(subject)
		}
		if matchWords(strings.Split(value, ","), subject) == negated {
			matched = false
		}
	}
	return matched, nil
}

// subject is what a criterion of Match is compared with.
func (l *lookup) subject(criterion string) (string, bool) {
	switch criterion {
	case "host":
		return l.resolved(), true
	case "originalhost":
		return l.host, true
	case "user":
		if l.user != "" {
			return l.user, true
		}
		if name := l.first("user"); name != "" {
			return name, true
		}
		return localUser(), true
	case "localuser":
		return localUser(), true
	}
	return "", false
}

// resolved is what HostName has made of the host so far.
func (l *lookup) resolved() string {
	if name := l.first("hostname"); name != "" {
		return strings.ReplaceAll(name, "%h", l.host)
	}
	return l.host
}

func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// first is the first word of a setting, or empty.
func (l *lookup) first(name string) string {
	if all := l.found[name]; len(all) > 0 && len(all[0].args) > 0 {
		return all[0].args[0]
	}
	return ""
}

// split divides a line into its keyword and arguments, as OpenSSH does: quotes, backslashes before quotes and
// backslashes, = after the keyword, and comments.
func split(file string, n int, line string) (setting, error) {
	s := setting{file: file, line: n}
	line = strings.Trim(line, " \t\r\f")
	if line == "" || line[0] == '#' {
		return s, nil
	}
	end := strings.IndexAny(line, " \t\r\f=")
	if end < 0 {
		end = len(line)
	}
	s.name = line[:end]
	rest := strings.TrimLeft(line[end:], " \t\r\f")
	if after, is := strings.CutPrefix(rest, "="); is {
		rest = strings.TrimLeft(after, " \t\r\f")
	}
	var word []byte
	inWord, quote := false, byte(0)
	flush := func() {
		if inWord {
			s.args = append(s.args, string(word))
		}
		word, inWord = nil, false
	}
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		switch {
		case c == '\\' && i+1 < len(rest) && (strings.IndexByte(`'"\`, rest[i+1]) >= 0 ||
			quote == 0 && rest[i+1] == ' '):
			i++
			word, inWord = append(word, rest[i]), true
		case quote == 0 && (c == ' ' || c == '\t'):
			flush()
		case quote == 0 && c == '#' && !inWord:
			return s, nil
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote != 0 && c == quote:
			quote = 0
		default:
			word, inWord = append(word, c), true
		}
	}
	if quote != 0 {
		return s, s.errorf("%s: a quotation mark is not closed", s.name)
	}
	flush()
	return s, nil
}

// matchWords reports whether one of the patterns matches, and none that begins with !.
func matchWords(patterns []string, name string) bool {
	matched := false
	for _, p := range patterns {
		p, negated := strings.CutPrefix(p, "!")
		if !matchPattern(p, name) {
			continue
		}
		if negated {
			return false
		}
		matched = true
	}
	return matched
}

// matchPattern matches * and ?, in time proportional to the product of the lengths.
func matchPattern(pattern, name string) bool {
	row := make([]bool, len(name)+1) // row[i]: the pattern so far matches name[:i]
	row[0] = true
	for i := range len(pattern) {
		next := make([]bool, len(name)+1)
		next[0] = row[0] && pattern[i] == '*'
		for j := range len(name) {
			switch pattern[i] {
			case '*':
				next[j+1] = next[j] || row[j+1]
			case '?':
				next[j+1] = row[j]
			default:
				next[j+1] = row[j] && pattern[i] == name[j]
			}
		}
		row = next
	}
	return row[len(name)]
}

// tilde replaces ~ at the beginning of a path.
func tilde(path, home string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return home + path[1:]
	}
	return path
}

// yes reads a flag; other is what stands for neither.
func (s setting) yes() (bool, error) {
	if len(s.args) != 1 {
		return false, s.errorf("%s: give yes or no", s.name)
	}
	switch v := strings.ToLower(s.args[0]); {
	case slices.Contains([]string{"yes", "true"}, v):
		return true, nil
	case slices.Contains([]string{"no", "false"}, v):
		return false, nil
	}
	return false, s.errorf("%s %s: give yes or no", s.name, s.args[0])
}
