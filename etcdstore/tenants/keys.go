package tenants

import (
	"cmp"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/access"
	"croft/etcdstore/internal/kv"
	"croft/tenant"
)

// Keys builds the keys of projects and of what they use, in the partition whose prefix it is; keys.go of etcdstore
// lists them among all others.
type Keys string

func (k Keys) projects() string                         { return string(k) + "projects/" }
func (k Keys) project(p croft.Project) string           { return k.projects() + string(p) }
func (k Keys) allBelow(p croft.Project) string          { return string(k) + "below/" + string(p) + "/" }
func (k Keys) below(parent, child croft.Project) string { return k.allBelow(parent) + string(child) }
func (k Keys) defaults() string                         { return string(k) + "quota/default" }
func (k Keys) allUsed() string                          { return string(k) + "quota/used/" }
func (k Keys) used(p croft.Project) string              { return k.allUsed() + string(p) }
func (k Keys) allRepaid() string                        { return string(k) + "quota/repaid/" }
func (k Keys) repaidOf(p croft.Project) string          { return k.allRepaid() + string(p) + "/" }
func (k Keys) repaid(p croft.Project, i croft.InstanceID) string {
	return k.repaidOf(p) + string(i)
}

// The access tokens of a project lie below one key, so that they go with it. Those of no project have a name there
// that no project can have.
func (k Keys) tokens() string { return string(k) + "tokens/" }

// TokensOf is the prefix of the tokens of a project.
func (k Keys) TokensOf(p croft.Project) string {
	return k.tokens() + cmp.Or(string(p), "-") + "/"
}
func (k Keys) token(p croft.Project, id access.TokenID) string {
	return k.TokensOf(p) + string(id)
}

// repaidBy returns the project of a repayment's key.
func (k Keys) repaidBy(key []byte) croft.Project {
	project, _, _ := strings.Cut(strings.TrimPrefix(string(key), k.allRepaid()), "/")
	return croft.Project(project)
}

// Repay gives back what an instance was charged with, in the transaction that removes its record. Nothing is written
// where nothing is counted, as in a cloud that an older version serves.
func (k Keys) Repay(inst croft.Instance) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{kv.Exists(k.used(inst.Project))},
		[]clientv3.Op{clientv3.OpPut(k.repaid(inst.Project, inst.ID), kv.Encode(tenant.AmountsOf(inst)))}, nil)
}
