package trust

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/internal/delay"
	"croft/trust/pki"
)

// Credentials are the certificates that a process shows, and the authorities for the verification of peers. nil: the
// process has no certificates.
type Credentials struct {
	Partition croft.PartitionID
	Host      croft.HostID

	stateDir string
	ca       *pki.CA // on the host that has the authority; else nil
	issuer   pki.Issuer
	uses     []pki.Authority // the authorities that this host has certificates of
	log      *slog.Logger
}

// Config says which certificates a host keeps.
type Config struct {
	StateDir string
	Host     croft.HostID
	Uses     []pki.Authority // the authorities that it needs certificates of
	Names    []string        // names and addresses in the certificates of its servers
	Life     time.Duration   // of the certificates that this host's authority signs
	Log      *slog.Logger
}

// Begin opens or creates the authority of the cloud that started on this host, and creates the certificates that the
// host needs.
func Begin(ctx context.Context, c Config, p croft.PartitionID) (*Credentials, error) {
	ca, err := pki.OpenCA(CADir(c.StateDir), p)
	if err != nil {
		return nil, err
	}
	t := c.with(ca)
	return t, errors.Join(t.Ensure(ctx), t.tidy())
}

// HasAuthority reports whether the cloud's authority is on the host of a state directory.
func HasAuthority(stateDir string) bool { _, err := os.Stat(CADir(stateDir)); return err == nil }

// AuthorityPartition returns the cloud whose authority is on this host. NotFound: it has none.
func AuthorityPartition(stateDir string) (croft.PartitionID, error) {
	ca, err := pki.FindCA(CADir(stateDir))
	if err != nil {
		return "", err
	}
	return ca.Partition, nil
}

// OfAuthority returns the credentials in the files of the host that has the authority, whether croft runs there
// or not. c.Uses is ignored: the files determine it. NotFound: the host has no authority.
func OfAuthority(c Config) (*Credentials, error) {
	ca, err := pki.FindCA(CADir(c.StateDir))
	if err != nil {
		return nil, err
	}
	c.Uses = nil
	t := c.with(ca)
	for _, a := range pki.Authorities {
		if t.Files(a).Exists() {
			t.uses = append(t.uses, a)
		}
	}
	return t, nil
}

// with returns the credentials of the host that has the authority ca.
func (c Config) with(ca *pki.CA) *Credentials {
	ca.Life = c.Life
	return &Credentials{
		Partition: ca.Partition, Host: c.Host, stateDir: c.StateDir, ca: ca, uses: c.Uses, log: c.Log,
		issuer: ca.For(pki.MemberIdentity(ca.Partition, c.Host), c.Names...),
	}
}

// tidy removes certificates that this host no longer needs and nothing would renew.
func (t *Credentials) tidy() error {
	var errs []error
	for _, a := range pki.Authorities {
		if !t.Has(a) {
			errs = append(errs, t.Files(a).Forget(), t.OperatorFiles(a).Forget())
		}
	}
	return errors.Join(errs...)
}

// StateDir returns the directory of the files.
func (t *Credentials) StateDir() string { return t.stateDir }

// Files returns the certificate of an authority.
func (t *Credentials) Files(a pki.Authority) pki.Files { return Certificate(t.stateDir, a) }

// localOperator is the identity of root on the host that has the authority.
const localOperator = "local"

// OperatorFiles returns the certificate that commands on this host show.
func (t *Credentials) OperatorFiles(a pki.Authority) pki.Files {
	if t.IsJoined() {
		return t.Files(a)
	}
	return pki.Files{Dir: filepath.Join(t.stateDir, "tls", "operator"), Authority: a}
}

// Keepers returns the keepers of this host's certificates and, on the host with the authority, of the certificates of
// its local operator. A nil Credentials has none.
func (t *Credentials) Keepers() []pki.Keeper {
	if t == nil {
		return nil
	}
	var all []pki.Keeper
	for _, a := range t.uses {
		all = append(all, pki.Keeper{Files: t.Files(a), Issuer: t.issuer, Log: t.log})
		if t.ca != nil {
			operator := t.ca.For(pki.OperatorIdentity(t.Partition, localOperator))
			all = append(all, pki.Keeper{Files: t.OperatorFiles(a), Issuer: operator, Log: t.log})
		}
	}
	return all
}

