package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"croft/control/actions"
	"croft/control/bodies"
	"croft/control/federation"
	"croft/control/federation/assertion"
	"croft/control/forwarding"
	"croft/etcdstore"
	"croft/internal/delay"
	"croft/internal/endpoint"
	"croft/node/settings"
)

// peerKeysLook is the interval at which a server checks for new keys from operators.
const peerKeysLook = 5 * time.Second

// peering is the data that a server of the API needs for peers: the known peers, and its own keys.
type peering struct {
	store    *etcdstore.Store
	book     *assertion.Book
	keys     *assertion.Keys
	endpoint string
	own      bool
	actions  *actions.Recorder
	log      *slog.Logger
	told     map[federation.PublicKey]bool
	warned   bool
}

func newPeering(s *settings.Settings, store *etcdstore.Store, at string, log *slog.Logger,
	recorder *actions.Recorder) *peering {
	return &peering{store: store, book: assertion.NewBook(store.Partitions.NewFeed()), endpoint: endpoint.Outward(at),
		keys: &assertion.Keys{Dir: PeerKeys(s.StateDir)}, own: s.CloudAPI.Cert == "", log: log,
		actions: recorder, told: map[federation.PublicKey]bool{}}
}

// PeerKeys returns the directory of the keys with which this machine signs for peers.
func PeerKeys(stateDir string) string { return filepath.Join(stateDir, "peers") }

// callers returns the authenticator of the users of peers.
func (p *peering) callers() *assertion.Authenticator {
	return &assertion.Authenticator{Partition: p.store.Partition(), Book: p.book, Most: bodies.Max,
		Nonces: p.store.Partitions.NewNonces(), Pins: p.store.Partitions}
}

// forwards returns the configuration for forwarding requests.
func (p *peering) forwards() *forwarding.Peers {
	return &forwarding.Peers{Home: p.store.Partition(), Find: p.book.Find, Sign: p.keys.Sign}
}

// start follows the peers, and publishes the public keys of this machine in the cloud. Without a key only forwarding is
// impossible.
func (p *peering) start(ctx context.Context, parts *Parts) {
	parts.Start(ctx, "the peers of this cloud", p.book.Run)
	parts.Start(ctx, "the keys for peers", func(ctx context.Context) error {
		p.tell(ctx)
		delay.Every(ctx, peerKeysLook, p.tell)
		return ctx.Err()
	})
}

// tell records the current and future signing keys, with the address of this server. Former keys stay on record until
// an operator retires them.
func (p *peering) tell(ctx context.Context) {
	all, err := p.keys.Open()
	if err == nil {
		var current int
		for i, k := range all {
			if !k.Use.After(time.Now()) {
				current = i
			}
		}
		name, _ := os.Hostname() // for people
		for _, k := range all[current:] {
			if p.told[k.Public] || err != nil {
				continue
			}
			var added bool
			added, err = p.store.Partitions.PutSigner(ctx, federation.Signer{Key: k.Public, Endpoint: p.endpoint,
				Own: p.own, Host: name, Since: k.Since, Use: k.Use})
			p.told[k.Public] = err == nil
			if added { // by croft partition key rotate, or at the first start
				p.actions.Add(actions.Entry{Time: time.Now(), Operation: actions.SignerAdded, User: "root",
					Operator: true, From: name, Result: actions.Done,
					Object: actions.Object{Kind: actions.Signer, Name: k.Public.ID()}})
			}
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) && !p.warned {
		p.warned = true
		p.log.Warn("requests for other clouds cannot be signed here", "err", err)
	}
}
