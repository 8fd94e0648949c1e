package api

import "croft"

// PolicyList has the policies of CRUSH.
type PolicyList struct {
	Policies []croft.CrushPolicy `json:"policies"` // by name, the built-in ones first
	More
}

// PolicyNamed names a policy.
type PolicyNamed struct {
	Name string `path:"name" json:"-"` // name of the policy
}

// PolicyText is the input of setPolicy.
type PolicyText struct {
	Name string `path:"name"        json:"-"` // name of the policy
	// generation that the change builds on; 0: none may exist; left out: any
	Base Match  `header:"If-Match"  json:"-"`
	Text string `json:"text" maxLength:"4096" minLength:"1"` // the policy in its text form
}

// PolicyRemoval is the input of removePolicy.
type PolicyRemoval struct {
	Name string `path:"name"       json:"-"` // name of the policy
	Base Match  `header:"If-Match" json:"-"` // generation that the change builds on; left out: any
}

// PolicyCheck is the input of checkPolicy.
type PolicyCheck struct {
	Name string `json:"name" maxLength:"63" minLength:"1"`   // the name that the policy would have
	Text string `json:"text" maxLength:"4096" minLength:"1"` // the policy in its text form
}

// PolicyHints is the answer of checkPolicy.
type PolicyHints struct {
	// What of the policy may not be what its author wants.
	Hints []string `json:"hints"`
}

// CrushMap is a CRUSH map of the hosts in text form.
type CrushMap struct {
	Text string  `json:"text"` // in crushtool's format, with the policies as rules
	Out  []int32 `json:"out"`  // devices that take no instances now; pass each to crushtool as --weight N 0
}
