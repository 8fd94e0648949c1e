package partitions

import (
	"fmt"

	"croft"
	"croft/control/federation"
)

// Keys builds the keys of partitions other than home. It is the prefix of all keys of croft; the list of all keys is in
// etcdstore.
type Keys string

func (k Keys) registry() string                           { return string(k) + "partitions/" }
func (k Keys) partition(p croft.PartitionID) string       { return k.registry() + string(p) }
func (k Keys) imported(p croft.PartitionID) string        { return string(k) + string(p) + "/imported/" }
func (k Keys) head(p croft.PartitionID) string            { return k.imported(p) + "head" }
func (k Keys) drafts(p croft.PartitionID) string          { return k.imported(p) + "begun/" }
func (k Keys) draft(p croft.PartitionID, d string) string { return k.drafts(p) + d }
func (k Keys) rows(p croft.PartitionID, d string) string {
	return k.imported(p) + "rows/" + d + "/"
}
func (k Keys) kind(p croft.PartitionID, d string, kind federation.Kind) string {
	return k.rows(p, d) + string(kind) + "/"
}
func (k Keys) row(p croft.PartitionID, d string, kind federation.Kind, n int) string {
	return fmt.Sprintf("%s%08d", k.kind(p, d, kind), n)
}

// PeerKeys builds the keys of the home partition about its peers. It is the prefix of the home partition.
type PeerKeys string

func (k PeerKeys) all() string                     { return string(k) + "peers/" }
func (k PeerKeys) peers() string                   { return k.all() + "known/" }
func (k PeerKeys) peer(p croft.PartitionID) string { return k.peers() + string(p) }
func (k PeerKeys) signers() string                 { return k.all() + "signers/" }
func (k PeerKeys) signer(id string) string         { return k.signers() + id }
func (k PeerKeys) mappings() string                { return k.all() + "mappings/" }
func (k PeerKeys) mapping(m federation.Mapping) string {
	return k.mappings() + k.nameOf(m)
}

// nameOf returns the rest of the key of a mapping below mappings.
func (k PeerKeys) nameOf(m federation.Mapping) string {
	return string(m.Project) + "/" + string(m.Peer) + "/" + string(m.Theirs)
}

// MappingsOf returns the prefix of the mappings of a project, which are removed with it.
func (k PeerKeys) MappingsOf(p croft.Project) string { return k.mappings() + string(p) + "/" }

// Used assertions are outside the other keys, because those are watched.
func (k PeerKeys) nonce(p croft.PartitionID, nonce string) string {
	return string(k) + "assertions/" + string(p) + "/" + nonce
}
