package etcdserver

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/tlsutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"

	"croft"
	"croft/internal/pemfile"
)

// TxnOps is the embedded server's limit on the operations of a transaction, so that one Placement request may
// cover many providers. etcd's default is 128.
const TxnOps = 8192

// Config says where the member keeps its data and where it listens.
type Config struct {
	Dir    string // required; created if absent, readable only by its owner
	Listen string // host:port for clients, 127.0.0.1:2379 by default; port 0 picks a free one
	// Advertise is the host:port at which clients on other machines reach it; Listen by default.
	Advertise string
	// Host is the member's name, croft by default. Peer is the host:port at which other members reach it, and
	// PeerListen where it listens for them, which defaults to Peer. Without Peer it can have no other members, and
	// listens on a free loopback port.
	Host             croft.HostID
	Peer, PeerListen string
	// Cluster is the result of AddEtcdMember, for a member whose directory is empty.
	Cluster string
	// MaxTxnOps limits the operations of one transaction; TxnOps by default.
	MaxTxnOps uint
	// Cert and Key are the files of the server's certificate; with them it uses TLS. ClientCA is the file of the
	// authority that must have signed the certificates of clients, which are then required. With all three, members
	// also use TLS with certificates between each other.
	Cert, Key, ClientCA string
	// MaxBytes is the quota of the database, at which it becomes read-only; etcd's 2 GiB by default.
	MaxBytes int64
	// Unsynced disables fsync and the check of free disk space, and makes a single member elect itself sooner. It is
	// for tests, whose data need not survive a crash of the machine.
	Unsynced bool
	Log      *slog.Logger // logs a full disk; discards by default

	bounds                   bounds        // of its listeners; set by tests
	compactKeep, compactLook time.Duration // of its compactor; set by tests
}

// etcd returns the configuration of the embedded etcd.
func (c Config) etcd() (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = c.name(), c.Dir
	if err := c.addresses(cfg); err != nil {
		return nil, err
	}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	if c.Cluster != "" {
		cfg.InitialCluster, cfg.ClusterState = c.Cluster, embed.ClusterStateFlagExisting
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(lastWords(c.Dir))
	cfg.MaxTxnOps = cmp.Or(c.MaxTxnOps, TxnOps)
	cfg.MaxRequestBytes = 8 << 20
	cfg.EnableGRPCGateway = false
	// Thousands of agents each have a connection with little traffic: buffers of 32 KiB for each of them would
	// dominate the server's memory.
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ReadBufferSize(4 << 10)}
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "1h"
	// Few entries of the log are kept in memory for followers that lag.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 2000, 500
	cfg.UnsafeNoFsync = c.Unsynced
	if c.Unsynced && c.Cluster == "" { // a single member elects itself: hundreds of tests wait for that
		cfg.TickMs, cfg.ElectionMs = 20, 100
	}
	cfg.QuotaBackendBytes = c.MaxBytes
	cfg.CompactionBatchLimit, cfg.CompactionSleepInterval = batchFor(c.quota()), compactPause
	return cfg, nil
}

// quota returns the size in bytes at which the database becomes read-only.
func (c Config) quota() int64 { return cmp.Or(max(c.MaxBytes, 0), storage.DefaultQuotaBytes) }

// names returns the host names allowed in plain HTTP requests to a server that listens on loopback, as a protection
// against DNS rebinding: a web page can make its own name resolve to this server. nil: any name is allowed.
func (c Config) names() map[string]bool {
	host, _, err := net.SplitHostPort(c.Listen)
	ip, notIP := netip.ParseAddr(host)
	if err != nil || host != "localhost" && (notIP != nil || !ip.IsLoopback()) {
		return nil
	}
	return map[string]bool{"": true, host: true, "localhost": true, "127.0.0.1": true, "::1": true}
}

// addresses sets where the server listens, its advertised addresses, and its certificates.
func (c Config) addresses(cfg *embed.Config) error {
	client, err := listenURL("etcd.listen", c.Listen)
	if err != nil {
		return err
	}
	outside, err := listenURL("etcd.listen", cmp.Or(c.Advertise, c.Listen))
	if err != nil {
		return err
	}
	peer, err := listenURL("etcd.peer_listen", cmp.Or(c.Peer, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	peerListen, err := listenURL("etcd.peer_listen", cmp.Or(c.PeerListen, peer.Host))
	if err != nil {
		return err
	}
	if c.Cert != "" {
		client.Scheme, outside.Scheme = "https", "https"
		cfg.TlsMinVersion = string(tlsutil.TLSVersion13)
		cfg.ClientTLSInfo = transport.TLSInfo{
			CertFile: c.Cert, KeyFile: c.Key, TrustedCAFile: c.ClientCA, ClientCertAuth: c.ClientCA != "",
			MinVersion: tls.VersionTLS13,
		}
	}
	if c.ClientCA != "" && c.Peer != "" {
		peer.Scheme, peerListen.Scheme = "https", "https"
		cfg.PeerTLSInfo = cfg.ClientTLSInfo
		// A host may connect to the others from an address that its certificate does not contain.
		cfg.PeerTLSInfo.SkipClientSANVerify = true
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{outside}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peerListen}, []url.URL{peer}
	return nil
}

// checkTrust checks the combination and content of the TLS files.
func (c Config) checkTrust() error {
	switch {
	case c.Cert == "" && c.Key == "" && c.ClientCA == "":
		return nil
	case c.Cert == "" || c.Key == "":
		return croft.Errorf(croft.Invalid,
			"embedded etcd: for TLS it needs a certificate and its key: set etcd.listen_cert and etcd.listen_key")
	}
	if err := pemfile.CheckPair("etcd.listen_cert", c.Cert, "etcd.listen_key", c.Key); err != nil || c.ClientCA == "" {
		return err
	}
	text, err := pemfile.Read("etcd.listen_client_ca", c.ClientCA)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
		err = croft.Errorf(croft.Invalid, "etcd.listen_client_ca: %s holds no certificate in PEM", c.ClientCA)
	}
	return err
}

// listenURL validates host:port and returns the URL that etcd listens on.
func listenURL(setting, address string) (url.URL, error) {
	host, port, err := net.SplitHostPort(address)
	if err == nil && host == "localhost" {
		host = "127.0.0.1" // etcd accepts only IP addresses
	}
	if err != nil || net.ParseIP(host) == nil {
		return url.URL{}, croft.Errorf(croft.Invalid, "%s: %q is not IP:PORT", setting, address)
	}
	return url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}, nil
}

// nameless is the name of a server that belongs to no host.
const nameless = "croft"

func (c Config) name() string { return cmp.Or(string(c.Host), nameless) }

func (c Config) log() *slog.Logger { return cmp.Or(c.Log, slog.New(slog.DiscardHandler)) }

// lastWords is etcd's log. It discards everything except the message with which etcd ends the process because it cannot
// continue.
func lastWords(dir string) *zap.Logger {
	return zap.New(zapcore.NewNopCore(), zap.WithFatalHook(lastWord{dir}), zap.WithPanicHook(lastWord{dir}))
}

type lastWord struct{ dir string }

// OnWrite implements zapcore.CheckWriteHook.
func (w lastWord) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	text := "croft: the embedded etcd had a fatal error: " + entry.Message
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			text += ": " + err.Error()
		}
	}
	fmt.Fprintln(os.Stderr, text+"; if that comes again after another start: "+remedy(w.dir))
	os.Exit(croft.ExitUnavailable)
}
