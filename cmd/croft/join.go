package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/compute"
	"croft/internal/durable"
	"croft/internal/invitation"
	"croft/internal/pki"
	"croft/internal/settings"
)

// membership is what a host knows of the cloud that it joined. It is kept in the state
// directory, where root alone reads it, and goes over the settings.
type membership struct {
	Partition croft.PartitionID `yaml:"partition"`
	Etcd      struct {
		Endpoints []string `yaml:"endpoints"`
		CA        string   `yaml:"ca"` // its text
	} `yaml:"etcd"`
	Placement struct {
		Endpoint string `yaml:"endpoint"`
		Token    string `yaml:"token"`
	} `yaml:"placement"`
	// Control is where the host renews its certificates, HOST:PORT; none where the
	// cloud gave it none.
	Control []string `yaml:"control,omitempty"`
	// Trust is trustStrict where the host reaches control alone; it has nothing of etcd
	// and Placement then.
	Trust string `yaml:"trust,omitempty"`
}

func joinedFile(stateDir string) string { return filepath.Join(stateDir, "joined.yaml") }

// readJoined returns what the host of a state directory joined, nil where it did not.
func readJoined(stateDir string) (*membership, error) {
	file := joinedFile(stateDir)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	noEnvironment := func(string) (string, bool) { return "", false }
	j, _, err := settings.Load(membership{}, settings.Source{File: file, Env: noEnvironment})
	if err != nil {
		return nil, err
	}
	return &j, nil
}

// over returns the settings of a host that joined. Its API listens where the others
// reach it, unless the settings say where.
func (j *membership) over(s hostSettings) hostSettings {
	if j == nil {
		return s
	}
	s.Etcd.Endpoints, s.Others = j.Etcd.Endpoints, j.Etcd.Endpoints
	if j.isStrict() {
		s.Others = j.controlURLs()
	} else if len(j.Control) > 0 {
		member := pki.Kinds(pki.Member)
		s.Etcd.TLS = certificates(s.StateDir, pki.Etcd).Client(j.Partition, member)
		if isTLS(j.Placement.Endpoint) {
			s.Placement.TLS = certificates(s.StateDir, pki.Hosts).Client(j.Partition, member)
		}
	} else if s.Etcd.CA == "" {
		s.Etcd.CAPEM = j.Etcd.CA
	}
	if j.Placement.Endpoint != "" { // else OpenStack's, for which each host has settings of its own
		s.Placement.Endpoint, s.Placement.Token = j.Placement.Endpoint, j.Placement.Token
	}
	if s.API.Listen == defaultHostSettings().API.Listen {
		_, port, _ := net.SplitHostPort(s.API.Listen)
		s.API.Listen = net.JoinHostPort(addressTowards(s.Others).String(), port)
	}
	return s
}

// joinedSettings are the settings of a command on a host that may have joined a cloud,
// and which one that is; empty where it did not, or where --etcd names another. On the
// host where a cloud began that cloud is found, wherever it listens.
func joinedSettings(cmd *cobra.Command, s hostSettings) (hostSettings, croft.PartitionID, error) {
	if cmd.Flags().Changed(etcdFlag.flag) {
		return s, "", nil
	}
	of, err := readJoined(s.StateDir)
	if err == nil && of == nil {
		err = addLocal(s.StateDir, &s.Etcd.EtcdSettings, &s.Placement.PlacementSettings)
	}
	if err != nil || of == nil {
		return s, "", err
	}
	return of.over(s), of.Partition, nil
}

