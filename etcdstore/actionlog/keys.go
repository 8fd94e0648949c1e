package actionlog

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/actions"
	"croft/etcdstore/internal/kv"
)

// Keys builds the keys of the action log; it is the prefix of the partition. The list of all keys is in etcdstore.
type Keys string

// noProject is the log of actions that concern no project; no project can have this name.
const noProject = "-"

func (k Keys) all() string { return string(k) + "actions/" }
func (k Keys) project(p croft.Project) string {
	return k.all() + cmp.Or(string(p), noProject) + "/"
}
func (k Keys) allEnded() string             { return string(k) + "actions-ended/" }
func (k Keys) ended(p croft.Project) string { return k.allEnded() + string(p) }
func (k Keys) endedAt(key []byte) croft.Project {
	return croft.Project(strings.TrimPrefix(string(key), k.allEnded()))
}

// End returns the operation that records, in the transaction that removes a project, that members of a later project of
// the same name must not see the entries so far.
func (k Keys) End(p croft.Project) clientv3.Op {
	return clientv3.OpPut(k.ended(p), kv.Encode(ended{At: time.Now().UTC()}))
}

// ended is the value of the key of a removed project's name.
type ended struct {
	At       time.Time `json:"at"`
	project  croft.Project
	revision int64
}

// block is a stored part of a batch: the entries of one project. Its key contains the time of writing and the number of
// entries, so that blocks need not be read to count entries.
type block struct {
	project string // as in the key
	name    string // starts with the time of writing, so that names sort by time
	created int64  // the revision at which it was written
}

func moment(t time.Time) string { return fmt.Sprintf("%016x", max(0, t.UnixNano())) }

// blockName returns the name of a block of n entries. Programs of earlier versions treat a block of refused requests as
// empty.
func blockName(b actions.Batch, n int, refused bool) string {
	mark := ""
	if refused {
		mark = refusedMark
	}
	return fmt.Sprintf("%s-%016x-%s%d", moment(b.At), b.Nonce, mark, n)
}

// refusedMark precedes the number of entries of a block of refused requests.
const refusedMark = "r"

// written returns the time of writing, in the form of moment. No entry of the block is newer.
func (b block) written() string {
	at, _, _ := strings.Cut(b.name, "-")
	return at
}

// number returns the part of a block's name that contains the number of its entries.
func (b block) number() string { return b.name[strings.LastIndexByte(b.name, '-')+1:] }

// refused reports whether a block contains refused requests, and no other entries.
func (b block) refused() bool { return strings.HasPrefix(b.number(), refusedMark) }

// count returns the number of entries of a block.
func (b block) count() int {
	n, _ := strconv.Atoi(strings.TrimPrefix(b.number(), refusedMark)) // never fails, because croft wrote the key
	return n
}

// blockAt parses the key of a stored block.
func (k Keys) blockAt(stored *mvccpb.KeyValue) block {
	project, name, _ := strings.Cut(strings.TrimPrefix(string(stored.Key), k.all()), "/")
	return block{project, name, stored.CreateRevision}
}

func (k Keys) block(b block) string { return k.all() + b.project + "/" + b.name }
