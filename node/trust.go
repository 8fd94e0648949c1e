package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/node/settings"
	"croft/trust"
)

// trustConfig returns the configuration of the certificates that a host keeps.
func trustConfig(s *settings.Settings, v settings.Servers, stateDir string, host croft.HostID,
	log *slog.Logger) trust.Config {
	return trust.Config{
		StateDir: stateDir, Host: host, Uses: v.Authorities(), Names: v.Names(),
		Life: s.Join.CertificateLife, Log: log,
	}
}

// trustForEtcd returns the credentials that etcd needs in order to listen; nil: it needs none. Certificates contain the
// partition, which is in etcd: at the first start etcd briefly runs on a random port.
func trustForEtcd(ctx context.Context, s *settings.Settings, v settings.Servers, dir *compute.StateDir,
	log *slog.Logger) (*trust.Credentials, error) {
	if !v.OwnsEtcdTrust() {
		return nil, nil
	}
	p, err := trust.AuthorityPartition(dir.Path)
	if errors.Is(err, croft.NotFound) {
		p, err = partitionIn(ctx, filepath.Join(dir.Path, "etcd"))
	}
	if err != nil {
		return nil, err
	}
	return beginTrust(ctx, s, v, dir, p, log)
}

// beginTrust opens or creates the authority of a cloud that was created on this host, and the certificates that its
// settings require.
func beginTrust(ctx context.Context, s *settings.Settings, v settings.Servers, dir *compute.StateDir,
	p croft.PartitionID, log *slog.Logger) (*trust.Credentials, error) {
	id, err := dir.HostID()
	if err != nil {
		return nil, err
	}
	return trust.Begin(ctx, trustConfig(s, v, dir.Path, id, log), p)
}

// partitionIn returns the partition in the etcd data of a directory; in an empty directory it creates one.
func partitionIn(ctx context.Context, dir string) (p croft.PartitionID, err error) {
	etcd, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Listen: "127.0.0.1:0"})
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

// keepRenewed renews the certificates while the parts run.
func keepRenewed(ctx context.Context, p *Parts, own *trust.Credentials) {
	for _, k := range own.Keepers() {
		p.Start(ctx, "the certificate of "+string(k.Files.Authority), k.Run)
	}
}

// startTrust renews this host's certificates and publishes the authority. It sets the credentials, unless etcd needed
// them already.
func (s *serving) startTrust(ctx context.Context, p *Parts, store *etcdstore.Store) (err error) {
	if s.own == nil {
		if s.own, err = beginTrust(ctx, s.settings, s.servers, s.dir, store.Partition(), s.log); err != nil {
			return err
		}
	}
	own := s.own
	p.Self.Counts(own)
	keepRenewed(ctx, p, own)
	if own.HasAny() {
		if err := own.Publish(ctx, store.Trust); err != nil {
			return err
		}
		p.Start(ctx, "the authority that is told", func(ctx context.Context) error {
			return own.KeepPublished(ctx, store.Trust)
		})
	}
	return nil
}

// admission returns the check that refuses forgotten hosts.
func admission(own *trust.Credentials, store *etcdstore.Store) *trust.Admission {
	return &trust.Admission{Self: own.Host, Store: store.Trust, Known: store.Registry, Files: own.HostFiles()}
}

// joinedCredentials returns the certificates of a joined host; nil: it has none.
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

// CredentialsOnDisk returns the certificates in a state directory, whether or not croft runs there. NotFound: there are
// none.
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
		return nil, err // before the host's ID is needed
	}
	id, err := compute.ReadHostID(s.StateDir, false)
	if err != nil {
		return nil, err
	}
	return trust.OfAuthority(trustConfig(s, s.Servers(nil), s.StateDir, id, quiet))
}
