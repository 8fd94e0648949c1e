package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/wording"
)

// World is the input for the choice of a site, in addition to the request.
type World struct {
	Types           []SiteType       // the types that this server has a driver for
	Implementations []Implementation // of the appliance, all revisions
	Sites           []Site
	Credentials     []Credential                  // of the user in the project
	Contracts       map[ImplementationID]Contract // an implementation without an entry is not checked
	Faults          map[ImplementationID]error    // why an implementation cannot be used; of kind Invalid
	Filling         Filling                       // the input of Fill, without site and implementation
	Rooms           map[Place]Room                // a place without an entry has unknown room
	Clusters        []Cluster                     // all clusters of the partition, to count the clusters of each site
	Troubles        []Trouble                     // troubles of the last hour
	Attempts        []Tried                       // failed attempts of this request
	Reuse           string                        // the site of a cluster that the request would join
	Now             time.Time
}

// Place is a site, an implementation and a credential that a cluster could be built with.
type Place struct {
	Site           string
	Credential     CredentialID
	Implementation ImplementationID
}

// Place returns the place of the candidate.
func (c Candidate) Place() Place { return Place{c.Site.Name, c.Credential.ID, c.Implementation.ID} }

// Trouble is a failure at a site.
type Trouble struct {
	Site string
	At   time.Time
	// Silent: no response arrived, or requests of several projects failed and none succeeded, and the site has not
	// answered since. Otherwise a build failed there. The template may be at fault for that, so it does not close the
	// site for other requests.
	Silent bool
}

// A site that was silent troubleMax times within troubleSpan is closed for as long as these silences took, at least
// closedLeast and at most closedMost. So a restart that takes seconds closes it for seconds.
const (
	troubleMax  = 3
	troubleSpan = 10 * time.Minute
	closedLeast = 10 * time.Second
	closedMost  = 5 * time.Minute
	// TroubleKept is how long a trouble affects the order of sites.
	TroubleKept = time.Hour
)

// Choose returns the candidates for a request, best first, and the dropped sites and implementations. Every
// implementation is either a candidate or dropped, exactly once; a site without an implementation is dropped too. If
// the contract of a candidate's implementation is known, its parameters can be filled. The random source decides the
// order of equal candidates. Invalid: a hint names something that does not exist, or only parameters or faults are the
// reason that no candidate is left.
func Choose(r Request, w World, random *rand.Rand) ([]Candidate, []Dropped, error) {
	if err := CheckHints(r.Hints, w); err != nil {
		return nil, nil, err
	}
	var left []Candidate
	var dropped []Dropped
	var unfilled error
	full := false
	newest := newestOf(r.Hints, w.Implementations)
	for _, i := range w.Implementations {
		c, reason := w.candidate(r, i, newest)
		if reason == "" {
			if err := w.fills(c); err != nil {
				unfilled, reason = cmp.Or(unfilled, fmt.Errorf("site %s: %w", i.Site, err)), err.Error()
			} else if c.Room.Known && !c.Room.Fits {
				full, reason = true, c.Room.Why
			}
		}
		if reason != "" {
			dropped = append(dropped, Dropped{Site: i.Site, Implementation: i.ID, Reason: reason})
			continue
		}
		left = append(left, c)
	}
	if unfilled != nil && len(left) == 0 && !full {
		return nil, nil, unfilled
	}
	dropped = append(dropped, w.without(r.Appliance)...)
	slices.SortStableFunc(dropped, func(a, b Dropped) int { return strings.Compare(a.Site, b.Site) })
	w.order(r.Hints, left, random)
	return left, dropped, nil
}

// without lists the sites that the appliance has no implementation for.
func (w World) without(appliance string) []Dropped {
	var all []Dropped
	for _, s := range w.Sites {
		if !slices.ContainsFunc(w.Implementations, func(i Implementation) bool { return i.Site == s.Name }) {
			all = append(all, Dropped{Site: s.Name, Reason: fmt.Sprintf("%s has no implementation for this site",
				ApplianceName(appliance))})
		}
	}
	return all
}

// newestOf returns, by site, the newest enabled implementation that the hints permit.
func newestOf(h Hints, all []Implementation) map[string]Implementation {
	newest := map[string]Implementation{}
	for _, i := range all {
		if best, found := newest[i.Site]; permitted(h, i) && i.Enabled && (!found || i.Revision > best.Revision) {
			newest[i.Site] = i
		}
	}
	return newest
}

