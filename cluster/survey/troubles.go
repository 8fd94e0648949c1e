package survey

import (
	"errors"
	"slices"
	"time"

	"croft"
	"croft/cluster"
)

// trouble is a failed request to a site.
type trouble struct {
	cluster.Trouble
	project croft.Project // whose request it was
	open    bool          // no request to the site has succeeded since
	silent  bool          // no response arrived
}

// Note records the result of a request to a site, and reports whether the site is silent: no response arrived, or
// requests of at least two projects failed, and none has succeeded since. A fault that only one project sees is blamed
// on its stack or credential. A successful request ends the silence at once.
func (s *Survey) Note(at cluster.SiteAccess, err error) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := croft.KindOf(err)
	_, silent := errors.AsType[*cluster.SilentError](err)
	_, fault := errors.AsType[*cluster.FaultError](err)
	switch {
	case silent || fault:
		s.add(trouble{Trouble: cluster.Trouble{Site: at.Site.Name, At: now}, project: at.Credential.Project,
			open: true, silent: silent})
	case kind == croft.Denied: // Keystone refused, which says nothing about Heat
	case err != nil && (kind == croft.Unavailable || kind == ""): // the site was not asked
	default:
		for i := range s.troubles {
			if s.troubles[i].Site == at.Site.Name {
				s.troubles[i].open = false
			}
		}
	}
	return silent || s.failsForAll(at.Site.Name)
}

// add adds a trouble, unless an equal one happened at about the same time. Callers hold mu.
func (s *Survey) add(t trouble) {
	s.troubles = slices.DeleteFunc(s.troubles, func(o trouble) bool { return t.At.Sub(o.At) >= cluster.TroubleKept })
	if !slices.ContainsFunc(s.troubles, func(o trouble) bool {
		return o.Site == t.Site && o.silent == t.silent && o.project == t.project && o.open &&
			t.At.Sub(o.At) < failureKept
	}) {
		s.troubles = append(s.troubles, t)
	}
}

// failsForAll reports whether requests of several projects failed at a site, and none has succeeded since. Callers hold
// mu.
func (s *Survey) failsForAll(site string) bool {
	projects := map[croft.Project]bool{}
	for _, t := range s.troubles {
		if t.Site == site && t.open && !t.silent {
			projects[t.project] = true
		}
	}
	return len(projects) > 1
}

// recent lists the troubles of the last hour, without faults that only one project sees. Troubles that count as silence
// are at least failureKept apart, independent of the number of projects that saw them.
func (s *Survey) recent(now time.Time) []cluster.Trouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []cluster.Trouble
	last := map[string]time.Time{}
	for _, t := range s.troubles {
		if now.Sub(t.At) >= cluster.TroubleKept {
			continue
		}
		ofAll := t.silent || s.failsForAll(t.Site)
		if t.Silent = t.open && ofAll && t.At.Sub(last[t.Site]) >= failureKept; t.Silent {
			last[t.Site] = t.At
		}
		if ofAll {
			all = append(all, t.Trouble)
		}
	}
	return all
}
