package node

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"croft/cluster/outbound"
	"croft/cluster/seal"
	"croft/cluster/sim"
	"croft/compute/image"
	"croft/control/cloud/direct"
	"croft/node/settings"
)

// building is the part of this process that serves requests for clusters, and builds them.
type building struct {
	*direct.Clusters
	builds bool // it has a key, or none is required
	seals  bool // it has a key
}

// newBuilding reads the keys. The first machine of a cloud creates a key if it has none: no other server can have
// another one.
func newBuilding(s *settings.Settings, first bool, log *slog.Logger) (*building, error) {
	files := s.Clusters.CredentialKeyFile
	if own := direct.ClusterKey(s.StateDir); len(files) == 0 {
		_, err := os.Stat(own)
		if errors.Is(err, fs.ErrNotExist) && first {
			id, made := seal.Generate(own)
			if made != nil {
				return nil, made
			}
			log.Info("made the key that seals credentials for clusters and stores of backups: keep a copy of it",
				"file", own, "key", id)
			err = nil
		}
		if err == nil {
			files = []string{own}
		}
	}
	keys, err := seal.Load(files...)
	if err != nil {
		return nil, err
	}
	if len(files) > 0 {
		if err := keepMemory(); err != nil {
			return nil, err
		}
	}
	if s.Clusters.Enabled && len(files) == 0 {
		log.Info("this server builds no clusters: it lacks the key that the other servers have; see " +
			"clusters.credential_key_file")
	}
	callable, err := image.ParseNetworks(s.Clusters.CallNetworks)
	if err != nil {
		return nil, err
	}
	pretended := sim.New()
	pretended.Delay = s.Sim.Boot
	return &building{&direct.Clusters{Vault: keys, AllowedIP: s.Clusters.AllowedIP,
		Outbound: outbound.Rule{Allow: callable}, Sim: pretended, Log: log},
		s.Clusters.Enabled && len(files) > 0, len(files) > 0}, nil
}

// start builds clusters until the process ends.
func (b *building) start(ctx context.Context, p *Parts) error {
	if !b.builds {
		return nil
	}
	m, err := b.Manager()
	if err != nil {
		return err
	}
	p.Self.Counts(m)
	p.Start(ctx, "what clusters are built by", func(ctx context.Context) error {
		b.Ensure(ctx)
		<-ctx.Done()
		return ctx.Err()
	})
	p.Start(ctx, "the manager of clusters", m.Run)
	return nil
}
