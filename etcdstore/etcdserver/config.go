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
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"

	"croft"
	"croft/internal/pemfile"
)

// TxnOps is how many operations a transaction of the embedded server may
// have, so that one Placement request may cover many providers. etcd's own default
// is 128.
const TxnOps = 8192

// Config says where the member keeps its data and listens.
type Config struct {
	Dir    string // required; made if absent, readable by its owner alone
	Listen string // host:port for clients, 127.0.0.1:2379 by default; port 0 picks a free one
	// Advertise is host:port at which clients of other machines reach it; Listen by default.
	Advertise string
	// Host is the member's name, croft by default. Peer is host:port where other
	// members reach it, and PeerListen where it listens for them, the same by default.
	// Without Peer it can have no others, and listens on a free loopback port.
	Host             croft.HostID
	Peer, PeerListen string
	// Cluster is what AddEtcdMember returned, for a member whose directory is empty.
	Cluster string
	// MaxTxnOps limits the operations of one transaction; TxnOps by default.
	MaxTxnOps uint
	// Cert and Key are the files of the server's certificate; with them it speaks TLS.
	// ClientCA is the file of the authority whose certificates clients have to show. With
	// all three, members speak TLS to each other, and have to show certificates too.
	Cert, Key, ClientCA string
	// MaxBytes is how much it stores before it takes no writes; etcd's own 2 GiB by default.
	MaxBytes int64
	// Unsynced leaves fsync out, and does not mind how full the disk is: for tests, whose
	// data no crash of the machine has to survive.
	Unsynced bool
	Log      *slog.Logger // hears that the disk is full; discards by default

	bounds                   bounds        // of its listeners; tests set them
	compactKeep, compactLook time.Duration // of its compactor; tests set them
}

// etcd is the configuration in etcd's words.
func (c Config) etcd() (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = cmp.Or(string(c.Host), "croft"), c.Dir
	if err := c.addresses(cfg); err != nil {
		return nil, err
	}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	if c.Cluster != "" {
		cfg.InitialCluster, cfg.ClusterState = c.Cluster, embed.ClusterStateFlagExisting
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(lastWords())
	cfg.MaxTxnOps = cmp.Or(c.MaxTxnOps, TxnOps)
	cfg.MaxRequestBytes = 8 << 20
	cfg.EnableGRPCGateway = false
	// Thousands of agents each have a connection on which little happens: a buffer of
	// 32 KiB for every one of them would be most of the server's memory.
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ReadBufferSize(4 << 10)}
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "1h"
	// Entries of the log stay in memory for followers that are behind: few, or none.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 2000, 500
	cfg.UnsafeNoFsync = c.Unsynced
	cfg.QuotaBackendBytes = c.MaxBytes
	return cfg, nil
}

// names are what requests over HTTP without TLS may call a server that listens on loopback:
// a web page can have its own name lead there.
// Nil: anything.
func (c Config) names() map[string]bool {
	host, _, err := net.SplitHostPort(c.Listen)
	ip, notIP := netip.ParseAddr(host)
	if err != nil || host != "localhost" && (notIP != nil || !ip.IsLoopback()) {
		return nil
	}
	return map[string]bool{"": true, host: true, "localhost": true, "127.0.0.1": true, "::1": true}
}

// addresses sets where the server listens, where others reach it, and its certificates.
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
		// A host may speak to the others from another address than its certificate has.
		cfg.PeerTLSInfo.SkipClientSANVerify = true
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{outside}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peerListen}, []url.URL{peer}
	return nil
}

// checkTrust says what is wrong with the files that the server speaks TLS with.
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

// listenURL checks host:port and makes the URL that etcd listens on.
func listenURL(setting, address string) (url.URL, error) {
	host, port, err := net.SplitHostPort(address)
	if err == nil && host == "localhost" {
		host = "127.0.0.1" // etcd listens on IP addresses only
	}
	if err != nil || net.ParseIP(host) == nil {
		return url.URL{}, croft.Errorf(croft.Invalid, "%s: %q is not IP:PORT", setting, address)
	}
	return url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}, nil
}

func (c Config) log() *slog.Logger { return cmp.Or(c.Log, slog.New(slog.DiscardHandler)) }

// lastWords is etcd's log: nothing but the sentence with which it ends the process,
// where it cannot go on.
func lastWords() *zap.Logger {
	return zap.New(zapcore.NewNopCore(), zap.WithFatalHook(lastWord{}), zap.WithPanicHook(lastWord{}))
}

type lastWord struct{}

// OnWrite implements zapcore.CheckWriteHook.
func (lastWord) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	text := "croft: the embedded etcd cannot go on: " + entry.Message
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			text += ": " + err.Error()
		}
	}
	fmt.Fprintln(os.Stderr, text)
	os.Exit(croft.ExitUnavailable)
}
