package server

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"croft"
	"croft/internal/lazyregexp"
	"croft/pool"
)

// Role is the set of rights of a token.
type Role string

// The roles. An admin has all rights of a client.
const (
	RoleClient Role = "client" // open, read, renew and close tickets
	RoleAdmin  Role = "admin"  // also manage pools and resources
)

// Roles lists the roles.
var Roles = []string{string(RoleClient), string(RoleAdmin)}

// Grant is one line of a file of tokens: the holder's name, the role, and the hash of the token. Only the holder has
// the token.
type Grant struct {
	Name string
	Role Role
	Hash string // SHA-256, hexadecimal

	Quota // 0: the server's default
}

// Quota limits the holder of a client's token.
type Quota struct {
	Open int     // tickets at once
	Rate float64 // new tickets per second; bursts of Open tickets are allowed
}

// or fills unset limits from other.
func (q Quota) or(other Quota) Quota {
	return Quota{cmp.Or(q.Open, other.Open), cmp.Or(q.Rate, other.Rate)}
}

// Upper limits of a quota.
const (
	mostOpen = 1_000_000
	mostRate = 1_000_000
)

// Check validates a quota. Invalid.
func (q Quota) Check() error {
	if q.Open < 0 || q.Open > mostOpen || !(q.Rate >= 0 && q.Rate <= mostRate) {
		return croft.Errorf(croft.Invalid,
			"a quota of %d open tickets and %g new ones a second: use numbers from 0, for the default, to %d", q.Open,
			q.Rate, mostOpen)
	}
	return nil
}

var tokenName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// NewToken makes a token of 256 random bits, which cannot be derived from its hash, and its grant for a file of tokens.
// Invalid: the name or the role is not valid.
func NewToken(name string, role Role) (string, Grant, error) {
	if !tokenName.MatchString(name) {
		return "", Grant{},
			croft.Errorf(croft.Invalid, "%q is not a token name: use up to 64 letters, digits, dots, dashes and @",
				name)
	}
	if !slices.Contains(Roles, string(role)) {
		return "", Grant{}, croft.Errorf(croft.Invalid, "%q is not a token role: use client or admin", role)
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	token := "cp_" + base64.RawURLEncoding.EncodeToString(random)
	return token, Grant{Name: name, Role: role, Hash: hashOf(token)}, nil
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Line is the grant's line in a file.
func (g Grant) Line() string {
	line := fmt.Sprintf("%s %s sha256:%s", g.Name, g.Role, g.Hash)
	if g.Open != 0 {
		line += fmt.Sprintf(" open=%d", g.Open)
	}
	if g.Rate != 0 {
		line += " rate=" + strconv.FormatFloat(g.Rate, 'f', -1, 64)
	}
	return line + "\n"
}

// ParseTokens reads a file of tokens: one per line, NAME ROLE sha256:HASH [open=N] [rate=N]; empty lines and lines that
// start with # are ignored. Invalid, with file and line.
func ParseTokens(file string, text []byte) ([]Grant, error) {
	var all []Grant
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		g, err := parseGrant(line)
		if err == nil && slices.ContainsFunc(all, func(other Grant) bool { return other.Name == g.Name }) {
			err = fmt.Errorf("there is another token named %s", g.Name)
		}
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%s:%d: %w", file, n, err)
		}
		all = append(all, g)
	}
	if err := lines.Err(); err != nil {
		return nil, croft.Errorf(croft.Invalid, "%s: %w", file, err)
	}
	return all, nil
}

func parseGrant(line string) (Grant, error) {
	words := strings.Fields(line)
	if len(words) < 3 || len(words) > 5 {
		return Grant{},
			fmt.Errorf("a line has three words, NAME ROLE sha256:HASH, and may have open=N and rate=N; this has %d",
				len(words))
	}
	g := Grant{Name: words[0], Role: Role(words[1])}
	hash, prefixed := strings.CutPrefix(words[2], "sha256:")
	sum, err := hex.DecodeString(hash)
	switch {
	case !tokenName.MatchString(g.Name):
		return g, fmt.Errorf("%q is not a token name", g.Name)
	case !slices.Contains(Roles, string(g.Role)):
		return g, fmt.Errorf("%q is not a role: use client or admin", g.Role)
	case !prefixed || err != nil || len(sum) != sha256.Size:
		return g,
			fmt.Errorf("the third word is sha256: and 64 hexadecimal digits (croft token create --for pool makes such a line)")
	}
	g.Hash = strings.ToLower(hash)
	for _, word := range words[3:] {
		if err := g.Quota.parse(word); err != nil {
			return g, err
		}
	}
	return g, g.Quota.Check()
}

