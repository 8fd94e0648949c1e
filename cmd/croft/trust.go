package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/internal/endpoint"
	"croft/trust/gate"
	"croft/trust/pki"
)

// controlPort is where control listens beside an etcd that others reach.
const controlPort = "8777"

func caDir(stateDir string) string { return filepath.Join(stateDir, "ca") }

// certificates are the files of a host's certificate of an authority.
func certificates(stateDir string, a pki.Authority) pki.Files {
	return pki.Files{Dir: filepath.Join(stateDir, "tls"), Authority: a}
}

// trust is what a process has to prove who it is, and to know the others by. Nil is
// that of one which has no certificates.
type trust struct {
	partition croft.PartitionID
	host      croft.HostID
	stateDir  string
	issuer    pki.Issuer
	ca        *pki.CA         // on the host that has the authority; else nil
	uses      []pki.Authority // that this host has certificates of
	admitted  *admitted       // where hosts come to this process
	log       *slog.Logger
}

// ownsEtcdTrust tells whether our etcd is to be reached from other machines, with
// certificates of the cloud's own authority.
func (s *hostSettings) ownsEtcdTrust() bool {
	return s.beyond(s.Etcd.Listen) && s.Etcd.ListenCert == "" && s.Etcd.ListenKey == "" && s.Etcd.ListenClientCA == ""
}

// beyond tells whether an address is to be reached from other machines, and so with TLS.
func (s *hostSettings) beyond(address string) bool {
	return !endpoint.IsLoopback(address) && !s.Etcd.Insecure
}

// controlListen is where control listens, empty where it does not.
func (s *hostSettings) controlListen() string {
	if s.Control.Listen != "" || !s.ownsEtcdTrust() {
		return s.Control.Listen
	}
	host, _, _ := net.SplitHostPort(s.Etcd.Listen)
	return net.JoinHostPort(host, controlPort)
}

// authorities are those that a host with these settings needs certificates of.
func (s *hostSettings) authorities() []pki.Authority {
	var all []pki.Authority
	if s.ownsEtcdTrust() {
		all = append(all, pki.Etcd)
	}
	if s.controlListen() != "" || s.beyond(s.API.Listen) || s.servesPlacement() && s.beyond(s.Placement.Listen) {
		all = append(all, pki.Hosts)
	}
	return all
}

// trustForEtcd is the trust that etcd needs to listen, nil where it needs none. It tells
// its partition only once it runs; so where there is no authority yet, it is asked on an
// address that nobody else knows.
func (s *hostSettings) trustForEtcd(ctx context.Context, dir *compute.StateDir, log *slog.Logger) (*trust, error) {
	if !s.ownsEtcdTrust() {
		return nil, nil
	}
	var p croft.PartitionID
	ca, err := pki.FindCA(caDir(dir.Path))
	if errors.Is(err, croft.NotFound) {
		p, err = partitionIn(ctx, filepath.Join(dir.Path, "etcd"))
	} else if err == nil {
		p = ca.Partition
	}
	if err != nil {
		return nil, err
	}
	return s.beginTrust(ctx, dir, p, log)
}

// beginTrust opens or makes the authority of the cloud that began on this host, and
// what certificates its settings ask for.
func (s *hostSettings) beginTrust(ctx context.Context, dir *compute.StateDir, p croft.PartitionID, log *slog.Logger) (*trust, error) {
	ca, err := pki.OpenCA(caDir(dir.Path), p)
	if err != nil {
		return nil, err
	}
	ca.Life = s.Control.CertificateLife
	id, err := dir.HostID()
	if err != nil {
		return nil, err
	}
	t := &trust{
		partition: ca.Partition, host: id, stateDir: dir.Path, ca: ca, uses: s.authorities(), log: log,
		issuer: ca.For(pki.MemberIdentity(ca.Partition, id), s.ownNames()...),
	}
	return t, errors.Join(t.ensure(ctx), t.tidy())
}

// tidy removes the certificates that this host has no more use for, and which nobody
// would renew.
func (t *trust) tidy() error {
	var errs []error
	for _, a := range pki.Authorities {
		if !t.has(a) {
			errs = append(errs, t.files(a).Forget(), t.operatorFiles(a).Forget())
		}
	}
	return errors.Join(errs...)
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

// ownNames are what others may call the servers of this host.
func (s *hostSettings) ownNames() []string {
	names := append(endpoint.OwnAddresses(), "127.0.0.1", "::1", "localhost")
	for _, address := range []string{s.Etcd.Listen, s.Placement.Listen, s.controlListen()} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" && !net.ParseIP(host).IsUnspecified() {
			names = append(names, host)
		}
	}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// files are the certificate of an authority.
func (t *trust) files(a pki.Authority) pki.Files { return certificates(t.stateDir, a) }

