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
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/cli/out"
	"croft/cloud/direct"
	"croft/compute"
	"croft/etcdstore"
	"croft/internal/durable"
	"croft/internal/endpoint"
	"croft/internal/settings"
	"croft/trust/invitation"
	"croft/trust/pki"
)

// membership is what a host knows of the cloud that it joined. It is kept in the state
// directory, where root alone reads it, and goes over the settings.
type membership struct {
	Partition croft.PartitionID `yaml:"partition"`
	Etcd      struct {
		Endpoints []string `yaml:"endpoints"`
		CA        string   `yaml:"ca"` // its text
		// Member: this host runs a server of it too. Insecure: that is meant to be open.
		Member   bool `yaml:"member,omitempty"`
		Insecure bool `yaml:"insecure,omitempty"`
	} `yaml:"etcd"`
	Placement struct {
		Endpoint string `yaml:"endpoint"` // several with commas
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

// over returns the settings of a host that joined. What it serves listens where the
// others reach it, unless the settings say where.
func (j *membership) over(s hostSettings) hostSettings {
	if j == nil {
		return s
	}
	s.Etcd.EtcdSettings, s.Others = j.etcd(s), j.Etcd.Endpoints
	if j.isStrict() {
		s.Others = j.gateURLs(s.StateDir)
	} else if j.hasCertificates() && endpoint.IsTLS(j.Placement.Endpoint) {
		s.Placement.TLS = certificates(s.StateDir, pki.Hosts).Client(j.Partition, pki.Kinds(pki.Member))
	}
	if j.Placement.Endpoint != "" { // else OpenStack's, for which each host has settings of its own
		s.Placement.Endpoint = j.Placement.Endpoint
		if !j.Etcd.Member || s.Placement.Token == direct.DefaultToken { // who serves it may have been given another since
			s.Placement.Token = j.Placement.Token
		}
	}
	here := addressTowards(s.Others)
	byDefault := defaultHostSettings()
	towards(&s.API.Listen, byDefault.API.Listen, here)
	if j.Etcd.Member {
		s.Etcd.Insecure = s.Etcd.Insecure || j.Etcd.Insecure
		towards(&s.Etcd.Listen, byDefault.Etcd.Listen, here)
		towards(&s.Placement.Listen, byDefault.Placement.Listen, here)
	}
	return s
}

// towards has an address that is still the default one be of another interface.
func towards(listen *string, byDefault string, here netip.Addr) {
	if *listen == byDefault {
		_, port, _ := net.SplitHostPort(byDefault)
		*listen = net.JoinHostPort(here.String(), port)
	}
}

// hasCertificates tells whether the host got certificates from the cloud's authority.
func (j *membership) hasCertificates() bool { return j != nil && len(j.Control) > 0 }

// etcd is how the host reaches the others' etcd.
func (j *membership) etcd(s hostSettings) direct.EtcdSettings {
	e := s.Etcd.EtcdSettings
	e.Endpoints = j.Etcd.Endpoints
	if j.hasCertificates() && !j.isStrict() {
		e.TLS = certificates(s.StateDir, pki.Etcd).Client(j.Partition, pki.Kinds(pki.Member))
	} else if e.CA == "" {
		e.CAPEM = j.Etcd.CA
	}
	return e
}

// isAnother says that somebody else's etcd answers.
func (j *membership) isAnother() error {
	return croft.Errorf(croft.Conflict, "etcd at %s holds another cloud than the one that this host joined: join that with --join, in another --state-dir", j.at())
}

// joinedSettings are the settings of a command on a host that may have joined a cloud,
// and what it joined; nil where it did not, or where --etcd names another. On the
// host where a cloud began that cloud is found, wherever it listens.
func joinedSettings(cmd *cobra.Command, s hostSettings) (hostSettings, *membership, error) {
	if cmd.Flags().Changed(etcdFlag.flag) {
		return s, nil, nil
	}
	of, err := readJoined(s.StateDir)
	if err == nil && of == nil {
		err = direct.AddLocal(s.StateDir, &s.Etcd.EtcdSettings, &s.Placement.PlacementSettings)
	}
	if err != nil || of == nil {
		return s, nil, err
	}
	return of.over(s), of, nil
}

// join makes the host of a state directory one of the cloud that invites with the
// token, from its next start on, and where that is wanted one that serves its etcd too.
// Where it refuses, nothing has changed.
func join(ctx context.Context, s hostSettings, text string, member bool, words io.Writer) error {
	token, err := invitation.Parse(text)
	if err != nil {
		return err
	}
	before, err := mayJoin(s.StateDir, token.Partition)
	if err != nil {
		return err
	}
	if before.isMember() && etcdstore.IsMember(etcdDir(s.StateDir)) {
		// Asked again, etcd may not answer: it may wait for this very host.
		fmt.Fprintln(words, "this host serves that cloud already")
		return nil
	}
	if before != nil && !before.isMember() && hasEtcd(s.StateDir) {
		if err := withStateDir(s.StateDir, func(*compute.StateDir) error { return asideEtcd(s.StateDir) }); err != nil {
			return err // what a removal left that was cut short
		}
	}
	j := membership{Partition: token.Partition}
	j.Etcd.Member, j.Etcd.Insecure = member || before.isMember(), s.Etcd.Insecure
	if len(token.Control) > 0 {
		err := j.enrol(ctx, s, token)
		if errors.Is(err, croft.Conflict) && isEnrolled(s.StateDir) && before.isMember() == j.Etcd.Member {
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

func (j *membership) isMember() bool { return j != nil && j.Etcd.Member }

// mayServe finds what is missing for a host that is to serve etcd and Placement.
func (j *membership) mayServe(s hostSettings) error {
	if !j.Etcd.Member {
		return nil
	}
	if j.Placement.Endpoint == "" && s.Placement.Cloud == "" {
		return croft.Errorf(croft.Invalid, "the cloud uses OpenStack's Placement: set placement.cloud, with which this host reaches it")
	}
	s = j.over(s)
	if s.peerListen() == "" {
		return croft.Errorf(croft.Invalid, "etcd.peer_listen is not set, and etcd.listen (%s) has no port beside it that others reach: say where the other members reach this one", s.Etcd.Listen)
	}
	if j.hasCertificates() {
		return s.preparePlacement()
	}
	return errors.Join(s.checkEtcdListen(), s.preparePlacement())
}

// mayJoin refuses for a host that has a cloud of its own, or is of another one. It
// returns what the host joined before.
func mayJoin(stateDir string, p croft.PartitionID) (*membership, error) {
	before, err := readJoined(stateDir)
	if err != nil {
		return nil, err
	}
	if before == nil && hasEtcd(stateDir) {
		return nil, croft.Errorf(croft.Conflict, "%s has a cloud of its own, with its instances: destroy those and remove the directory, or give another with --state-dir", stateDir)
	}
	if before != nil && before.Partition != p {
		err = croft.Errorf(croft.Conflict, "%s is of another cloud, at %s: have it forgotten there (croft host forget) and remove the directory, or give another with --state-dir",
			stateDir, before.at())
	}
	return before, err
}

// accept exchanges the token for what it grants, at an etcd that the host may ask by
// itself, and notes it.
func (j *membership) accept(ctx context.Context, s hostSettings, token invitation.Token) (err error) {
	s.Etcd.Endpoints = token.Endpoints
	if s.Etcd.CA == "" {
		s.Etcd.CAPEM = token.CA
	}
	store, err := s.Etcd.Open(ctx, false)
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
	if err := j.mayServe(s); err != nil {
		return err
	}
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

// write replaces the file. No other croft runs there meanwhile.
func (j membership) write(stateDir string) error {
	text, err := yaml.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode what was joined: %w", err)
	}
	const comment = "# Written by croft up, and read by it. It has a secret in it.\n"
	return durable.Write(joinedFile(stateDir), append([]byte(comment), text...), 0o600)
}

// tokenFrom is the token that --join names: - for a line of the input, @ and a file.
func tokenFrom(given string, stdin io.Reader, words io.Writer) (string, error) {
	if given != "-" {
		return tokenInFile("--join", given, "on the input with --join -")
	}
	if out.IsTerminal(stdin) {
		fmt.Fprint(words, "the token: ")
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, 1<<16)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return line, nil
}

// tokenInFile is the token in the file that a flag names after an @. Invalid: it was given
// the token itself, for which it names another way too.
func tokenInFile(flag, given, otherwise string) (string, error) {
	file, ok := strings.CutPrefix(given, "@")
	if !ok { // not repeated: it is a secret, if a spoiled one
		return "", croft.Errorf(croft.Invalid, "%s: other users of this machine see its command lines, so a token has no place there: give it %s, or in a file with %[1]s @FILE", flag, otherwise)
	}
	return direct.ReadSecret(flag, file)
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
