package requests

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
	"croft/cluster"
	"croft/internal/nearest"
)

// Output returns an output of a user's cluster, even a secret one. NotFound: there is no such output. Denied: the
// cluster belongs to another user. Unavailable: there is no key to open it with. Reading a secret output adds an event
// with the user's name.
func (s *Service) Output(ctx context.Context, project croft.Project, idOrName, user, name string) (cluster.Output,
	error) {
	c, err := s.Find(ctx, project, idOrName)
	if err != nil {
		return cluster.Output{}, err
	}
	if c.User != user {
		return cluster.Output{}, croft.Errorf(croft.Denied, "read output %.80s: cluster %s is %s's, who alone reads its "+
			"outputs", name, c.Name, c.User)
	}
	if value, open := c.Outputs[name]; open {
		return cluster.Output{Name: name, Value: value}, nil
	}
	sealed, found := c.Sealed[name]
	if !found || strings.Contains(name, " ") { // only a sealed parameter has a space in its name
		names := slices.Concat(slices.Collect(maps.Keys(c.Outputs)), slices.Collect(maps.Keys(c.Sealed)))
		return cluster.Output{}, croft.Errorf(croft.NotFound, "cluster %s has no output %.80q; `croft cluster show "+
			"%s` shows all%s", c.Name, name, c.Name, nearest.Hint(name, names))
	}
	if s.c.Vault == nil {
		return cluster.Output{}, cluster.Away("output %s is sealed, and this server has no key to open it with: see "+
			"credential_key_file", name)
	}
	secret, err := s.c.Vault.Open(sealed, cluster.AboutValue(s.c.Partition, c.ID, name))
	if err != nil {
		return cluster.Output{}, fmt.Errorf("open output %s of cluster %s: %w", name, c.Name, err)
	}
	s.note(ctx, c, "%s read its secret output %s", user, name)
	return cluster.Output{Name: name, Value: secret.Reveal(), Secret: true}, nil
}
