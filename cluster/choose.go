package cluster

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/nearest"
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

// Dropped is a site or implementation that was not chosen, and why.
type Dropped struct {
	Site           string           `json:"site"`                     // its name
	Implementation ImplementationID `json:"implementation,omitempty"` // its UUID
	Reason         string           `json:"reason"`                   // one sentence
}

// Candidate is a way to build a cluster.
type Candidate struct {
	Site           Site
	Implementation Implementation
	Credential     Credential // the zero value at a local site
	Room           Room
	Why            string // why it ranks before the next candidate; Choose fills it
}

// CheckHints rejects hints that name something that does not exist: an empty list of candidates would not explain the
// error. Invalid.
func CheckHints(h Hints, w World) error {
	var sites, credentials, implementations []string
	for _, s := range w.Sites {
		sites = append(sites, s.Name)
	}
	for _, c := range w.Credentials {
		credentials = append(credentials, c.Name, string(c.ID))
	}
	for _, i := range w.Implementations {
		implementations = append(implementations, string(i.ID))
	}
	for _, check := range []struct {
		hint, noun     string
		named, present []string
	}{
		{"sites", "site", h.Sites, sites},
		{"exclude_sites", "site", h.ExcludeSites, sites},
		{"prefer_sites", "site", h.PreferSites, sites},
		{"credentials", "credential of yours", h.Credentials, credentials},
		{"implementations", "implementation of this appliance", h.implementations(), implementations},
	} {
		for _, name := range check.named {
			if !slices.Contains(check.present, name) {
				return croft.Errorf(croft.Invalid, "hint %s: there is no %s %.80q%s", check.hint, check.noun, name,
					nearest.Hint(name, check.present))
			}
		}
	}
	return nil
}

// NeedsCredential reports whether a site of this type builds clusters only with a credential.
func (t SiteType) NeedsCredential() bool { return t == OpenStack || t == Croft }