// parse reads open=N or rate=N.
func (q *Quota) parse(word string) (err error) {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "open":
		q.Open, err = strconv.Atoi(value)
	case "rate":
		q.Rate, err = strconv.ParseFloat(value, 64)
	default:
		err = errors.New("no such word")
	}
	if err != nil {
		return fmt.Errorf("%q is not a quota: use open=N or rate=N", word)
	}
	return nil
}

// PoolTokens are the tokens of a file, which is read again when it changes. While it is faulty, the last valid
// version stays in force.
type PoolTokens struct {
	file string
	log  *slog.Logger

	mu      sync.Mutex
	looked  time.Time // when the file was last checked
	seen    os.FileInfo
	byHash  map[string]Grant
	current bool // the file is valid
}

// tokenFreshness is the maximum age of the cached file.
const tokenFreshness = time.Second

// LoadTokens reads a file of tokens. Invalid.
func LoadTokens(file string, log *slog.Logger) (*PoolTokens, error) {
	t := &PoolTokens{file: file, log: log}
	if err := t.read(); err != nil {
		return nil, err
	}
	return t, nil
}

// Find returns the grant of a token.
func (t *PoolTokens) Find(token string) (Grant, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.looked) >= tokenFreshness {
		t.refresh()
	}
	g, ok := t.byHash[hashOf(token)]
	return g, ok
}

// refresh reads the file if it changed.
func (t *PoolTokens) refresh() {
	t.looked = time.Now()
	info, err := os.Stat(t.file)
	if err == nil && t.seen != nil && os.SameFile(info, t.seen) && info.ModTime().Equal(t.seen.ModTime()) &&
		info.Size() == t.seen.Size() {
		return
	}
	if err := t.read(); err != nil && t.current {
		t.current = false
		t.log.Error("the file of tokens is not read; the tokens that it had count still", "file", t.file, "err", err)
	}
}

func (t *PoolTokens) read() error {
	info, err := os.Stat(t.file)
	if err != nil {
		return croft.Errorf(croft.Invalid, "read the file of tokens: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return croft.Errorf(croft.Invalid, "others than its owner may write %s: chmod go-w %s", t.file, t.file)
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return croft.Errorf(croft.Invalid, "read the file of tokens: %w", err)
	}
	all, err := ParseTokens(t.file, text)
	if err != nil {
		t.seen = info // the same fault is logged once
		return err
	}
	t.byHash = map[string]Grant{}
	for _, g := range all {
		t.byHash[g.Hash] = g
	}
	t.seen, t.looked, t.current = info, time.Now(), true
	return nil
}

// caller is the sender of a request.
type caller struct {
	name  string // of the token; empty: anonymous
	role  Role   // empty: public read access only
	quota Quota  // of the token
}

// may reports whether the caller has the rights of a role.
func (c caller) may(role Role) bool { return c.role == role || c.role == RoleAdmin }

type callerKey struct{}

// callerOf returns the sender of a request that only authorized.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// DefaultQuota applies to clients without a quota in the file of tokens or the settings.
var DefaultQuota = Quota{Open: 1000, Rate: 10}

// quotas limits the rate at which clients open tickets.
type quotas struct {
	mu   sync.Mutex
	rate map[string]*rate.Limiter // by the name of the token
}

// errTooFast has status 429.
var errTooFast = croft.Errorf(croft.Unavailable, "this token opens tickets too fast; ask again in a moment")

// bound sets the limit of open tickets in an opening, and refuses one that exceeds the sender's rate. standard is for
// senders without their own quota. Admins have no limits; without tokens in the server, all senders are admins.
func (q *quotas) bound(c caller, standard Quota, o *pool.Opening) error {
	if c.may(RoleAdmin) {
		return nil
	}
	of := c.quota.or(standard).or(DefaultQuota)
	o.MostOpen = of.Open
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.rate[c.name]
	switch {
	case l == nil:
		l = rate.NewLimiter(rate.Limit(of.Rate), of.Open)
		q.rate[c.name] = l
	case l.Limit() != rate.Limit(of.Rate) || l.Burst() != of.Open:
		l.SetLimit(rate.Limit(of.Rate))
		l.SetBurst(of.Open)
	}
	if !l.Allow() {
		return errTooFast
	}
	return nil
}
