package client

import "croft/control/cloud"

// Cloud has the operations that have no methods of Client yet.
type Cloud struct {
	Requests    cloud.Requests
	Instances   cloud.Instances
	Feed        cloud.Feed
	Changes     cloud.Changes
	Holds       cloud.Holds
	Consoles    cloud.Consoles
	Ports       cloud.Ports
	Clusters    cloud.Clusters
	Sites       cloud.Sites
	Credentials cloud.Credentials
	Appliances  cloud.Appliances
	SiteImages  cloud.SiteImages
	Seals       cloud.Seals
}

// Cloud returns the operations that have no methods of Client yet.
func (c *Client) Cloud() *Cloud {
	return &Cloud{
		Requests: requests{c}, Instances: instances{c}, Feed: feed{c}, Changes: changes{c}, Holds: holds{c},
		Consoles: consoles{c}, Ports: ports{c}, Clusters: clusters{c},
		Sites: sites{c}, Credentials: credentials{c}, Appliances: appliances{c}, SiteImages: siteImages{c},
		Seals: seals{c},
	}
}
