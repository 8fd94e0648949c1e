package croft

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Affinity makes an instance a member of a group of its project, whose rule restricts the hosts of the members. A group
// exists while it has members, and keeps one rule for that time. An instance is a member from its order to its end.
type Affinity struct {
	Group string `json:"group" maxLength:"63" minLength:"1"` // name of the group
	// affinity or anti-affinity, for hosts; at-most-N-per-LEVEL, same-LEVEL or both with a + between, for racks, rows
	// and sites. -soft at the end makes it a wish.
	Rule AffinityRule `json:"rule" maxLength:"100" minLength:"1"`
}

// AffinityRule restricts the placement of a group's members: one of the constants, or clauses such as
// at-most-2-per-rack, same-site, at-most-1-per-rack+same-site, each also with the suffix -soft. RuleOf builds such
// rules.
type AffinityRule string

// The rules. Hard rules hold under any concurrency; soft rules choose among hosts that are otherwise equal.
const (
	Together     AffinityRule = "affinity"           // all on one host
	TogetherSoft AffinityRule = "affinity-soft"      // on as few hosts as capacity allows
	Apart        AffinityRule = "anti-affinity"      // no two on one host
	ApartSoft    AffinityRule = "anti-affinity-soft" // on as many hosts as capacity allows
)

// softly is the suffix of soft rules, in rules and on the command line.
const softly = "soft"

// Soft reports whether the rule is a preference.
func (r AffinityRule) Soft() bool { return strings.HasSuffix(string(r), "-"+softly) }

// Softened returns the soft variant of the rule.
func (r AffinityRule) Softened() AffinityRule {
	if r.Soft() {
		return r
	}
	return r + "-" + softly
}

// String returns rule and group for people: anti-affinity web, affinity db:soft, at-most-1-per-rack web.
func (a Affinity) String() string {
	if a.Rule.Soft() {
		return strings.TrimSuffix(string(a.Rule), "-"+softly) + " " + a.Group + ":" + softly
	}
	return string(a.Rule) + " " + a.Group
}

// ParseAffinity reads GROUP, or GROUP:soft for the soft variant of a hard rule.
func ParseAffinity(rule AffinityRule, text string) (Affinity, error) {
	group, how, said := strings.Cut(text, ":")
	if said && how != softly {
		flag := string(rule)
		if rule.ByLocation() {
			flag = "group"
		}
		return Affinity{}, Errorf(Invalid, "--%s %q: after a group and a colon stands %s, or nothing", flag, text,
			softly)
	}
	if said {
		rule = rule.Softened()
	}
	return Affinity{group, rule}, nil
}

// GroupMember is an instance in a group, on its host.
type GroupMember struct {
	Affinity
	Instance InstanceID `json:"instance"`
	Name     string     `json:"name"`
	Host     HostID     `json:"host"`
}

// Admit checks whether one more instance may join the group on a host, given the group's members. Conflict:
// they have another rule. NoCapacity: the rule excludes the host. Clauses are checked by AdmitSeats.
func (a Affinity) Admit(host HostID, members []GroupMember) error {
	for _, m := range members {
		switch {
		case m.Group != a.Group:
		case m.Rule != a.Rule:
			return Errorf(Conflict,
				"group %s has the rule %s, as instance %s joined it, not %s; use that rule, or another group",
				a.Group, m.Affinity, m.Name, a)
		case a.Rule == Apart && m.Host == host:
			return Errorf(NoCapacity, "has instance %s of group %s, whose members stay apart", m.Name, a.Group)
		case a.Rule == Together && m.Host != host:
			return Errorf(NoCapacity, "is not the host of group %s, whose members stay together", a.Group)
		}
	}
	return nil
}

// Clause is a part of a rule about the locations of a level: at most AtMost members of the group in each location, or
// all members in one location.
type Clause struct {
	AtMost int // 1 to MaxPerLocation; 0: all members are in one location
	Level  Level
}

// MaxPerLocation is the greatest number of members that a clause may allow in one location.
const MaxPerLocation = 999

// String returns the clause as part of a rule: at-most-2-per-rack, same-site.
func (c Clause) String() string {
	if c.AtMost == 0 {
		return "same-" + string(c.Level)
	}
	return "at-most-" + strconv.Itoa(c.AtMost) + "-per-" + string(c.Level)
}

// RuleOf returns the rule that consists of these clauses. The rules at-most-1-per-host and same-host are always named
// anti-affinity and affinity.
func RuleOf(clauses ...Clause) AffinityRule {
	var words []string
	for _, c := range clauses {
		words = append(words, c.String())
	}
	slices.Sort(words) // at-most before same
	switch rule := AffinityRule(strings.Join(words, "+")); rule {
	case AffinityRule(Clause{1, LevelHost}.String()):
		return Apart
	case AffinityRule(Clause{0, LevelHost}.String()):
		return Together
	default:
		return rule
	}
}

