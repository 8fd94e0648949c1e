package direct

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/adrg/xdg"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/durable"
	"croft/internal/endpoint"
)

// The etcd and the Placement that croft up runs ask for certificates. croft up therefore notes the addresses and the
// credentials for root on the same machine; it notes nothing with etcd.insecure, where the defaults fit.

// Local is that note. Its fields have the names of schedule.yaml.
type Local struct {
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
	Clusters struct {
		// The key files that the settings of croft up name. Empty: the file in the state directory.
		CredentialKeyFile []string `yaml:"credential_key_file,omitempty"`
	} `yaml:"clusters,omitempty"`
	// The file of fence agents that the settings of croft up name.
	Fence string `yaml:"fence,omitempty"`
}

// ClusterKey is the file with the key that seals secrets of clusters, if the settings name no key.
func ClusterKey(stateDir string) string { return filepath.Join(stateDir, "cluster.key") }

// OnlyHere reports whether only this machine can reach etcd or Placement at the addresses of the note. Other machines
// need to reach one member of etcd.
func (a Local) OnlyHere() bool {
	reachable := slices.ContainsFunc(a.Etcd.Endpoints, func(one string) bool {
		return !endpoint.AnyLoopback([]string{one})
	})
	return !reachable || endpoint.AnyLoopback([]string{a.Placement.Endpoint})
}

func LocalFile(stateDir string) string { return filepath.Join(stateDir, "local.yaml") }

func (a Local) Write(file, comment string) error {
	text, err := yaml.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode how the cloud is reached: %w", err)
	}
	return durable.Write(file, append([]byte(comment), text...), 0o600)
}

// AddLocal applies the note of this machine if no setting says where the cloud is; without a note, etcd has the default
// address. Denied: there may be a note, but only root may read it.
func AddLocal(stateDir string, etcd *EtcdSettings, placement *PlacementSettings) error {
	defer etcd.SetDefault()
	return AddNote(stateDir, etcd, placement)
}

// AddNote applies the note of this machine as AddLocal does; without a note, it sets nothing.
func AddNote(stateDir string, etcd *EtcdSettings, placement *PlacementSettings) error {
	if !etcd.unset() {
		return nil
	}
	a, err := ReadLocal(stateDir)
	if errors.Is(err, croft.NotFound) && stateDir == DefaultStateDir() {
		stateDir = MachineDir // root's note
		a, err = ReadLocal(stateDir)
	}
	switch {
	case errors.Is(err, croft.NotFound):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return croft.Errorf(croft.Denied, "root and the group croft operate the cloud of this machine, and you are neither: use "+
			"sudo, or have root make you an operator (usermod -aG croft NAME, or croft ca issue --operator NAME), or say "+
			"with --etcd where another cloud is")
	case err != nil:
		return err
	}
	etcd.Endpoints, etcd.CA, etcd.Cert, etcd.Key = a.Etcd.Endpoints, a.Etcd.CA, a.Etcd.Cert, a.Etcd.Key
	etcd.SealKeys, etcd.FenceFile = a.Clusters.CredentialKeyFile, a.Fence
	if own := ClusterKey(stateDir); len(etcd.SealKeys) == 0 && exists(own) {
		etcd.SealKeys = []string{own}
	}
	if placement.Endpoint == "" && placement.Cloud == "" && placement.Token == DefaultToken {
		p := a.Placement
		placement.Endpoint, placement.Token, placement.CA, placement.Cert, placement.Key = p.Endpoint, p.Token, p.CA,
			p.Cert,
			p.Key
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// unset reports whether no setting says where etcd is.
func (s EtcdSettings) unset() bool {
	return len(s.Endpoints) == 0 && s.CA == "" && s.Cert == ""
}

// Unset reports whether no setting says where the cloud is.
func (s *Settings) Unset() bool {
	return !s.Settings.Set() && s.Etcd.unset() && s.Placement.Endpoint == "" && s.Placement.Cloud == ""
}

// ReadLocal returns the note. NotFound: there is no note.
func ReadLocal(stateDir string) (a Local, err error) {
	text, err := os.ReadFile(LocalFile(stateDir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return a, croft.Errorf(croft.NotFound, "there is no cloud with certificates in %s: start croft up there without "+
			"etcd.insecure", stateDir)
	}
	if err != nil {
		return a, fmt.Errorf("read how the cloud is reached: %w", err)
	}
	if err := yaml.Unmarshal(text, &a); err != nil || len(a.Etcd.Endpoints) == 0 {
		return a, croft.Errorf(croft.Invalid, "%s is damaged: start croft up again, or say with --etcd where etcd is",
			LocalFile(stateDir))
	}
	return a, nil
}

// Inside returns the note for use on another machine: its certificates lie next to the file, and it has no keys of
// clusters, which stay on this machine.
func (a Local) Inside() Local {
	a.Clusters.CredentialKeyFile = nil
	for _, path := range []*string{&a.Etcd.CA, &a.Etcd.Cert, &a.Etcd.Key, &a.Placement.CA, &a.Placement.Cert,
		&a.Placement.Key} {
		if *path != "" {
			*path = filepath.Base(*path)
		}
	}
	return a
}

// Beside resolves paths relative to the settings file, so that they do not depend on the working directory.
func (s *Settings) Beside(file string) {
	for _, path := range []*string{&s.CA, &s.Etcd.CA, &s.Etcd.Cert, &s.Etcd.Key, &s.Etcd.PasswordFile, &s.Placement.CA,
		&s.Placement.Cert, &s.Placement.Key} {
		there := filepath.Join(filepath.Dir(file), *path)
		if _, err := os.Stat(there); *path != "" && !filepath.IsAbs(*path) && err == nil {
			*path = there
		}
	}
}

// LocalStateDir is where commands without --state-dir look for the note.
func LocalStateDir() string { return cmp.Or(os.Getenv("CROFT_STATE_DIR"), DefaultStateDir()) }

// MachineDir is the state directory of a croft that root runs. MachineSocket is the socket where it serves the API to
// the operators of the machine.
const (
	MachineDir    = "/var/lib/croft"
	MachineSocket = "/run/croft/api.sock"
)

// DefaultStateDir returns the machine's directory for root, and a directory of their own for other users.
func DefaultStateDir() string {
	if os.Geteuid() == 0 {
		return MachineDir
	}
	return filepath.Join(xdg.StateHome, "croft")
}
