package cluster

// Dropped is a site or implementation that was not chosen, and why.
type Dropped struct {
	Site           string           `json:"site"`
	Implementation ImplementationID `json:"implementation,omitempty"`
	Reason         string           `json:"reason"` // one sentence
}

// Candidate is a way to build a cluster.
type Candidate struct {
	Site           Site
	Implementation Implementation
	Credential     Credential // the zero value at a local site
	Room           Room
	Why            string // why it ranks before the next candidate; Choose fills it
}