// credential returns the credential to use at a site: the first one in the order of the hints, else the one that was
// verified last, else the oldest one. Credentials that the site has refused since their verification come after all
// others.
func (w World) credential(h Hints, s Site) (Credential, string) {
	var own []Credential
	for _, c := range w.Credentials {
		if c.Site == s.Name {
			own = append(own, c)
		}
	}
	var hinted []Credential
	for _, c := range own {
		if rank(h, c) < len(h.Credentials) {
			hinted = append(hinted, c)
		}
	}
	switch {
	case len(h.Credentials) > 0 && len(hinted) == 0:
		return Credential{}, "none of the credentials that the request asks for is for this site"
	case len(h.Credentials) > 0:
		own = hinted
	case len(own) == 0 && s.Type.NeedsCredential():
		return Credential{}, "you have no credential for this site"
	case len(own) == 0:
		return Credential{}, ""
	}
	return slices.MinFunc(own, func(a, b Credential) int {
		return cmp.Or(cmp.Compare(rank(h, a), rank(h, b)), cmp.Compare(min(1, len(a.LastError)), min(1,
			len(b.LastError))),
			b.VerifiedAt.Compare(a.VerifiedAt), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	}), ""
}

// rank returns the position of a credential in the hints, or the number of hints if they do not name it.
func rank(h Hints, c Credential) int {
	at := slices.IndexFunc(h.Credentials, func(s string) bool { return s == c.Name || s == string(c.ID) })
	if at < 0 {
		return len(h.Credentials)
	}
	return at
}

// Choices converts candidates to the form that users see.
func Choices(all []Candidate) []Choice {
	choices := []Choice{}
	for _, c := range all {
		choices = append(choices, Choice{Site: c.Site.Name, Implementation: c.Implementation.ID,
			Revision: c.Implementation.Revision, Credential: c.Credential.Name, Capacity: capacity(c.Room), Why: c.Why})
	}
	return choices
}

func capacity(r Room) string {
	if !r.Known {
		return "it is not known whether it has room"
	}
	return fmt.Sprintf("it has room, and leaves %.0f %% of its scarcest resource free", r.Free*100)
}

// A criterion compares candidates by a number; smaller is better.
type criterion struct {
	of  func(Candidate) float64
	why func(a, b Candidate) string // says why a is before b
}

// order sorts candidates, best first, and sets the reason why each is before the next.
func (w World) order(h Hints, all []Candidate, random *rand.Rand) {
	// The order of the input must not matter: only the random source decides between equal candidates.
	slices.SortFunc(all, func(a, b Candidate) int { return cmp.Compare(a.Implementation.ID, b.Implementation.ID) })
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	criteria := w.criteria(h)
	slices.SortStableFunc(all, func(a, b Candidate) int {
		for _, c := range criteria {
			if n := cmp.Compare(c.of(a), c.of(b)); n != 0 {
				return n
			}
		}
		return 0
	})
	for i := range all {
		all[i].Why = why(criteria, all, i)
	}
}

func why(criteria []criterion, all []Candidate, i int) string {
	if len(all) == 1 {
		return "it is the only one"
	}
	if i == len(all)-1 {
		return "it is the last"
	}
	for _, c := range criteria {
		if c.of(all[i]) != c.of(all[i+1]) {
			return c.why(all[i], all[i+1])
		}
	}
	return "by chance: the next is as good"
}

func (w World) criteria(h Hints) []criterion {
	failures := map[string]int{}
	for _, t := range w.Troubles {
		if w.Now.Sub(t.At) < TroubleKept {
			failures[t.Site]++
		}
	}
	place := func(c Candidate) float64 {
		if at := slices.Index(h.PreferSites, c.Site.Name); at >= 0 {
			return float64(at)
		}
		return math.Inf(1)
	}
	return []criterion{
		{func(c Candidate) float64 { return before(c.Site.Name == w.Reuse) },
			func(_, _ Candidate) string { return "it has a cluster that can be reused" }},
		{func(c Candidate) float64 { return before(c.Room.Known) },
			func(_, _ Candidate) string { return "it is known to have room" }},
		{place, func(_, _ Candidate) string { return "the request prefers it" }},
		{func(c Candidate) float64 { return -float64(c.Site.Priority) },
			func(a, b Candidate) string {
				return fmt.Sprintf("its priority is %d, the next site's is %d", a.Site.Priority, b.Site.Priority)
			}},
		{func(c Candidate) float64 { return -c.Room.Free },
			func(a, b Candidate) string {
				return fmt.Sprintf("it leaves %.1f %% of its scarcest resource free, the next site %.1f "+
					"%%", a.Room.Free*100,
					b.Room.Free*100)
			}},
		{func(c Candidate) float64 { return float64(failures[c.Site.Name]) },
			func(a, b Candidate) string {
				return fmt.Sprintf("%s in the last hour, at the next %d",
					wording.Count(failures[a.Site.Name], "failure"),
					failures[b.Site.Name])
			}},
	}
}

// before maps a condition to a sort key: 0, which sorts first, if it holds, else 1.
func before(yes bool) float64 {
	if yes {
		return 0
	}
	return 1
}

// reusable lists the states in which a cluster can be joined; the states nearest to use come first.
var reusable = []State{Ready, Resizing, Building, Scheduling}

// Joins reports whether a request may join an existing cluster. It compares all but their parameters. credentials are
// the user's; hints may refer to them by name.
func (r Request) Joins(c Cluster, credentials []Credential) bool {
	return r.Reuse != ReuseNever && c.Project == r.Project && c.User == r.User && c.Appliance == r.Appliance &&
		slices.Contains(reusable, c.State) && c.Slaves >= r.Slaves && r.Hints.permit(c, credentials)
}

// permit reports whether the hints permit the site of a cluster. A cluster without a site is permitted if its request
// had the same hints, or if h has no hard hints.
func (h Hints) permit(c Cluster, credentials []Credential) bool {
	if c.Site == "" {
		return h.hard() == nil || slices.EqualFunc(h.hard(), c.Hints.hard(), slices.Equal)
	}
	if len(h.Sites) > 0 && !slices.Contains(h.Sites, c.Site) || slices.Contains(h.ExcludeSites, c.Site) {
		return false
	}
	if len(h.Implementations) > 0 && !slices.Contains(h.Implementations, c.Implementation) {
		return false
	}
	if len(h.Credentials) == 0 {
		return true
	}
	at := slices.IndexFunc(credentials, func(own Credential) bool { return own.ID == c.Credential })
	return at >= 0 && rank(h, credentials[at]) < len(h.Credentials)
}

// hard lists the hints that are not preferences, each sorted; nil: there are none.
func (h Hints) hard() [][]string {
	all := [][]string{h.Sites, h.ExcludeSites, h.Credentials, h.implementations()}
	some := false
	for i := range all {
		all[i] = slices.Sorted(slices.Values(all[i]))
		some = some || len(all[i]) > 0
	}
	if !some {
		return nil
	}
	return all
}

// CompareReuse orders the clusters that a request may join: by a name equal to the requested one, then by the state
// that is ready for use soonest, then by size, then by age. Smaller and older clusters come first.
func (r Request) CompareReuse(a, b Cluster) int {
	return cmp.Or(cmp.Compare(before(a.Name == r.Name), before(b.Name == r.Name)),
		cmp.Compare(slices.Index(reusable, a.State), slices.Index(reusable, b.State)),
		cmp.Compare(a.Slaves, b.Slaves), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}