// Ensure creates or renews the certificates that are missing or due.
func (t *Credentials) Ensure(ctx context.Context) error {
	for _, k := range t.Keepers() {
		if _, err := k.Ensure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// IsJoined reports whether the host got its certificates from a join server elsewhere.
func (t *Credentials) IsJoined() bool { return t != nil && t.ca == nil }

// Has reports whether the host has a certificate of an authority.
func (t *Credentials) Has(a pki.Authority) bool { return t != nil && slices.Contains(t.uses, a) }

// HasAny reports whether the host has any certificate.
func (t *Credentials) HasAny() bool { return t != nil && len(t.uses) > 0 }

// Listener returns a listener with TLS if other machines reach its address and there is a certificate, and the
// scheme of its URL.
func (t *Credentials) Listener(l net.Listener, beyond bool) (net.Listener, string) {
	if !beyond || !t.Has(pki.Hosts) {
		return l, "http"
	}
	anyone := func(pki.Identity) error { return nil } // permissions are checked per request
	return tls.NewListener(l, t.Files(pki.Hosts).Server(t.Partition, true, anyone)), "https"
}

// HostFiles returns the certificate of this host as a server of the cloud; without a directory if none exists.
func (t *Credentials) HostFiles() pki.Files {
	if !t.Has(pki.Hosts) {
		return pki.Files{}
	}
	return t.Files(pki.Hosts)
}

// Client returns the TLS configuration for connections to members of the cloud that have a certificate of the
// authority.
func (t *Credentials) Client(a pki.Authority) *tls.Config {
	return t.Files(a).Client(t.Partition, pki.Kinds(pki.Member))
}

// Publish stores the authority of hosts for everyone to trust.
func (t *Credentials) Publish(ctx context.Context, store Publisher) error {
	trusted, err := t.ca.Trusted(pki.Hosts)
	if err != nil {
		return err
	}
	return store.PutAuthority(ctx, trusted)
}

// republishEvery is the interval of checks for a change of the authority.
const republishEvery = 10 * time.Minute

// KeepPublished publishes the authority regularly until ctx ends, since another process may change it.
func (t *Credentials) KeepPublished(ctx context.Context, store Publisher) error {
	for {
		if delay.For(ctx, republishEvery) != nil {
			return nil
		}
		if err := t.Publish(ctx, store); err != nil && ctx.Err() == nil {
			t.log.Warn("the trusted authorities could not be sent; trying again", "err", err)
		}
	}
}

// errExpired says how to recover a host whose certificate has expired.
func errExpired(files pki.Files, left time.Duration) error {
	id, err := files.Identity()
	name := cmp.Or(id.ID, "NAME")
	return errors.Join(err,
		croft.Errorf(croft.Unavailable, "the certificate of this host ran out on %s, since it could not be renewed: "+
			"make a token with `croft token create --host %s` where the cloud is looked after, and give it to croft up --join here; guests go on running",
			time.Now().Add(left).Format(time.DateOnly), name))
}

// Expiry describes until when a certificate is valid.
func Expiry(until time.Time) string {
	if time.Until(until) < 0 {
		return fmt.Sprintf("ran out on %s", until.Local().Format(time.DateOnly))
	}
	return fmt.Sprintf("counts until %s", until.Local().Format(time.DateOnly))
}

var expiryMetric = prometheus.NewDesc("croft_certificate_expiry_timestamp_seconds",
	"When the certificate of this process runs out, in seconds since 1970; it is renewed after two thirds of its life.",
	[]string{"authority"}, nil)

var authorityMetric = prometheus.NewDesc("croft_authority_expiry_timestamp_seconds",
	"When the authority that signs runs out, in seconds since 1970, where this process has it.", []string{"authority"},
	nil)

var _ prometheus.Collector = (*Credentials)(nil)

// Collector returns the metrics of the certificates' expiry.
func (t *Credentials) Collector() prometheus.Collector { return t }

// Describe implements prometheus.Collector.
func (t *Credentials) Describe(c chan<- *prometheus.Desc) { c <- expiryMetric; c <- authorityMetric }

// Collect implements prometheus.Collector. It omits certificates that cannot be read: their Keeper logs the reason.
func (t *Credentials) Collect(c chan<- prometheus.Metric) {
	for _, a := range t.uses {
		if pair, err := t.Files(a).Load(); err == nil {
			c <- prometheus.MustNewConstMetric(expiryMetric, prometheus.GaugeValue, float64(pair.Leaf.NotAfter.Unix()),
				string(a))
		}
	}
	if t.ca == nil {
		return
	}
	for _, a := range pki.Authorities {
		if current, _, err := t.ca.Certificates(a); err == nil {
			c <- prometheus.MustNewConstMetric(authorityMetric, prometheus.GaugeValue, float64(current.NotAfter.Unix()),
				string(a))
		}
	}
}
