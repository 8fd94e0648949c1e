package main

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"croft"
)

// readKeys returns lines of authorized_keys from what each text says: a key, a file
// of keys, or a pattern of such files. A file that a pattern finds need not be of
// keys, since ~/.ssh holds all sorts; everything that was named must be.
func readKeys(texts []string) ([]string, error) {
	var keys []string
	for _, text := range texts {
		found, err := readKey(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, found...)
	}
	return keys, nil
}

func readKey(text string) ([]string, error) {
	if strings.ContainsAny(text, " \t") {
		key, err := parseKey(text)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "key %.40q: %w", text, err)
		}
		return []string{key}, nil
	}
	name := home(text)
	if !strings.ContainsAny(text, "*?[") {
		return readKeyFile(name)
	}
	files, err := filepath.Glob(name)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "keys: %q is no pattern of file names", text)
	}
	var keys []string
	for _, file := range files {
		if found, err := readKeyFile(file); err == nil {
			keys = append(keys, found...)
		}
	}
	return keys, nil
}

// home puts the home directory in the place of a leading ~.
func home(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if dir, err := os.UserHomeDir(); err == nil {
			return filepath.Join(dir, rest)
		}
	}
	return name
}

func readKeyFile(name string) ([]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the key: %w", err)
	}
	var keys []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parseKey(line)
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

// parseKey checks one line of authorized_keys.
func parseKey(line string) (string, error) {
	line = strings.TrimSpace(line)
	if strings.Contains(line, "PRIVATE KEY") {
		return "", croft.Errorf(croft.Invalid, "that is a private key: give the public one, whose file ends in .pub")
	}
	if _, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line)); err != nil || len(rest) > 0 {
		return "", croft.Errorf(croft.Invalid, "that is no public SSH key, such as ssh-ed25519 AAAA... name")
	}
	return line, nil
}