// join makes the host of a state directory one of the cloud that invites with the
// token, from its next start on. Where it refuses, nothing has changed.
func join(ctx context.Context, s hostSettings, text string, words io.Writer) error {
	token, err := invitation.Parse(text)
	if err != nil {
		return err
	}
	if err := mayJoin(s.StateDir, token.Partition); err != nil {
		return err
	}
	j := membership{Partition: token.Partition}
	if len(token.Control) > 0 {
		err := j.enrol(ctx, s, token)
		if errors.Is(err, croft.Conflict) && isEnrolled(s.StateDir) {
			fmt.Fprintln(words, "this host is one of that cloud already")
			return nil
		}
		if err != nil {
			return err
		}
	} else if err := j.accept(ctx, s, token); err != nil {
		return err
	}
	fmt.Fprintf(words, "this host is one of the cloud at %s from now on; croft up needs no token again\n", j.at())
	return nil
}

// isEnrolled tells whether a host joined before and its certificates still count.
func isEnrolled(stateDir string) bool {
	j, err := readJoined(stateDir)
	if err != nil || j == nil || len(j.Control) == 0 {
		return false
	}
	_, err = j.trust(stateDir, slog.New(slog.DiscardHandler))
	return err == nil
}

// mayJoin refuses for a host that has a cloud of its own, or is of another one.
func mayJoin(stateDir string, p croft.PartitionID) error {
	if _, err := os.Stat(filepath.Join(stateDir, "etcd")); err == nil {
		return croft.Errorf(croft.Conflict, "%s has a cloud of its own, with its instances: destroy those and remove the directory, or give another with --state-dir", stateDir)
	}
	before, err := readJoined(stateDir)
	if err == nil && before != nil && before.Partition != p {
		err = croft.Errorf(croft.Conflict, "%s is of another cloud, at %s: have it forgotten there (croft host forget) and remove the directory, or give another with --state-dir",
			stateDir, before.at())
	}
	return err
}

// accept exchanges the token for what it grants, at an etcd that the host may ask by
// itself, and notes it.
func (j *membership) accept(ctx context.Context, s hostSettings, token invitation.Token) (err error) {
	s.Etcd.Endpoints = token.Endpoints
	if s.Etcd.CA == "" {
		s.Etcd.CAPEM = token.CA
	}
	store, err := s.Etcd.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if store.Partition() != token.Partition {
		return croft.Errorf(croft.Invalid, "etcd at %s holds another cloud than the one that this token is of: make another with `croft token create`", token.Endpoints[0])
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	invited, err := store.Invitation(ctx, token.Name())
	if err != nil {
		return err
	}
	grant, err := token.Open(invited.Sealed)
	if err != nil {
		return err
	}
	grant.Endpoints = token.Endpoints
	j.Etcd.CA = token.CA
	j.take(grant)
	return withStateDir(s.StateDir, func(*compute.StateDir) error { return j.write(s.StateDir) })
}

// take notes what was granted.
func (j *membership) take(g invitation.Grant) {
	j.Etcd.Endpoints = g.Endpoints
	j.Placement.Endpoint, j.Placement.Token = g.Placement, g.Token
}

// withStateDir does something while no croft runs in a state directory.
func withStateDir(path string, do func(*compute.StateDir) error) (err error) {
	dir, err := compute.OpenStateDir(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return do(dir)
}

// write replaces the file. No croft runs there meanwhile.
func (j membership) write(stateDir string) error {
	text, err := yaml.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode what was joined: %w", err)
	}
	const comment = "# Written by croft up --join, and read by croft up. It has a secret in it.\n"
	return durable.Write(joinedFile(stateDir), append([]byte(comment), text...), 0o600)
}

// tokenFrom is the token that --join names: itself, or - for a line of the input.
func tokenFrom(given string, stdin io.Reader) (string, error) {
	if given != "-" {
		return given, nil
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, 1<<16)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return line, nil
}

// addressTowards is the address by which this machine reaches the first of the
// endpoints that it has a route to.
func addressTowards(endpoints []string) netip.Addr {
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			continue
		}
		c, err := net.Dial("udp", u.Host) // sends nothing: it only picks a route
		if err != nil {
			continue
		}
		local, err := netip.ParseAddrPort(c.LocalAddr().String())
		_ = c.Close()
		if err == nil {
			return local.Addr().Unmap()
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
