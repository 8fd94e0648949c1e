package etcdtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/internal/testing/patient"
)

// issued are the secrets that were given to tests of this process.
var issued struct {
	sync.Mutex
	secrets []string
}

// Issued records secrets that the cloud gave to a test, and that must not occur in etcd. For an access token, its
// secret part alone must not occur either.
func Issued(secrets ...string) {
	issued.Lock()
	defer issued.Unlock()
	for _, s := range secrets {
		if parts := accessToken.FindStringSubmatch(s); parts != nil {
			s = parts[1]
		}
		if len(s) >= 16 { // shorter secrets of tests are also ordinary words
			issued.secrets = append(issued.secrets, s)
		}
	}
}

// The forms of secrets that croft generates.
var (
	accessToken = regexp.MustCompile(`croft_[0-9a-f]{12}_([A-Za-z0-9_-]{43})`)
	secretForms = map[string]*regexp.Regexp{
		"an access token":     accessToken,
		"an invitation":       regexp.MustCompile(`croft1\.[A-Za-z0-9_-]{40}`),
		"a token of pools":    regexp.MustCompile(`\bcp_[A-Za-z0-9_-]{43}\b`),
		"a private key":       regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----`),
		"the header of a key": regexp.MustCompile(`b3BlbnNzaC1rZXktdjE`), // openssh-key-v1, in base64
	}
)

// CheckDump fails the test for each key that was ever written to an etcd outside of the partitions of the cloud, other
// than home and the registry, or that etcdstore/keys.go does not list, and for each secret in plain text in a value.
func CheckDump(t testing.TB, endpoint string) {
	t.Helper()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(t.Context()), patient.Deadline(t))
	defer cancel()
	found, err := Breaches(ctx, endpoint)
	if err != nil {
		t.Errorf("dump of etcd: %v", err)
	}
	for _, breach := range found {
		t.Errorf("dump of etcd: %s", breach)
	}
}

// Breaches lists the problems for which CheckDump fails, in the current content of etcd and in its history.
func Breaches(ctx context.Context, endpoint string) ([]string, error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		return nil, err
	}
	defer etcd.Close()
	got, err := etcd.Get(ctx, "/croft/home")
	if err != nil {
		return nil, err
	}
	if len(got.Kvs) == 0 {
		return nil, errors.New("there is no home")
	}
	var home struct{ Partition croft.PartitionID }
	if err := json.Unmarshal(got.Kvs[0].Value, &home); err != nil {
		return nil, err
	}
	listed, err := listedKeys()
	if err != nil {
		return nil, err
	}
	d := dump{home: string(home.Partition), listed: listed, found: map[string]bool{}}
	issued.Lock()
	d.secrets = slices.Clone(issued.secrets)
	issued.Unlock()
	err = eachWrite(ctx, etcd, got.Header.Revision, d.look)
	return slices.Sorted(maps.Keys(d.found)), err
}

// eachWrite calls look with everything that is stored, and with all earlier writes that are not compacted.
func eachWrite(ctx context.Context, etcd *clientv3.Client, until int64, look func(key string, value []byte)) error {
	all, err := etcd.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(until))
	if err != nil {
		return err
	}
	for _, kv := range all.Kvs {
		look(string(kv.Key), kv.Value)
	}
	for from := int64(1); from <= until; {
		watching, end := context.WithCancel(ctx)
		for answer := range etcd.Watch(watching, "\x00", clientv3.WithFromKey(), clientv3.WithRev(from)) {
			if from = max(from, answer.CompactRevision); answer.Err() != nil {
				break
			}
			for _, e := range answer.Events {
				look(string(e.Kv.Key), e.Kv.Value)
				from = max(from, e.Kv.ModRevision+1)
			}
			if from > until {
				break
			}
		}
		end()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// dump is one check of all keys of an etcd.
type dump struct {
	home    string
	listed  []*regexp.Regexp
	secrets []string
	found   map[string]bool
}

func (d *dump) look(key string, value []byte) {
	_, inside, _ := strings.Cut(strings.TrimPrefix(key, "/croft/"), "/")
	switch partition := strings.TrimPrefix(strings.TrimSuffix(key, inside), "/croft/"); {
	case key == "/croft/home", strings.HasPrefix(key, "/croft/partitions/"):
	case !slices.ContainsFunc(d.listed, func(r *regexp.Regexp) bool { return r.MatchString(key) }):
		d.found["the key "+key+" is none of etcdstore/keys.go"] = true
	case partition != d.home+"/" && !strings.HasPrefix(inside, "imported/"):
		d.found["the key "+key+" is of another partition than home, and no import"] = true
	}
	for _, text := range texts(inside, value) {
		for what, form := range secretForms {
			if form.MatchString(text) {
				d.found[what+" is in the value of "+key] = true
			}
		}
		for _, secret := range d.secrets {
			if strings.Contains(text, secret) {
				d.found["a secret that was issued is in the value of "+key] = true
			}
		}
	}
}

// texts returns the texts of a value: the value itself, and its JSON strings decoded from base64. It omits secrets that
// etcd stores in plain text on purpose (docs/users/security.md): guests' host keys, tokens of agents' APIs, and keys in
// user-data.
func texts(key string, value []byte) []string {
	kind, _, _ := strings.Cut(key, "/")
	text := string(value)
	var decoded any
	if json.Unmarshal(value, &decoded) != nil {
		if kind == "userdata" {
			text = strings.ReplaceAll(text, "PRIVATE KEY", "")
		}
		return []string{text}
	}
	all := []string{}
	var walk func(v any, path string)
	walk = func(v any, path string) {
		switch v := v.(type) {
		case map[string]any:
			for name, field := range v {
				all = append(all, name)
				walk(field, path+"."+name)
			}
		case []any:
			for _, one := range v {
				walk(one, path)
			}
		case string:
			onPurpose := path == ".spec.host_key" && (kind == "instances" || kind == "orders") ||
				path == ".token" && kind == "hosts"
			if onPurpose {
				return
			}
			all = append(all, v)
			for _, form := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				if raw, err := form.DecodeString(v); err == nil {
					all = append(all, string(raw))
				}
			}
		}
	}
	walk(decoded, "")
	return all
}

var keyOfList = regexp.MustCompile(`(?m)^//\t(/croft/(?:<[^>]*>|[^\s<])+)`)

// listedKeys returns patterns of the keys that etcdstore/keys.go lists.
var listedKeys = sync.OnceValues(func() (all []*regexp.Regexp, err error) {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, "etcdstore", "keys.go"))
	for _, found := range keyOfList.FindAllStringSubmatch(string(text), -1) {
		form := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(found[1], `[^/]+`)
		all = append(all, regexp.MustCompile("^"+form+"$"))
	}
	if err == nil && len(all) < 40 {
		err = fmt.Errorf("etcdstore/keys.go lists only %d keys", len(all))
	}
	return all, err
})
