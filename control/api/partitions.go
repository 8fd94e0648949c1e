package api

import (
	"encoding/json"

	"croft"
	"croft/control/federation"
	"croft/tenant/access"
)

// PartitionList lists the known partitions, home first.
type PartitionList struct {
	Partitions []federation.Partition `json:"partitions"`
}

// RowList lists the rows of one kind of an import.
type RowList struct {
	Rows []json.RawMessage `json:"rows"`
}

// SignerList has the keys with which the servers of a cloud sign for its peers.
type SignerList struct {
	Signers []federation.Signer `json:"signers"`
}

// MappingList has the projects of peers whose members are members of a project.
type MappingList struct {
	Mappings []federation.Mapping `json:"mappings"`
}

// NewMapping is the body of setMapping.
type NewMapping struct {
	Peer   croft.PartitionID `json:"peer" maxLength:"63"` // or its alias
	Theirs croft.Project     `json:"theirs" maxLength:"63"`
	// TheirsID is the identity of that project; empty: the next request from a project of that name decides it.
	TheirsID croft.ProjectID `json:"theirs_id,omitempty" format:"uuid"`
	Role     access.Role     `json:"role" enum:"reader,member,project-admin"`
}
