package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"croft/control/bodies"
	"croft/control/forwarding"
	"croft/etcdstore"
	"croft/federation"
	"croft/federation/assertion"
	"croft/internal/delay"
	"croft/internal/endpoint"
	"croft/node/settings"
)

// peerKeysLook is how often a server looks for keys that operators had made.
const peerKeysLook = 5 * time.Second

// peering is what a server of the API needs for peers: who they are, and its own keys.
type peering struct {
	store    *etcdstore.Store
	book     *assertion.Book
	keys     *assertion.Keys
	endpoint string
	own      bool
	log      *slog.Logger
	told     map[federation.PublicKey]bool
	warned   bool
}

func newPeering(s *settings.Settings, store *etcdstore.Store, at string, log *slog.Logger) *peering {
	return &peering{store: store, book: assertion.NewBook(store.Partitions.NewFeed()), endpoint: endpoint.Outward(at),
		keys: &assertion.Keys{Dir: PeerKeys(s.StateDir)}, own: s.CloudAPI.Cert == "", log: log,
		told: map[federation.PublicKey]bool{}}
}

// PeerKeys is the directory of the keys with which this machine signs for peers.
func PeerKeys(stateDir string) string { return filepath.Join(stateDir, "peers") }

// callers recognizes the users of peers.
func (p *peering) callers() *assertion.Authenticator {
	return &assertion.Authenticator{Partition: p.store.Partition(), Book: p.book, Most: bodies.Max,
		Nonces: p.store.Partitions.NewNonces(), Pins: p.store.Partitions}
}

// forwards says how requests are forwarded.
func (p *peering) forwards() *forwarding.Peers {
	return &forwarding.Peers{Home: p.store.Partition(), Find: p.book.Find, Sign: p.keys.Sign}
}

// start follows the peers, and tells the cloud the public halves of the keys of this machine. Without a key everything
// works but forwarding.
func (p *peering) start(ctx context.Context, parts *Parts) {
	parts.Start(ctx, "the peers of this cloud", p.book.Run)
	parts.Start(ctx, "the keys for peers", func(ctx context.Context) error {
		p.tell(ctx)
		delay.Every(ctx, peerKeysLook, p.tell)
		return ctx.Err()
	})
}

// tell records the keys that sign, now or later, with the address of this server. Former ones are on record until an
// operator retires them.
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
			if !p.told[k.Public] && err == nil {
				err = p.store.Partitions.PutSigner(ctx, federation.Signer{Key: k.Public, Endpoint: p.endpoint,
					Own:  p.own,
					Host: name, Since: k.Since, Use: k.Use})
				p.told[k.Public] = err == nil
			}
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) && !p.warned {
		p.warned = true
		p.log.Warn("requests for other clouds cannot be signed here", "err", err)
	}
}
