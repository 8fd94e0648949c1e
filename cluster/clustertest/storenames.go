package clustertest

import (
	"cmp"
	"fmt"

	"croft"
	"croft/cluster"
)

// mayName checks the references of a record that is not deleted.
func (s *memory) mayName(c, before cluster.Cluster) error {
	return cmp.Or(s.moveName(c, before), s.namedExist(c, before), s.siteRoom(c, before))
}

func (s *memory) nameFree(c cluster.Cluster) error {
	if other := s.named(c.Project, c.Name); other.ID != "" && other.ID != c.ID {
		return &croft.TakenError{What: "name", By: string(other.ID),
			Text: fmt.Sprintf("the name %s is taken by cluster %s", c.Name, other.ID)}
	}
	return nil
}

// moveName is nameFree for a change. Most changes keep the name, and looking at all clusters takes time.
func (s *memory) moveName(c, before cluster.Cluster) error {
	if c.Name == before.Name {
		return nil
	}
	return s.nameFree(c)
}

// namedExist checks the references that a change adds.
func (s *memory) namedExist(c, before cluster.Cluster) error {
	_, site := s.sites[c.Site]
	_, credential := s.credentials[c.Credential]
	_, implementation := s.implementations[c.Implementation]
	for _, n := range []struct {
		what, now, before string
		is                bool
	}{{"site", c.Site, before.Site, site},
		{"credential", string(c.Credential), string(before.Credential), credential},
		{"implementation", string(c.Implementation), string(before.Implementation), implementation}} {
		if n.now != "" && n.now != n.before && !n.is {
			return croft.Errorf(croft.Conflict, "there is no %s %s any more", n.what, n.now)
		}
	}
	return nil
}

// siteRoom checks that a newly named site may have another cluster.
func (s *memory) siteRoom(c, before cluster.Cluster) error {
	if c.Site == "" || c.Site == before.Site {
		return nil
	}
	stored, is := s.sites[c.Site]
	if !is {
		return nil // namedExist reports it
	}
	site, n := decode[cluster.Site](stored.text), 0
	for _, other := range s.living() {
		if other.Site == c.Site {
			n++
		}
	}
	if site.MaxClusters > 0 && n >= site.MaxClusters {
		return cluster.SiteFull(site, n)
	}
	return nil
}