// Clauses returns the clauses of the rule. Invalid: the rule does not exist.
func (r AffinityRule) Clauses() ([]Clause, error) {
	hard, _ := strings.CutSuffix(string(r), "-"+softly)
	switch AffinityRule(hard) {
	case Together:
		return []Clause{{0, LevelHost}}, nil
	case Apart:
		return []Clause{{1, LevelHost}}, nil
	}
	var clauses []Clause
	for word := range strings.SplitSeq(hard, "+") {
		c, err := parseClause(word)
		if err != nil {
			return nil, Errorf(Invalid, "there is no rule %q", r)
		}
		clauses = append(clauses, c)
	}
	switch {
	case string(RuleOf(clauses...)) != hard: // a rule has only one name
		return nil, Errorf(Invalid, "there is no rule %q; it is written %s", r, RuleOf(clauses...))
	case len(clauses) == 1, len(clauses) == 2 && clauses[0].AtMost > 0 && clauses[1].AtMost == 0:
		return clauses, nil
	}
	return nil, Errorf(Invalid, "the rule %q says one thing twice", r)
}

func parseClause(word string) (Clause, error) {
	if level, ok := strings.CutPrefix(word, "same-"); ok {
		l, err := ParseLevel(level)
		return Clause{Level: l}, err
	}
	number, level, _ := strings.Cut(strings.TrimPrefix(word, "at-most-"), "-per-")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > MaxPerLocation {
		return Clause{}, Errorf(Invalid, "%q: write 1 to %d", number, MaxPerLocation)
	}
	l, err := ParseLevel(level)
	return Clause{n, l}, err
}

// ByLocation reports whether the rule is about locations. Other rules are about hosts and need no seats.
func (r AffinityRule) ByLocation() bool {
	return r != Together && r != TogetherSoft && r != Apart && r != ApartSoft
}

// Seat is the right of a group's member to a location under one clause of a hard rule. It is written with the order and
// removed with the record. The location is the host's at the time of the order, even if the host has another one later.
type Seat struct {
	Group    string     `json:"group"`              // name of the group
	Clause   string     `json:"clause"`             // rule of the group
	Location string     `json:"location"`           // where members of the group are
	Number   int        `json:"number,omitempty"`   // from 1 to the clause's limit; 0: the clause has none
	Instance InstanceID `json:"instance,omitempty"` // the member that has it; empty on the instance's own record
}

// Counted reports whether the seats of the clause are numbered.
func (s Seat) Counted() bool { return !strings.HasPrefix(s.Clause, "same-") }

// same reports whether two seats are in one location under one clause of one group.
func (s Seat) same(other Seat) bool {
	return s.Group == other.Group && s.Clause == other.Clause && s.Location == other.Location
}

// where describes the location for people, as the subject of a sentence about a host in it.
func (s Seat) where(c Clause) string {
	last := s.Location[strings.LastIndexByte(s.Location, '/')+1:]
	switch isHost := strings.HasPrefix(last, "host=") || strings.Count(s.Location, "/") == len(Levels)-1; {
	case isHost && c.Level == LevelHost:
		return "it"
	case isHost:
		return "it, a " + string(c.Level) + " of its own,"
	}
	return string(c.Level) + " " + s.Location
}

// AdmitSeats checks whether the group's rule grants the seats of one more instance, given those taken; seats of other
// groups are ignored. NoCapacity: it does not.
func (a Affinity) AdmitSeats(wanted, taken []Seat) error {
	clauses, err := a.Rule.Clauses()
	if err != nil {
		return err
	}
	for _, want := range wanted {
		i := slices.IndexFunc(clauses, func(c Clause) bool { return c.String() == want.Clause })
		if want.Group != a.Group || i < 0 {
			continue
		}
		if err := want.admit(clauses[i], taken); err != nil {
			return err
		}
	}
	return nil
}

func (s Seat) admit(c Clause, taken []Seat) error {
	n := 0
	for _, t := range taken {
		switch {
		case t.same(s):
			n++
		case c.AtMost == 0 && t.Group == s.Group && t.Clause == s.Clause:
			return Errorf(NoCapacity, "is not in the %s of group %s, %s, whose members stay together", c.Level, s.Group,
				t.Location)
		}
	}
	switch {
	case c.AtMost == 0 || n < c.AtMost:
		return nil
	case n == 1:
		return Errorf(NoCapacity, "%s has a member of group %s already", s.where(c), s.Group)
	}
	return Errorf(NoCapacity, "%s has %d members of group %s already", s.where(c), n, s.Group)
}

// Renumber gives the seats numbers that are free among those taken. A seat without a free number, or under a clause
// that counts nothing, keeps its number. Free numbers are chosen at random, so that concurrent requests seldom choose
// the same.
func Renumber(seats, taken []Seat) []Seat {
	seats = slices.Clone(seats)
	for i, s := range seats {
		c, err := parseClause(s.Clause)
		if err != nil || c.AtMost == 0 {
			continue
		}
		first := rand.IntN(c.AtMost)
		for n := range c.AtMost {
			number := 1 + (first+n)%c.AtMost
			if !slices.ContainsFunc(taken, func(t Seat) bool { return t.same(s) && t.Number == number }) {
				seats[i].Number = number
				break
			}
		}
	}
	return seats
}
