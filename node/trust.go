package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/internal/endpoint"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/gate"
	"croft/trust/pki"
)

// trustConfig says which certificates a host keeps.
func trustConfig(s *settings.Settings, stateDir string, host croft.HostID, log *slog.Logger) trust.Config {
	return trust.Config{
		StateDir: stateDir, Host: host, Uses: s.Authorities(), Names: s.OwnNames(), Life: s.Join.CertificateLife,
		Log: log,
	}
}

// trustForEtcd returns the credentials that etcd needs in order to listen; nil if it
// needs none. The partition is in etcd: before there is an authority, etcd is started for
// a moment on an address that nobody knows.
func trustForEtcd(ctx context.Context, s *settings.Settings, dir *compute.StateDir,
	log *slog.Logger) (*trust.Credentials, error) {
	if !s.OwnsEtcdTrust() {
		return nil, nil
	}
	p, err := trust.AuthorityPartition(dir.Path)
	if errors.Is(err, croft.NotFound) {
		p, err = partitionIn(ctx, filepath.Join(dir.Path, "etcd"))
	}
	if err != nil {
		return nil, err
	}
	return beginTrust(ctx, s, dir, p, log)
}

// beginTrust opens or makes the authority of the cloud that began on this host, and the
// certificates that its settings ask for.
func beginTrust(ctx context.Context, s *settings.Settings, dir *compute.StateDir, p croft.PartitionID,
	log *slog.Logger) (*trust.Credentials, error) {
	id, err := dir.HostID()
	if err != nil {
		return nil, err
	}
	return trust.Begin(ctx, trustConfig(s, dir.Path, id, log), p)
}

