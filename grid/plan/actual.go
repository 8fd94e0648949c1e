package plan

// An Actual is a unit that a runtime has on a node, whichever client and revision created it. Only units with the
// cluster's mark are listed: other units are never changed.
type Actual struct {
	Name    string `json:"name"` // as in unit.Unit.Name
	Job     string `json:"job"`
	Slot    int    `json:"slot"`
	Hash    string `json:"hash"` // unit.Unit.Hash at its creation; "": unknown, and therefore never up to date
	Runtime string `json:"runtime"`
	Running bool   `json:"running"`
	Status  string `json:"status,omitempty"` // the runtime's own description, such as "exited (1)"

	// OldDefinition: the repository's definition of the runtime has changed since the unit was created.
	OldDefinition bool `json:"old_definition,omitempty"`
	// OldImage: the reference of the unit's image now names another image on the node.
	OldImage bool `json:"old_image,omitempty"`
}
