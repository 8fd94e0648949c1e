package api

import (
	"encoding/json"

	"croft/federation"
)

// PartitionList is the partitions that are known, home first.
type PartitionList struct {
	Partitions []federation.Partition `json:"partitions"`
}

// RowList is rows of one kind of an import.
type RowList struct {
	Rows []json.RawMessage `json:"rows"`
}