// localOperator is who root is on the host that has the authority.
const localOperator = "local"

// keepers look after this host's certificates, and where the authority is after those
// with which its root operates the cloud.
func (t *trust) keepers() []pki.Keeper {
	var all []pki.Keeper
	for _, a := range t.uses {
		all = append(all, pki.Keeper{Files: t.files(a), Issuer: t.issuer, Log: t.log})
		if t.ca != nil {
			all = append(all, pki.Keeper{Files: t.operatorFiles(a), Issuer: t.ca.For(pki.OperatorIdentity(t.partition, localOperator)), Log: t.log})
		}
	}
	return all
}

// operatorFiles are what commands on this host show.
func (t *trust) operatorFiles(a pki.Authority) pki.Files {
	if t.isJoined() {
		return t.files(a)
	}
	return pki.Files{Dir: filepath.Join(t.stateDir, "tls", "operator"), Authority: a}
}

// ensure makes the certificates that are missing or due, before anybody needs them.
func (t *trust) ensure(ctx context.Context) error {
	for _, k := range t.keepers() {
		if _, err := k.Ensure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start keeps the certificates from running out.
func (t *trust) start(ctx context.Context, p *parts) {
	if t == nil {
		return
	}
	for _, k := range t.keepers() {
		p.start(ctx, "the certificate of "+string(k.Files.Authority), k.Run)
	}
}

// isJoined tells whether the host got its certificates from a control process elsewhere.
func (t *trust) isJoined() bool { return t != nil && t.ca == nil }

// has tells whether there is a certificate of an authority.
func (t *trust) has(a pki.Authority) bool { return t != nil && slices.Contains(t.uses, a) }

// serves has a listener speak TLS where its address is reached from other machines and
// there is a certificate. The URL's scheme is returned.
func (t *trust) serves(l net.Listener, beyond bool) (net.Listener, string) {
	if !beyond || !t.has(pki.Hosts) {
		return l, "http"
	}
	return tls.NewListener(l, t.files(pki.Hosts).Server(t.partition, true, anyone)), "https"
}

// anyone with a good certificate; what they may do is decided later.
func anyone(pki.Identity) error { return nil }

// hostFiles are those of the certificate that hosts know this process by; without a
// directory where there is none.
func (t *trust) hostFiles() pki.Files {
	if !t.has(pki.Hosts) {
		return pki.Files{}
	}
	return t.files(pki.Hosts)
}

// publish tells everybody who looks whom of the cloud's hosts to trust.
func (t *trust) publish(ctx context.Context, store *etcdstore.Store) error {
	trusted, err := t.ca.Trusted(pki.Hosts)
	if err != nil {
		return err
	}
	return store.PutAuthority(ctx, trusted)
}

// startTrust keeps what this host proves itself with, and has control listen where that
// is asked for. own is what etcd needed already, or nil.
func (s *hostSettings) startTrust(ctx context.Context, p *parts, own *trust, dir *compute.StateDir, store *etcdstore.Store, log *slog.Logger) (*trust, error) {
	if own == nil {
		var err error
		if own, err = s.beginTrust(ctx, dir, store.Partition(), log); err != nil {
			return nil, err
		}
	}
	own.admitted = newAdmitted(store)
	own.admitted.self, own.admitted.files = own.host, own.hostFiles()
	p.self.counts(own)
	own.start(ctx, p)
	if len(own.uses) > 0 {
		if err := own.publish(ctx, store); err != nil {
			return nil, err
		}
		p.start(ctx, "the authority that is told", own.keepPublished(store))
	}
	return own, nil
}

// startControl has control listen where the settings say.
func (s *hostSettings) startControl(ctx context.Context, p *parts, own *trust, store *etcdstore.Store) error {
	if s.controlListen() == "" {
		return store.PutControl(ctx, own.host, etcdstore.Control{})
	}
	l, at, err := s.listenForHosts(ctx)
	if err != nil {
		return err
	}
	c := &control{trust: own, store: store, admitted: own.admitted, strict: s.Trust == trustStrict, log: own.log}
	is := etcdstore.Control{Addresses: []string{at}, Trust: s.mode(own)}
	mux := http.NewServeMux()
	mux.Handle("/", c.handler())
	if c.strict {
		agents, err := s.startGate(ctx, p, c)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		mux.Handle(gate.Prefix, agents)
		is.Agents = is.Addresses
	}
	if err := store.PutControl(ctx, own.host, is); err != nil {
		return errors.Join(err, l.Close())
	}
	s.serveHosts(ctx, p, own, l, mux)
	return nil
}

// listenForHosts listens at control.listen, and returns where hosts reach that.
func (s *hostSettings) listenForHosts(ctx context.Context) (l net.Listener, at string, err error) {
	if l, err = listen(ctx, s.controlListen(), "control.listen"); err != nil {
		return nil, "", err
	}
	return l, hostPort(endpoint.Outward("https://" + l.Addr().String())), nil
}

// serveHosts serves what hosts may ask, to those of them that show who they are.
func (s *hostSettings) serveHosts(ctx context.Context, p *parts, own *trust, l net.Listener, mux *http.ServeMux) {
	p.self.serves(mux, s.controlListen())
	l, _ = own.serves(l, true)
	p.start(ctx, "control", func(ctx context.Context) error { return serve(ctx, l, mux) })
}

// mode is what hosts that join here may reach: control, or an etcd that takes our
// certificates.
func (s *hostSettings) mode(own *trust) string {
	if s.Trust == trustStrict || own.has(pki.Etcd) {
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

// republishEvery is how often a change of the authority is looked for.
const republishEvery = 10 * time.Minute

// keepPublished does so until ctx ends: another process may change the authority.
func (t *trust) keepPublished(store *etcdstore.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(republishEvery):
			}
			if err := t.publish(ctx, store); err != nil && ctx.Err() == nil {
				t.log.Warn("whom to trust could not be told; trying again", "err", err)
			}
		}
	}
}

// joinedTrust is that of a host which joined through a control process.
func (j *membership) trust(stateDir string, log *slog.Logger) (*trust, error) {
	if j == nil || len(j.Control) == 0 {
		return nil, nil
	}
	id, err := compute.ReadHostID(stateDir, false)
	if err != nil {
		return nil, err
	}
	t := &trust{partition: j.Partition, host: id, stateDir: stateDir, log: log}
	for _, a := range pki.Authorities {
		files := certificates(stateDir, a)
		if !files.Exists() {
			continue
		}
		left, err := files.Remaining()
		if err != nil {
			return nil, err
		}
		if left <= 0 {
			return nil, errRanOut(files, left)
		}
		t.uses = append(t.uses, a)
	}
	t.issuer = newControlClient(j.Control, t.files(pki.Hosts).Client(j.Partition, pki.Kinds(pki.Member)))
	return t, nil
}

// mayServe refuses for a host that was forgotten since it joined: etcd would let it in,
// and a control process would refuse all that it asks. NotFound.
func (t *trust) mayServe(ctx context.Context, store cloud) error {
	switch store := store.(type) {
	case *etcdstore.Store:
		if t != nil {
			return newAdmitted(store).look(ctx, pki.MemberIdentity(t.partition, t.host))
		}
	case *gate.Client:
		ctx, cancel := context.WithTimeout(ctx, admittedTime)
		defer cancel()
		if err := store.Usable(ctx); errors.Is(err, gate.ErrRefused) {
			return croft.Errorf(croft.NotFound, "%w", err)
		}
	}
	return nil // a gate that does not answer says so later, again and again
}

// followControl learns where hosts renew their certificates now, as far as the host may
// look. Those of before stay where nobody says any.
func (j *membership) followControl(ctx context.Context, own *trust, store cloud) error {
	etcd, direct := store.(*etcdstore.Store)
	if own == nil || own.ca != nil || !direct {
		return nil
	}
	controls, err := etcd.Controls(ctx)
	if err != nil {
		return err
	}
	var addresses []string
	for _, c := range controls {
		if c.Trust != "" {
			addresses = append(addresses, c.Addresses...)
		}
	}
	if len(addresses) == 0 || slices.Equal(addresses, j.Control) {
		return nil
	}
	j.Control = addresses
	own.issuer = newControlClient(j.Control, own.files(pki.Hosts).Client(j.Partition, pki.Kinds(pki.Member)))
	return j.write(own.stateDir)
}

// keepJoined keeps what a host that joined proves itself with.
func (s *hostSettings) keepJoined(ctx context.Context, p *parts, own *trust) error {
	if own == nil {
		return nil
	}
	if err := s.writeLocal(own); err != nil {
		return err
	}
	p.self.counts(own)
	own.start(ctx, p)
	return nil
}

// errRanOut says how a host whose certificate has run out comes back.
func errRanOut(files pki.Files, left time.Duration) error {
	id, err := files.Identity()
	name := cmp.Or(id.ID, "NAME")
	return errors.Join(err, croft.Errorf(croft.Unavailable, "the certificate of this host ran out on %s, since it could not be renewed: "+
		"make a token with `croft token create --host %s` where the cloud is looked after, and give it to croft up --join here; guests go on running",
		time.Now().Add(left).Format(time.DateOnly), name))
}

// tellExpiry is how a certificate is, for people: until when it counts.
func tellExpiry(until time.Time) string {
	if left := time.Until(until); left < 0 {
		return fmt.Sprintf("ran out on %s", until.Local().Format(time.DateOnly))
	}
	return fmt.Sprintf("counts until %s", until.Local().Format(time.DateOnly))
}
