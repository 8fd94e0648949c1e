// Package sshkeys reads the public SSH keys that a request names: files, file patterns, the user's SSH agent, or the
// keys themselves. It distinguishes them from names of keys stored in the cloud.
package sshkeys

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"croft"
	"croft/internal/plain"
	"croft/internal/userfile"
	"croft/schedule"
)

// Words for keys kept elsewhere.
const (
	Agent = "agent" // the keys in the SSH agent
	Auto  = "auto"  // like Agent, or without an agent the files in ~/.ssh
)

// Read returns lines of authorized_keys from each text: a key, a file of keys, a pattern of such files, or one of the
// words above. A file found by a pattern may contain something other than keys, since ~/.ssh has all kinds of files; a
// named file may not. Texts that are none of these, but could be names of stored keys, are returned in names.
func Read(texts []string) (keys, names []string, err error) {
	for _, text := range texts {
		if isStoredName(text) {
			names = append(names, text)
			continue
		}
		found, err := ReadOne(text)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, found...)
	}
	return keys, names, nil
}

// isStoredName distinguishes the name of a stored key from a file name; an existing file takes precedence.
func isStoredName(text string) bool {
	if text == Agent || text == Auto || schedule.CheckName(text) != nil {
		return false
	}
	_, err := os.Stat(text)
	return errors.Is(err, os.ErrNotExist)
}

func ReadOne(text string) ([]string, error) {
	if strings.ContainsAny(text, " \t") {
		key, err := Parse(text)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "key %.40q: %w", text, err)
		}
		return []string{key}, nil
	}
	switch text {
	case Agent:
		return readAgent()
	case Auto:
		if keys, err := readAgent(); err == nil {
			return keys, nil
		}
		text = "~/.ssh/*.pub"
	}
	name := Home(text)
	if !strings.ContainsAny(text, "*?[") {
		return ReadFile(name)
	}
	files, err := filepath.Glob(name)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "keys: %q is not a pattern of file names", text)
	}
	var keys []string
	for _, file := range files {
		if found, err := ReadFile(file); err == nil {
			keys = append(keys, found...)
		}
	}
	return keys, nil
}

// readAgent returns the keys in the user's SSH agent. It skips certificates, which a new guest does not trust.
func readAgent() ([]string, error) {
	path := os.Getenv("SSH_AUTH_SOCK")
	if path == "" {
		return nil, croft.Errorf(croft.Invalid, "there is no SSH agent: SSH_AUTH_SOCK is not set")
	}
	conn, err := net.DialTimeout("unix", path, agentTimeout)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "ask the SSH agent for keys: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(agentTimeout)); err != nil {
		return nil, fmt.Errorf("ask the SSH agent for keys: %w", err)
	}
	list, err := agent.NewClient(conn).List()
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "ask the SSH agent for keys: %w", err)
	}
	var keys []string
	for _, key := range list {
		if key, err := Parse(key.String()); err == nil && !strings.Contains(key, "-cert-v01@") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, croft.Errorf(croft.Invalid, "the SSH agent holds no key: add one with ssh-add")
	}
	return keys, nil
}

// agentTimeout bounds the agent's answer; a forwarded agent is slow.
const agentTimeout = 5 * time.Second

// Home replaces a leading ~ by the home directory.
func Home(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if dir, err := os.UserHomeDir(); err == nil {
			return filepath.Join(dir, rest)
		}
	}
	return name
}

func ReadFile(name string) ([]string, error) {
	text, err := userfile.Read(name)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the key: %w", err)
	}
	var keys []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := Parse(line)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "key in %s: %w", name, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, croft.Errorf(croft.Invalid, "there is no key in %s", name)
	}
	return keys, nil
}

// Same compares two lines of authorized_keys without their comments.
func Same(a, b string) bool {
	first, second := strings.Fields(a), strings.Fields(b)
	return len(first) > 1 && len(second) > 1 && slices.Equal(first[:2], second[:2])
}

// Parse checks one line of authorized_keys.
func Parse(line string) (string, error) {
	line = strings.TrimSpace(line)
	if strings.Contains(line, "PRIVATE KEY") {
		return "", croft.Errorf(croft.Invalid, "that is a private key: give the public one, whose file ends in .pub")
	}
	if _, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line)); err != nil || len(rest) > 0 {
		return "", croft.Errorf(croft.Invalid, "this is not a public SSH key, such as ssh-ed25519 AAAA... name")
	}
	hidden := func(r rune) bool { return r != '\t' && plain.Steers(r) }
	if strings.ContainsFunc(line, hidden) || !utf8.ValidString(line) {
		return "", croft.Errorf(croft.Invalid, "the public SSH key has characters that change a text without being visible: "+
			"remove them from its comment")
	}
	return line, nil
}
