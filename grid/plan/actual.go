package plan

// An Actual is a unit that a runtime has on a node, whoever made it from which revision. Only units that carry the
// cluster's mark are listed: strangers are never touched.
type Actual struct {
	Name    string `json:"name"` // as unit.Unit.Name
	Job     string `json:"job"`
	Slot    int    `json:"slot"`
	Hash    string `json:"hash"` // as unit.Unit.Hash when it was created; "": unknown, so that it is never up to date
	Runtime string `json:"runtime"`
	Running bool   `json:"running"`
	Status  string `json:"status,omitempty"` // the runtime's own word, such as "exited (1)"

	// OldDefinition: the repository's definition of the runtime has changed since the unit was made by it.
	OldDefinition bool `json:"old_definition,omitempty"`
	// OldImage: the reference of the unit's image names another image on the node now.
	OldImage bool `json:"old_image,omitempty"`
}
