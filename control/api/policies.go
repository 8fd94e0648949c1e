package api

import "croft"

// PolicyList has the policies of CRUSH.
type PolicyList struct {
	Policies []croft.CrushPolicy `json:"policies"`
}

// PolicyText is the body of setPolicy. The generation that it builds on is in the header If-Match.
type PolicyText struct {
	Text string `json:"text"`
}

// PolicyCheck is the body of checkPolicy.
type PolicyCheck struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// PolicyHints is the answer of checkPolicy.
type PolicyHints struct {
	Hints []string `json:"hints"`
}
