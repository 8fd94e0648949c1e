package etcdstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/tlsutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"croft"
	"croft/internal/filelock"
)

// Embedded is an etcd server inside this process: the only one, or a member of several.
type Embedded struct {
	server     *embed.Etcd
	service    *service
	dir        *os.File // holds the sockets of etcd's own listeners
	compacting *compacting
	end        func()        // of keepSpace
	full       chan struct{} // closed once its disk is full, and the others go on
}

// EmbeddedTxnOps is how many operations a transaction of the embedded server may
// have, so that one Placement request may cover many providers. etcd's own default
// is 128.
const EmbeddedTxnOps = 8192

// EmbeddedConfig says where the member keeps its data and listens.
type EmbeddedConfig struct {
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
	// MaxTxnOps limits the operations of one transaction; EmbeddedTxnOps by default.
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

	bounds bounds // of its listeners; tests set them
}

// StartEmbedded starts the server and returns when it answers; a member of several
// waits for as many of the others as make more than half.
func StartEmbedded(ctx context.Context, c EmbeddedConfig) (*Embedded, error) {
	if c.Dir == "" {
		return nil, croft.Errorf(croft.Invalid, "embedded etcd: a directory is required")
	}
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:2379")
	if err := c.checkTrust(); err != nil {
		return nil, err
	}
	cfg, err := c.server()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the embedded etcd: %w", err)
	}
	if err := checkUnused(c.Dir); err != nil {
		return nil, err
	}
	if !c.Unsynced {
		if err := checkSpace(c.Dir); err != nil {
			return nil, err
		}
	}
	e, err := start(ctx, cfg, c)
	if err == nil && !c.Unsynced {
		e.startKeeping(c)
	}
	if err != nil || c.Peer == "" {
		return e, err
	}
	if err := e.tellPeer(ctx, cfg.AdvertisePeerUrls[0].String()); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// server is the configuration in etcd's words.
func (c EmbeddedConfig) server() (*embed.Config, error) {
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
	cfg.MaxTxnOps = cmp.Or(c.MaxTxnOps, EmbeddedTxnOps)
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
func (c EmbeddedConfig) names() map[string]bool {
	host, _, err := net.SplitHostPort(c.Listen)
	ip, notIP := netip.ParseAddr(host)
	if err != nil || host != "localhost" && (notIP != nil || !ip.IsLoopback()) {
		return nil
	}
	return map[string]bool{"": true, host: true, "localhost": true, "127.0.0.1": true, "::1": true}
}

// addresses sets where the server listens, where others reach it, and its certificates.
func (c EmbeddedConfig) addresses(cfg *embed.Config) error {
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
func (c EmbeddedConfig) checkTrust() error {
	switch {
	case c.Cert == "" && c.Key == "" && c.ClientCA == "":
		return nil
	case c.Cert == "" || c.Key == "":
		return croft.Errorf(croft.Invalid,
			"embedded etcd: for TLS it needs a certificate and its key: set etcd.listen_cert and etcd.listen_key")
	}
	if err := checkPair("etcd.listen_cert", c.Cert, "etcd.listen_key", c.Key); err != nil || c.ClientCA == "" {
		return err
	}
	text, err := readFile("etcd.listen_client_ca", c.ClientCA)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
		err = croft.Errorf(croft.Invalid, "etcd.listen_client_ca: %s holds no certificate in PEM", c.ClientCA)
	}
	return err
}

// checkUnused finds another etcd that runs in a directory: ours would wait for its
// end, without a word. Conflict.
func checkUnused(dir string) error {
	db, err := os.Open(filepath.Join(dir, "member", "snap", "db"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the data of the embedded etcd: %w", err)
	}
	defer db.Close() // and with it the lock
	err = filelock.Take(db)
	if errors.Is(err, filelock.ErrTaken) {
		return croft.Errorf(croft.Conflict, "embedded etcd: another process uses %s; stop it, or ask it by its address",
			dir)
	}
	if err != nil {
		return fmt.Errorf("lock the data of the embedded etcd in %s: %w", dir, err)
	}
	return nil
}

// start runs the server until it is ready. A port in use is a Conflict.
func start(ctx context.Context, cfg *embed.Config, c EmbeddedConfig) (_ *Embedded, err error) {
	e := &Embedded{end: func() {}, full: make(chan struct{})}
	if e.service, err = c.listen(cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.closeServer()
		}
	}()
	var unlink func()
	if unlink, e.dir, err = hide(cfg); err != nil {
		return nil, err
	}
	if e.server, err = embed.StartEtcd(cfg); err != nil {
		return nil, fmt.Errorf("start the embedded etcd in %s: %w", cfg.Dir, err)
	}
	unlink()
	e.service.servePeers(e.server.Server)
	select {
	case <-e.server.Server.ReadyNotify():
	case err = <-e.server.Err():
	case <-e.server.Server.StopNotify():
		err = errors.New("it stopped while starting")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("start the embedded etcd in %s: %w", cfg.Dir, err)
	}
	e.service.serveClients(cfg.GRPCAdditionalServerOptions)
	e.compacting = newCompactor(e.server.Server, cfg.QuotaBackendBytes).start()
	return e, nil
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

// Endpoint is where clients reach the server.
func (e *Embedded) Endpoint() string { return e.service.endpoint() }

// Wait returns when ctx ends (nil), or with the error that ended the server by itself.
// NotFound: the other members removed it. ErrFull: its disk is full, and they go on.
func (e *Embedded) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-e.server.Err():
		return err
	case <-e.full:
		return ErrFull
	case err := <-e.service.failed:
		return fmt.Errorf("embedded etcd: %w", err)
	case <-e.server.Server.StopNotify():
		return ErrRemoved
	}
}

// ErrRemoved ends a server that the others no longer speak to.
var ErrRemoved = croft.Errorf(croft.NotFound, "etcd's other members removed this one, or it could not go on")

// Close stops the server and returns when it has stopped.
func (e *Embedded) Close() {
	e.end()
	e.compacting.end()
	e.closeServer()
}

func (e *Embedded) closeServer() {
	e.service.closeClients()
	if e.server != nil {
		e.server.Close()
	}
	e.service.close()
	if e.dir != nil {
		_ = e.dir.Close()
	}
}
