package tenants

import (
	"cmp"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/tenant"
	"croft/tenant/access"
)

// Keys builds the keys of projects and of their usage; it is the prefix of the partition. The list of all keys is in
// etcdstore.
type Keys string

func (k Keys) projects() string               { return string(k) + "projects/" }
func (k Keys) project(p croft.Project) string { return k.projects() + string(p) }

// Project returns the key of a project's record.
func (k Keys) Project(p croft.Project) string { return k.project(p) }

func (k Keys) allBelow(p croft.Project) string          { return string(k) + "below/" + string(p) + "/" }
func (k Keys) below(parent, child croft.Project) string { return k.allBelow(parent) + string(child) }
func (k Keys) defaults() string                         { return string(k) + "quota/default" }
func (k Keys) allUsed() string                          { return string(k) + "quota/used/" }
func (k Keys) used(p croft.Project) string              { return k.allUsed() + string(p) }
func (k Keys) allEntries() string                       { return string(k) + "quota/unsettled/" }
func (k Keys) entriesOf(p croft.Project) string         { return k.allEntries() + string(p) + "/" }
func (k Keys) entriesAbout(inst croft.Instance) string {
	return k.entriesOf(inst.Project) + string(inst.ID) + "/"
}
func (k Keys) charged(inst croft.Instance) string { return k.entriesAbout(inst) + "charged" }
func (k Keys) repaid(inst croft.Instance) string  { return k.entriesAbout(inst) + "repaid" }

// entriesAboutToken returns the prefix of the entries about an access token. Token IDs are never reused, so no entry
// replaces another.
func (k Keys) entriesAboutToken(t access.Token) string {
	return k.entriesOf(t.Project) + "token-" + string(t.ID) + "/"
}

// The access tokens of a project are below one key, so that they can be removed with the project. Tokens without a
// project have a name there that no project can have.
func (k Keys) tokens() string { return string(k) + "tokens/" }

// TokensOf returns the prefix of the tokens of a project.
func (k Keys) TokensOf(p croft.Project) string {
	return k.tokens() + cmp.Or(string(p), "-") + "/"
}
func (k Keys) token(p croft.Project, id access.TokenID) string {
	return k.TokensOf(p) + string(id)
}

// ofToken returns the project of a token's key; empty: it has none.
func (k Keys) ofToken(key []byte) croft.Project {
	project, _, _ := strings.Cut(strings.TrimPrefix(string(key), k.tokens()), "/")
	return croft.Project(strings.TrimPrefix(project, "-"))
}

// entryOf returns the project of an entry's key.
func (k Keys) entryOf(key []byte) croft.Project {
	project, _, _ := strings.Cut(strings.TrimPrefix(string(key), k.allEntries()), "/")
	return croft.Project(project)
}

// Repay returns the operation that reduces the usage of an instance's project, for the transaction that removes the
// instance's record. It writes nothing if the project has no counter, as in a cloud of an older version.
func (k Keys) Repay(inst croft.Instance) clientv3.Op {
	return k.repay(inst.Project, k.repaid(inst), tenant.AmountsOf(inst))
}

func (k Keys) repay(name croft.Project, entry string, amounts tenant.Amounts) clientv3.Op {
	// Existence is enough: the instance's record, which is removed in the same transaction, prevented the removal of
	// its project.
	return clientv3.OpTxn([]clientv3.Cmp{kv.Exists(k.used(name))},
		[]clientv3.Op{clientv3.OpPut(entry, kv.Encode(amounts))}, nil)
}
