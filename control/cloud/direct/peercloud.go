package direct

import (
	"context"

	"croft/client"
	"croft/cluster"
	elsewhere "croft/cluster/croft"
	"croft/cluster/outbound"
)

// peer connects to another croft that a site names, with the token of a credential.
func peer(at cluster.SiteAccess) (elsewhere.Peer, error) {
	requests, err := outbound.Client(outbound.Config{CACert: at.Site.CACert})
	if err != nil {
		return elsewhere.Peer{}, err
	}
	c, err := client.Through(requests, at.Site.AuthURL, at.Secret.Reveal())
	if err != nil {
		return elsewhere.Peer{}, err
	}
	return elsewhere.Peer{Clusters: c, Close: c.Close, Version: func(ctx context.Context) (string,
		error) {
		root, err := c.Root(ctx)
		if err == nil && !at.Secret.Empty() {
			_, err = c.Caller(ctx)
		}
		return root.Version, err
	}}, nil
}
