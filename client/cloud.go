package client

import "croft/control/cloud"

// Cloud returns the cloud as commands use it.
func (c *Client) Cloud() *cloud.Cloud {
	return &cloud.Cloud{
		Requests: requests{c}, Instances: instances{c}, Feed: feed{c}, Changes: changes{c}, Holds: holds{c},
		Catalogue: catalogue{c}, Users: users{c}, Consoles: consoles{c}, Ports: ports{c}, Projects: projects{c},
		Hosts: hostList{c}, Keys: keys{c}, Maintenance: maintenance{c}, Images: images{c}, Objects: objectList{c},
		Aggregates: aggregates{c}, Distances: distances{c}, Policies: policies{c},
		Pools: poolList{c}, Tickets: tickets{c}, Usage: usageHistory{c},
		Definitions: definitions{c}, Audits: audits{c}, Monitor: monitor{c},
		Tokens: invitations{c}, Access: accessTokens{c}, Actions: actionLog{c}, Backups: backups{},
		Partitions: partitions{c}, Peers: peers{c}, Clusters: clusters{c}, Sites: sites{c},
		Credentials: credentials{c}, Appliances: appliances{c}, SiteImages: siteImages{c}, Seals: seals{c},
		Connection: c,
	}
}
