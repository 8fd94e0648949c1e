package trust

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/durable"
	"croft/internal/settings"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// Membership is the cloud that a host joined. It is stored in the state directory, readable only by root, and
// takes precedence over the settings. A nil *Membership stands for a host that did not join.
type Membership struct {
	Partition croft.PartitionID `yaml:"partition"`
	Etcd      struct {
		Endpoints []string `yaml:"endpoints"`
		CA        string   `yaml:"ca"` // in PEM
		// Member: this host also runs a server of it. Insecure: without certificates.
		Member   bool `yaml:"member,omitempty"`
		Insecure bool `yaml:"insecure,omitempty"`
	} `yaml:"etcd"`
	Placement struct {
		Endpoint string `yaml:"endpoint"` // several with commas
		Token    string `yaml:"token"`
	} `yaml:"placement"`
	// Servers are where the host renews its certificates, HOST:PORT; none if the cloud named none. They are
	// written under their former name, which the previous version reads.
	Servers []string `yaml:"control,omitempty"`
	Join    []string `yaml:"join,omitempty"` // Servers under their new name; read only
	// Trust is Strict if the host reaches only the gate; then it holds no credentials of etcd and Placement.
	Trust string `yaml:"trust,omitempty"`
}

// MembershipFile returns the file of the Membership in a state directory.
func MembershipFile(stateDir string) string { return filepath.Join(stateDir, "joined.yaml") }

// ReadMembership returns the membership of the host of a state directory; nil if it did not join.
func ReadMembership(stateDir string) (*Membership, error) {
	file := MembershipFile(stateDir)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	noEnvironment := func(string) (string, bool) { return "", false }
	j, _, err := settings.Load(Membership{}, settings.Source{File: file, Env: noEnvironment})
	if err != nil {
		return nil, err
	}
	if len(j.Join) > 0 {
		j.Servers, j.Join = j.Join, nil
	}
	return &j, nil
}

// Write replaces the file. No other croft may run in the directory.
func (j Membership) Write(stateDir string) error {
	text, err := yaml.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode what was joined: %w", err)
	}
	const comment = "# Written by croft up, and read by it. It has a secret in it.\n"
	return durable.Write(MembershipFile(stateDir), append([]byte(comment), text...), 0o600)
}

// HasCertificates reports whether the host got certificates from the cloud's authority.
func (j *Membership) HasCertificates() bool { return j != nil && len(j.Servers) > 0 }

// IsMember reports whether the host also serves the cloud's etcd.
func (j *Membership) IsMember() bool { return j != nil && j.Etcd.Member }

// IsStrict reports whether agents of the cloud reach only the gate.
func (j *Membership) IsStrict() bool { return j != nil && j.Trust == Strict }

// At returns an address of the cloud, for messages.
func (j *Membership) At() string {
	for _, address := range append(j.Etcd.Endpoints, j.Servers...) {
		return address
	}
	return "an unknown address"
}

// ErrOther says that etcd holds another cloud than the one that was joined.
func (j *Membership) ErrOther() error {
	return croft.Errorf(croft.Conflict, "etcd at %s holds another cloud than the one that this host joined: "+
		"join that with --join, in another --state-dir", j.At())
}

// Take records what a token granted.
func (j *Membership) Take(g invitation.Grant) {
	j.Etcd.Endpoints = g.Endpoints
	j.Placement.Endpoint, j.Placement.Token = g.Placement, g.Token
}

// With returns the membership with the given members, which serve etcd and Placement, and whether it changed. A host
// that did not join stays without a membership until a second etcd endpoint exists.
func (j *Membership) With(all []croft.EtcdMember, p croft.PartitionID) (*Membership, bool) {
	var etcd, placement []string
	for _, m := range all {
		etcd = append(etcd, m.Clients...)
		if m.Placement != "" {
			placement = append(placement, m.Placement)
		}
	}
	if len(etcd) == 0 || j.Partition == "" && len(etcd) < 2 {
		return j, false
	}
	next := *j
	next.Partition, next.Etcd.Endpoints = p, etcd
	if next.Placement.Token != "" {
		next.Placement.Endpoint = strings.Join(placement, ",")
	}
	return &next, j.Partition == "" || !slices.Equal(next.Etcd.Endpoints, j.Etcd.Endpoints) ||
		next.Placement.Endpoint != j.Placement.Endpoint
}

// Credentials returns the certificates that the host of a state directory got when it
// joined; nil if the cloud gives none. Unavailable: one has expired.
func (j *Membership) Credentials(stateDir string, host croft.HostID, log *slog.Logger) (*Credentials, error) {
	if !j.HasCertificates() {
		return nil, nil
	}
	t := &Credentials{Partition: j.Partition, Host: host, stateDir: stateDir, log: log}
	for _, a := range pki.Authorities {
		files := t.Files(a)
		if !files.Exists() {
			continue
		}
		left, err := files.Remaining()
		if err != nil {
			return nil, err
		}
		if left <= 0 {
			return nil, errExpired(files, left)
		}
		t.uses = append(t.uses, a)
	}
	t.issuer = NewClient(j.Servers, t.Client(pki.Hosts))
	return t, nil
}

// Servers lists the cloud's join servers.
type Servers interface {
	JoinServers(ctx context.Context) ([]JoinServer, error)
}

// FollowServers updates where a host that joined renews its certificates. If the store lists no server the
// present ones stay.
func (j *Membership) FollowServers(ctx context.Context, t *Credentials, store Servers) error {
	if !t.IsJoined() {
		return nil
	}
	servers, err := store.JoinServers(ctx)
	if err != nil {
		return err
	}
	var addresses []string
	for _, s := range servers {
		if s.Trust != "" {
			addresses = append(addresses, s.Addresses...)
		}
	}
	if len(addresses) == 0 || slices.Equal(addresses, j.Servers) {
		return nil
	}
	j.Servers = addresses
	t.issuer = NewClient(j.Servers, t.Client(pki.Hosts))
	return j.Write(t.stateDir)
}

// gatesFile returns the file in which a host stores the addresses of the cloud's gates.
func gatesFile(stateDir string) string { return filepath.Join(stateDir, "gates") }

// KeepGates stores the addresses of the cloud's gates for the next start.
func KeepGates(stateDir string, gates []string) error {
	return durable.Write(gatesFile(stateDir), []byte(strings.Join(gates, "\n")+"\n"), 0o644)
}

// Gates returns the URLs of the gates that the host knows: the stored ones, and where it joined. A lost file
// costs only the stored ones.
func (j *Membership) Gates(stateDir string) []string {
	text, _ := os.ReadFile(gatesFile(stateDir))
	return j.GateURLs(strings.Fields(string(text)))
}

// Endpoints returns the URLs at which the host of a state directory reaches the cloud: of gates, or of etcd.
func (j *Membership) Endpoints(stateDir string) []string {
	switch {
	case j == nil:
		return nil
	case j.IsStrict():
		return j.Gates(stateDir)
	}
	return j.Etcd.Endpoints
}

// GateURLs returns the URLs of these gates, and of the servers where the host joined.
func (j *Membership) GateURLs(gates []string) (urls []string) {
	for _, address := range append(slices.Clone(gates), j.Servers...) {
		if url := "https://" + address; !slices.Contains(urls, url) {
			urls = append(urls, url)
		}
	}
	return urls
}
