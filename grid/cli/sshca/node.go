package sshca

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/settings"
)

// addressOf returns the address in the repository's file for a node; empty: there is no address. Invalid: it is
// computed from other values, so the user must give it.
func addressOf(repository, node string) (string, error) {
	var file string
	err := filepath.WalkDir(filepath.Join(repository, "nodes"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() == node+".yaml" {
			file = path
			return fs.SkipAll
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || err == nil && file == "" {
		return "", nil
	} else if err != nil {
		return "", croft.Errorf(croft.Invalid, "look for the node %s: %w", node, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "read the node %s: %w", node, err)
	}
	var n struct {
		Address string `yaml:"address"`
	}
	if err := yaml.Unmarshal(text, &n); err != nil {
		return "", settings.SyntaxError(file, err)
	}
	if strings.Contains(n.Address, "$") {
		return "", croft.Errorf(croft.Invalid, "%s: the address %s is made of other values: give it with --name", file,
			n.Address)
	}
	if host, _, err := net.SplitHostPort(n.Address); err == nil {
		return host, nil
	}
	return strings.Trim(n.Address, "[]"), nil
}