func permitted(h Hints, i Implementation) bool {
	return len(h.Implementations) == 0 || slices.Contains(h.Implementations, i.ID)
}

// candidate returns the candidate for an implementation, or one sentence that says why it is dropped.
func (w World) candidate(r Request, i Implementation, newest map[string]Implementation) (Candidate, string) {
	site, reason := w.site(r.Hints, i.Site)
	if reason == "" {
		reason = revisionReason(r.Hints, i, newest)
	}
	if reason != "" {
		return Candidate{}, reason
	}
	c := Candidate{Site: site, Implementation: i}
	if c.Credential, reason = w.credential(r.Hints, site); reason != "" {
		return Candidate{}, reason
	}
	c.Room = w.Rooms[c.Place()]
	return c, ""
}

// fills reports whether the template of a candidate is usable and all its parameters have values. Invalid.
func (w World) fills(c Candidate) error {
	if err := w.Faults[c.Implementation.ID]; err != nil {
		return err
	}
	contract, known := w.Contracts[c.Implementation.ID]
	if !known {
		return nil
	}
	f := w.Filling
	f.Site, f.Implementation = c.Site, c.Implementation
	f.Image = cmp.Or(f.Image, c.Implementation.Image) // the site may not have the image yet
	_, _, err := Fill(contract, f)
	return err
}

// site returns a site, or why it cannot be used.
func (w World) site(h Hints, name string) (Site, string) {
	at := slices.IndexFunc(w.Sites, func(s Site) bool { return s.Name == name })
	if at < 0 {
		return Site{}, "there is no such site any more"
	}
	s := w.Sites[at]
	failed := slices.IndexFunc(w.Attempts, func(a Tried) bool { return a.Site == name })
	switch {
	case len(h.Sites) > 0 && !slices.Contains(h.Sites, name):
		return s, "the request asks for other sites"
	case slices.Contains(h.ExcludeSites, name):
		return s, "the request excludes this site"
	case !slices.Contains(w.Types, s.Type):
		return s, fmt.Sprintf("this server cannot reach sites of type %s", s.Type)
	case !s.Enabled:
		return s, "the site is disabled"
	case failed >= 0:
		return s, "it was tried there: " + w.Attempts[failed].Error
	}
	if until := w.silentUntil(name); until.After(w.Now) {
		return s, fmt.Sprintf("the site did not answer %d times, and is asked again in %s", troubleMax,
			wording.Duration(until.Sub(w.Now).Round(time.Second)))
	}
	if n := w.held(name); s.MaxClusters > 0 && n >= s.MaxClusters {
		return s, SiteFull(s, n).Error()
	}
	return s, ""
}

// silentUntil returns the time until which a silent site is closed; it is in the past if the site is open.
func (w World) silentUntil(site string) time.Time {
	var times []time.Time
	for _, t := range w.Troubles {
		if t.Site == site && t.Silent {
			times = append(times, t.At)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	var until time.Time
	for i := troubleMax - 1; i < len(times); i++ {
		if times[i].Sub(times[i-troubleMax+1]) > troubleSpan {
			continue
		}
		first := slices.IndexFunc(times, func(t time.Time) bool { return times[i].Sub(t) <= troubleSpan })
		until = times[i].Add(min(max(times[i].Sub(times[first]), closedLeast), closedMost))
	}
	return until
}

// SiteFull returns the error for a site that has n clusters, its maximum. Conflict, because another site may have room.
func SiteFull(s Site, n int) error {
	return croft.Errorf(croft.Conflict, "site %s has %s, and may have %d", s.Name,
		wording.Count(n, "cluster"), s.MaxClusters)
}

// held counts the clusters of a site, without the one that the choice is for.
func (w World) held(site string) int {
	n := 0
	for _, c := range w.Clusters {
		if c.Site == site && c.State != Deleted && c.ID != w.Filling.Cluster {
			n++
		}
	}
	return n
}

func revisionReason(h Hints, i Implementation, newest map[string]Implementation) string {
	switch best, found := newest[i.Site]; {
	case !permitted(h, i):
		return "the request asks for other implementations"
	case !i.Enabled:
		return fmt.Sprintf("revision %d is disabled", i.Revision)
	case found && best.ID != i.ID:
		return fmt.Sprintf("revision %d is newer", best.Revision)
	}
	return ""
}
