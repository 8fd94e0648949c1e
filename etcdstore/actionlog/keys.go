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
	"croft/actions"
	"croft/etcdstore/internal/kv"
)

// Keys builds the keys of the action log, in the partition whose prefix it is. The list of all keys is in etcdstore.
type Keys string

// noProject is the log of what concerns no project; no project can have this name.
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

// End notes, in the transaction that removes a project, that the entries until then are not for whoever has a project
// of this name later.
func (k Keys) End(p croft.Project) clientv3.Op {
	return clientv3.OpPut(k.ended(p), kv.Encode(ended{At: time.Now().UTC()}))
}

// ended is the value of the key of a name whose project was removed.
type ended struct {
	At       time.Time `json:"at"`
	project  croft.Project
	revision int64
}

// A block is a stored part of a batch: the entries of one project. Its key says when they were written, and how many
// they are, so that blocks need not be read to be counted.
type block struct {
	project string // as in the key
	name    string // begins with the moment, so that names are in the order of time
	created int64  // the revision at which it was written
}

func moment(t time.Time) string { return fmt.Sprintf("%016x", max(0, t.UnixNano())) }

// blockName names a block of n entries. Programs of earlier versions take a block of refused requests for an empty one.
func blockName(b actions.Batch, n int, refused bool) string {
	mark := ""
	if refused {
		mark = refusedMark
	}
	return fmt.Sprintf("%s-%016x-%s%d", moment(b.At), b.Nonce, mark, n)
}

// refusedMark stands before the number of entries of a block of refused requests.
const refusedMark = "r"

// number is the part of a block's name that says how many entries it has.
func (b block) number() string { return b.name[strings.LastIndexByte(b.name, '-')+1:] }

// refused reports whether a block has refused requests, and nothing else.
func (b block) refused() bool { return strings.HasPrefix(b.number(), refusedMark) }

// count is the number of entries of a block.
func (b block) count() int {
	n, _ := strconv.Atoi(strings.TrimPrefix(b.number(), refusedMark)) // our own key
	return n
}

// blockAt reads the key of a stored block.
func (k Keys) blockAt(stored *mvccpb.KeyValue) block {
	project, name, _ := strings.Cut(strings.TrimPrefix(string(stored.Key), k.all()), "/")
	return block{project, name, stored.CreateRevision}
}

func (k Keys) block(b block) string { return k.all() + b.project + "/" + b.name }
