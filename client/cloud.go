package client

import "croft/control/cloud"

// Cloud has the operations that have no methods of Client yet.
type Cloud struct {
	Requests  cloud.Requests
	Instances cloud.Instances
	Feed      cloud.Feed
	Changes   cloud.Changes
	Holds     cloud.Holds
	Consoles  cloud.Consoles
	Ports     cloud.Ports
}

// Cloud returns the operations that have no methods of Client yet.
func (c *Client) Cloud() *Cloud {
	return &Cloud{
		Requests: requests{c}, Instances: instances{c}, Feed: feed{c}, Changes: changes{c}, Holds: holds{c},
		Consoles: consoles{c}, Ports: ports{c},
	}
}
