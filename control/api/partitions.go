package api

import (
	"encoding/json"

	"croft"
	"croft/control/federation"
	"croft/tenant/access"
)

// PartitionNamed names a partition.
type PartitionNamed struct {
	ID string `path:"id" json:"-"` // UUID of the partition, or its alias here
}

// PartitionList lists the known partitions, home first.
type PartitionList struct {
	Partitions []federation.Partition `json:"partitions"` // home first, then by alias
	More
}

// RowsOfKind is the input of listRows.
type RowsOfKind struct {
	PartitionNamed

	// Kind is the kind of the rows.
	Kind federation.Kind `query:"kind" json:"-" required:"true" enum:"host,provider,aggregate,distance,quota,project,definition,object,instance"`
}

// RowList lists the rows of one kind of an import.
type RowList struct {
	Rows []json.RawMessage `json:"rows"` // objects, as in the export
}

// Export is the input of exportPartition.
type Export struct {
	Name string `query:"name" json:"-"` // an alias that importers use unless they choose another
}

// Import is the input of importPartition.
type Import struct {
	As string `query:"as" json:"-"` // alias of the partition here, from now on
}

// CardRequest is the input of getCard.
type CardRequest struct {
	Name string `query:"name" json:"-"` // an alias that the others use unless they choose another

	// Endpoint is where the others reach this API, such as https://east.example:8781. Default: where a server listens.
	Endpoint string `query:"endpoint" json:"-"`
}

// SignerNamed names a key with which a server signs.
type SignerNamed struct {
	ID string `path:"id" json:"-"` // ID of the key
}

// SignerList lists the keys with which the servers of a cloud sign for its peers.
type SignerList struct {
	Signers []federation.Signer `json:"signers"` // newest first
}

// MappingNamed identifies a mapping: a project of a peer, and the project here to which it is mapped.
type MappingNamed struct {
	ProjectNamed

	Peer   croft.PartitionID `path:"id"     json:"-"` // UUID of the peer, or its alias here
	Theirs croft.Project     `path:"theirs" json:"-"` // project of the peer
}

// MappingList lists the projects of peers whose members are members of a project.
type MappingList struct {
	Mappings []federation.Mapping `json:"mappings"` // for users of a peer, only the mappings of their own cloud
}

// NewMapping is the input of setMapping.
type NewMapping struct {
	ProjectNamed

	Peer   croft.PartitionID `json:"peer" maxLength:"63"`   // UUID of the peer, or its alias
	Theirs croft.Project     `json:"theirs" maxLength:"63"` // the project in the other cloud
	// TheirsID is the ID of that project in its cloud. Without it, the first request from a project of that name
	// decides it.
	TheirsID croft.ProjectID `json:"theirs_id,omitempty" format:"uuid"`
	Role     access.Role     `json:"role" enum:"reader,member,project-admin"` // what members of it may do here
}
