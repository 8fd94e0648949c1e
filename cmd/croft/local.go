package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/durable"
	"croft/internal/pki"
)

// A cloud that listens to other machines is not where commands look for it by default.
// So croft up notes for those of root on its own machine where it is, and what they
// show it; nothing is noted where the defaults do.

// localAccess is what is noted. The names are those of schedule.yaml.
type localAccess struct {
	Etcd struct {
		Endpoints []string `yaml:"endpoints"`
		CA        string   `yaml:"ca,omitempty"`
		Cert      string   `yaml:"cert,omitempty"`
		Key       string   `yaml:"key,omitempty"`
	} `yaml:"etcd"`
	Placement struct {
		Endpoint string `yaml:"endpoint,omitempty"`
		Token    string `yaml:"token,omitempty"`
		CA       string `yaml:"ca,omitempty"`
		Cert     string `yaml:"cert,omitempty"`
		Key      string `yaml:"key,omitempty"`
	} `yaml:"placement"`
}

func localFile(stateDir string) string { return filepath.Join(stateDir, "local.yaml") }

// accessWith is how the cloud is reached that these settings are of, with the
// certificates that files has for each authority.
func (s *hostSettings) accessWith(files func(pki.Authority) pki.Files) localAccess {
	var a localAccess
	for _, endpoint := range s.Etcd.Endpoints {
		a.Etcd.Endpoints = append(a.Etcd.Endpoints, outward(endpoint))
	}
	of := files(pki.Etcd)
	a.Etcd.CA, a.Etcd.Cert, a.Etcd.Key = of.CA(), of.Pair(), of.Pair()
	if s.Placement.Cloud != "" {
		return a
	}
	of = files(pki.Hosts)
	a.Placement.Endpoint, a.Placement.Token = outward(cmp.Or(s.Placement.Endpoint, defaultPlacement)), s.Placement.Token
	if isTLS(a.Placement.Endpoint) {
		a.Placement.CA, a.Placement.Cert, a.Placement.Key = of.CA(), of.Pair(), of.Pair()
	}
	return a
}

// useLocally has this process and the commands on this machine reach the cloud that
// runs in it.
func (s *hostSettings) useLocally(own *trust) error {
	if own.has(pki.Hosts) && isTLS(s.Placement.Endpoint) {
		s.Placement.TLS = own.files(pki.Hosts).Client(own.partition, pki.Kinds(pki.Member))
	}
	return s.writeLocal(own)
}

// writeLocal notes how commands on this machine reach the cloud, or that the defaults do.
func (s *hostSettings) writeLocal(own *trust) error {
	if !own.has(pki.Etcd) {
		if err := os.Remove(localFile(s.StateDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what was noted for commands: %w", err)
		}
		return nil
	}
	return s.accessWith(own.operatorFiles).write(localFile(s.StateDir), "# Written by croft up for the commands of root on this machine.\n")
}

func (a localAccess) write(file, comment string) error {
	text, err := yaml.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode how the cloud is reached: %w", err)
	}
	return durable.Write(file, append([]byte(comment), text...), 0o600)
}

// addLocal takes what was noted on this machine where nothing else says where the
// cloud is.
func addLocal(stateDir string, etcd *EtcdSettings, placement *PlacementSettings) error {
	if !slices.Equal(etcd.Endpoints, []string{defaultEtcd}) || etcd.CA != "" || etcd.Cert != "" {
		return nil
	}
	a, err := readLocal(stateDir)
	switch {
	case errors.Is(err, croft.NotFound) || errors.Is(err, fs.ErrPermission):
		return nil // none, or not for us
	case err != nil:
		return err
	}
	etcd.Endpoints, etcd.CA, etcd.Cert, etcd.Key = a.Etcd.Endpoints, a.Etcd.CA, a.Etcd.Cert, a.Etcd.Key
	if placement.Endpoint == "" && placement.Cloud == "" && placement.Token == defaultToken {
		p := a.Placement
		placement.Endpoint, placement.Token, placement.CA, placement.Cert, placement.Key = p.Endpoint, p.Token, p.CA, p.Cert, p.Key
	}
	return nil
}

// readLocal returns what was noted. NotFound: nothing was.
func readLocal(stateDir string) (a localAccess, err error) {
	text, err := os.ReadFile(localFile(stateDir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return a, croft.Errorf(croft.NotFound, "this cloud listens on this machine alone: set etcd.listen and placement.listen to an address that others reach, and start croft up again")
	}
	if err != nil {
		return a, fmt.Errorf("read how the cloud is reached: %w", err)
	}
	if err := yaml.Unmarshal(text, &a); err != nil || len(a.Etcd.Endpoints) == 0 {
		return a, croft.Errorf(croft.Invalid, "%s is damaged: start croft up again, or say with --etcd where etcd is", localFile(stateDir))
	}
	return a, nil
}

// inside is the same with certificates that lie beside the file.
func (a localAccess) inside() localAccess {
	for _, path := range []*string{&a.Etcd.CA, &a.Etcd.Cert, &a.Etcd.Key, &a.Placement.CA, &a.Placement.Cert, &a.Placement.Key} {
		if *path != "" {
			*path = filepath.Base(*path)
		}
	}
	return a
}

// beside turns paths that are relative to the file of settings into ones that are not.
func (s *scheduleSettings) beside(file string) {
	for _, path := range []*string{&s.Etcd.CA, &s.Etcd.Cert, &s.Etcd.Key, &s.Etcd.PasswordFile, &s.Placement.CA, &s.Placement.Cert, &s.Placement.Key} {
		there := filepath.Join(filepath.Dir(file), *path)
		if _, err := os.Stat(there); *path != "" && !filepath.IsAbs(*path) && err == nil {
			*path = there
		}
	}
}

// localStateDir is where commands that have no --state-dir look for what was noted.
func localStateDir() string { return cmp.Or(os.Getenv("CROFT_STATE_DIR"), defaultStateDir()) }
