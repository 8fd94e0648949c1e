package access_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/placement"
	"croft/tenant/access"
)

// The user type of placementclient/keystone for croft's Placement must equal the one of this package.
var _ = access.KeystoneUser(placement.Caller{})

// openstack is a Keystone: the users of tokens, and the number of requests.
type openstack struct {
	users map[string]access.KeystoneUser
	away  bool
	asked int
}

func (o *openstack) validate(_ context.Context, token string) (access.KeystoneUser, error) {
	o.asked++
	if o.away {
		return access.KeystoneUser{}, croft.Errorf(croft.Unavailable, "keystone does not answer")
	}
	u, ok := o.users[token]
	if !ok {
		return u, croft.Errorf(croft.NotFound, "keystone knows no such token")
	}
	return u, nil
}

func newKeystone(t *testing.T, o *openstack) *access.Keystone {
	t.Helper()
	k, err := access.NewKeystone(access.KeystoneConfig{Partition: "partition", Validate: o.validate,
		Projects:  map[string]croft.Project{"id-lab": "lab"},
		Roles:     map[string]access.Role{"reader": access.Reader, "member": access.Member, "_member_": access.Member},
		Operators: []string{"admin"}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestWhatKeystonesTokensAreWorth(t *testing.T) {
	later := time.Now().Add(time.Hour)
	o := &openstack{users: map[string]access.KeystoneUser{
		"member":   {User: "ann", Project: "id-lab", Roles: []string{"member", "reader", "_member_"}, Expires: later},
		"reader":   {User: "joe", Project: "id-lab", Roles: []string{"reader", "auditor"}, Expires: later},
		"admin":    {User: "kim", Project: "id-lab", Roles: []string{"admin"}, Expires: later},
		"other":    {User: "lee", Project: "id-shop", Roles: []string{"member"}, Expires: later},
		"unscoped": {User: "lee", Roles: []string{"member"}, Expires: later},
		"system":   {User: "kim", System: true, Roles: []string{"admin", "member"}, Expires: later},
		"watcher":  {User: "ron", System: true, Roles: []string{"reader"}, Expires: later},
		"old":      {User: "ann", Project: "id-lab", Roles: []string{"member"}, Expires: time.Now().Add(-time.Second)},
	}}
	k := newKeystone(t, o)
	for _, c := range []struct {
		token string
		user  string
		in    croft.Project
		roles []access.Role
		says  string // part of the refusal
	}{
		{"member", "ann", "lab", []access.Role{access.Reader, access.Member}, ""},
		{"reader", "joe", "lab", []access.Role{access.Reader}, ""},
		{"system", "kim", "", []access.Role{access.PartitionAdmin}, ""},
		{"admin", "", "", nil, `none of Keystone's roles ["admin"] is a role in this cloud`},
		{"other", "", "", nil, `Keystone's project "id-shop" is no project of this cloud`},
		{"unscoped", "", "", nil, `Keystone's project "" is no project`},
		{"watcher", "", "", nil, `none of its roles ["reader"] operates this cloud`},
		{"old", "", "", nil, "has expired"},
		{"wrong", "", "", nil, "knows no such token"},
		{"", "", "", nil, "needs one X-Auth-Token"},
	} {
		got, ok, err := k.Authenticate(t.Context(), request(t, "X-Auth-Token", c.token))
		if ok != (c.says == "") || (croft.KindOf(err) == croft.Denied) != (c.says != "") || got.User != c.user ||
			got.Project != c.in || !slices.Equal(got.Roles, c.roles) {
			t.Errorf("%q: got %+v, %v, %v", c.token, got, ok, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: it says %q, want %q in it", c.token, err, c.says)
		}
	}
	if _, ok, err := k.Authenticate(t.Context(), request(t)); ok || err != nil {
		t.Errorf("without a token: %v, %v", ok, err)
	}
	two := request(t, "X-Auth-Token", "member", "X-Auth-Token", "member")
	if _, ok, err := k.Authenticate(t.Context(), two); ok || croft.KindOf(err) != croft.Denied {
		t.Errorf("two tokens: %v, %v", ok, err)
	}
}

func TestKeystoneIsAskedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		member := []string{"member"}
		o := &openstack{users: map[string]access.KeystoneUser{
			"long":  {User: "ann", Project: "id-lab", Roles: member, Expires: time.Now().Add(time.Hour)},
			"short": {User: "ann", Project: "id-lab", Roles: member, Expires: time.Now().Add(90 * time.Second)},
		}}
		k := newKeystone(t, o)
		ask := func(token string, want croft.Kind, asked int) {
			t.Helper()
			_, _, err := k.Authenticate(t.Context(), request(t, "X-Auth-Token", token))
			if croft.KindOf(err) != want || o.asked != asked {
				t.Errorf("%s after %s: %v, asked %d times; want %q, %d", token, time.Now().Format("04:05"), err,
					o.asked, want, asked)
			}
		}
		ask("long", "", 1)
		ask("long", "", 1)
		ask("wrong", croft.Denied, 2)
		ask("wrong", croft.Denied, 2)
		time.Sleep(6 * time.Second)
		ask("wrong", croft.Denied, 3)
		ask("wrong too", croft.Denied, 4)
		ask("wrong", croft.Denied, 4)
		delete(o.users, "long") // revoked
		time.Sleep(53 * time.Second)
		ask("long", "", 4)
		ask("short", "", 5)
		time.Sleep(time.Second)
		ask("long", croft.Denied, 6)
		time.Sleep(29 * time.Second)
		ask("short", "", 6)
		time.Sleep(time.Second)
		ask("short", croft.Denied, 7) // the token has expired, before the cached answer did
		o.away = true
		ask("new", croft.Unavailable, 8)
		ask("new", croft.Unavailable, 9) // a failure is not cached
	})
}

func TestAFloodOfTokensTakesBoundedMemory(t *testing.T) {
	o := &openstack{users: map[string]access.KeystoneUser{}}
	for i := range 10_001 {
		o.users[fmt.Sprint(i)] = access.KeystoneUser{User: "ann", Project: "id-lab", Roles: []string{"member"},
			Expires: time.Now().Add(time.Hour)}
	}
	k := newKeystone(t, o)
	ask := func(token string) {
		if _, ok, err := k.Authenticate(t.Context(), request(t, "X-Auth-Token", token)); !ok {
			t.Fatalf("%s: %v", token, err)
		}
	}
	for i := range 10_001 {
		ask(fmt.Sprint(i))
	}
	before := o.asked
	for i := range 10_001 {
		ask(fmt.Sprint(i))
	}
	if again := o.asked - before; again == 0 || again > 9_000 {
		t.Errorf("%d of 10001 answers were forgotten, want a few", again)
	}
	k = newKeystone(t, o)
	for i := range 20 {
		ask(fmt.Sprint(i))
	}
	for i := range 20_000 {
		_, _, _ = k.Authenticate(t.Context(), request(t, "X-Auth-Token", fmt.Sprint("wrong ", i)))
	}
	before = o.asked
	for i := range 20 {
		ask(fmt.Sprint(i))
	}
	if again := o.asked - before; again != 0 {
		t.Errorf("%d good answers were forgotten for bad ones", again)
	}
}

func TestConfigurationsOfKeystoneThatCannotBe(t *testing.T) {
	good := access.KeystoneConfig{Validate: (&openstack{}).validate}
	for name, spoil := range map[string]func(*access.KeystoneConfig){
		"no Keystone":        func(c *access.KeystoneConfig) { c.Validate = nil },
		"a project with a /": func(c *access.KeystoneConfig) { c.Projects = map[string]croft.Project{"x": "a/b"} },
		"an unknown role":    func(c *access.KeystoneConfig) { c.Roles = map[string]access.Role{"x": "king"} },
		"operators by project": func(c *access.KeystoneConfig) {
			c.Roles = map[string]access.Role{"admin": access.PartitionAdmin}
		},
		"hosts": func(c *access.KeystoneConfig) { c.Roles = map[string]access.Role{"x": access.Agent} },
	} {
		c := good
		spoil(&c)
		if _, err := access.NewKeystone(c); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := access.NewKeystone(good); err != nil {
		t.Error(err)
	}
}