// partitionIn begins or reads the cloud whose etcd has its data in a directory.
func partitionIn(ctx context.Context, dir string) (p croft.PartitionID, err error) {
	etcd, err := etcdstore.StartEmbedded(ctx, etcdstore.EmbeddedConfig{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		return "", err
	}
	defer etcd.Close()
	store, err := etcdstore.Open(ctx, etcdstore.Config{Embedded: etcd, Mint: true})
	if err != nil {
		return "", err
	}
	return store.Partition(), store.Close()
}

// keepRenewed renews the certificates as long as the parts run.
func keepRenewed(ctx context.Context, p *Parts, own *trust.Credentials) {
	for _, k := range own.Keepers() {
		p.Start(ctx, "the certificate of "+string(k.Files.Authority), k.Run)
	}
}

// startTrust renews this host's certificates and publishes the authority. own is what
// etcd needed already, or nil.
func startTrust(ctx context.Context, s *settings.Settings, p *Parts, own *trust.Credentials, dir *compute.StateDir,
	store *etcdstore.Store, log *slog.Logger) (*trust.Credentials, error) {
	if own == nil {
		var err error
		if own, err = beginTrust(ctx, s, dir, store.Partition(), log); err != nil {
			return nil, err
		}
	}
	p.Self.Counts(own)
	keepRenewed(ctx, p, own)
	if own.HasAny() {
		if err := own.Publish(ctx, store); err != nil {
			return nil, err
		}
		p.Start(ctx, "the authority that is told", func(ctx context.Context) error {
			return own.KeepPublished(ctx,
				store)
		})
	}
	return own, nil
}

// admission returns the check that forgotten hosts are kept out with.
func admission(own *trust.Credentials, store *etcdstore.Store) *trust.Admission {
	return &trust.Admission{Self: own.Host, Store: store, Files: own.HostFiles()}
}

// startJoins serves hosts that join, where the settings say.
func startJoins(ctx context.Context, s *settings.Settings, p *Parts, own *trust.Credentials, admitted *trust.Admission,
	store *etcdstore.Store, log *slog.Logger) error {
	if s.JoinListen() == "" {
		return store.PutJoinServer(ctx, own.Host, trust.JoinServer{})
	}
	l, at, err := listenForHosts(ctx, s)
	if err != nil {
		return err
	}
	strict := s.Trust == trust.Strict
	server := &trust.Server{Credentials: own, Store: store, Admission: admitted, Strict: strict, Log: log}
	is := trust.JoinServer{Addresses: []string{at}, Trust: joinMode(s, own)}
	mux := http.NewServeMux()
	mux.Handle("/", server.Handler())
	if strict {
		agents, err := startGate(ctx, s, p, own.Host, admitted, store, log)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		mux.Handle(gate.Prefix, agents)
		is.Agents = is.Addresses
	}
	if err := store.PutJoinServer(ctx, own.Host, is); err != nil {
		return errors.Join(err, l.Close())
	}
	serveHosts(ctx, s, p, own, l, mux)
	return nil
}

// listenForHosts listens at join.listen. It returns where hosts reach that, too.
func listenForHosts(ctx context.Context, s *settings.Settings) (l net.Listener, at string, err error) {
	if l, err = Listen(ctx, s.JoinListen(), "join.listen"); err != nil {
		return nil, "", err
	}
	return l, hostPort(endpoint.Outward("https://" + l.Addr().String())), nil
}

// serveHosts serves mux to hosts over TLS.
func serveHosts(ctx context.Context, s *settings.Settings, p *Parts, own *trust.Credentials, l net.Listener,
	mux *http.ServeMux) {
	p.Self.Serves(mux, s.JoinListen())
	l, _ = own.Listener(l, true)
	p.Start(ctx, "the join server", func(ctx context.Context) error { return Serve(ctx, l, mux) })
}

// joinMode is what hosts that join here may reach: the gate, or an etcd that takes the
// certificates of the cloud's authority; empty: none may join.
func joinMode(s *settings.Settings, own *trust.Credentials) string {
	if s.Trust == trust.Strict || own.Has(pki.Etcd) {
		return s.Trust
	}
	return ""
}

// hostPort is the part of a URL that one can connect to.
func hostPort(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return u.Host
}

// joinedCredentials returns the certificates of a host that joined; nil if it has none.
func joinedCredentials(j *trust.Membership, stateDir string, log *slog.Logger) (*trust.Credentials, error) {
	if !j.HasCertificates() {
		return nil, nil
	}
	id, err := compute.ReadHostID(stateDir, false)
	if err != nil {
		return nil, err
	}
	return j.Credentials(stateDir, id, log)
}

// mayServe refuses a host that was forgotten since it joined: etcd would let it in, and
// the join server would refuse all that it asks. NotFound.
func mayServe(ctx context.Context, own *trust.Credentials, store cloud) error {
	switch store := store.(type) {
	case *etcdstore.Store:
		if own != nil {
			return (&trust.Admission{Store: store}).Look(ctx, pki.MemberIdentity(own.Partition, own.Host))
		}
	case *gate.Client:
		ctx, cancel := context.WithTimeout(ctx, gateAnswers)
		defer cancel()
		if err := store.Usable(ctx); errors.Is(err, gate.ErrRefused) {
			return croft.Errorf(croft.NotFound, "%w", err)
		}
	}
	return nil // a gate that does not answer is reported later, again and again
}

// followServers learns where a host that reaches etcd renews its certificates now.
func followServers(ctx context.Context, of *trust.Membership, own *trust.Credentials, store cloud) error {
	if etcd, direct := store.(*etcdstore.Store); direct {
		return of.FollowServers(ctx, own, etcd)
	}
	return nil
}

// keepJoined renews the certificates of a host that joined, and notes them for commands.
func keepJoined(ctx context.Context, s *settings.Settings, p *Parts, own *trust.Credentials) error {
	if own == nil {
		return nil
	}
	if err := writeLocal(s, own); err != nil {
		return err
	}
	p.Self.Counts(own)
	keepRenewed(ctx, p, own)
	return nil
}

// CredentialsOnDisk returns the certificates in a state directory, whether croft runs
// there or not. NotFound: there are none.
func CredentialsOnDisk(s *settings.Settings) (*trust.Credentials, error) {
	quiet := slog.New(slog.DiscardHandler)
	j, err := trust.ReadMembership(s.StateDir)
	if err != nil {
		return nil, err
	}
	if j != nil && !trust.HasAuthority(s.StateDir) {
		own, err := joinedCredentials(j, s.StateDir, quiet)
		if err == nil && own == nil {
			err = croft.Errorf(croft.NotFound, "this host joined a cloud that gives no certificates")
		}
		return own, err
	}
	if _, err := trust.AuthorityPartition(s.StateDir); err != nil {
		return nil, err // before it is asked for the host's ID
	}
	id, err := compute.ReadHostID(s.StateDir, false)
	if err != nil {
		return nil, err
	}
	return trust.OfAuthority(trustConfig(s, s.StateDir, id, quiet))
}
