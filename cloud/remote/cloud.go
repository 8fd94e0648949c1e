package remote

import "croft/cloud"

// Cloud returns the cloud as commands use it.
func (c *Client) Cloud() *cloud.Cloud {
	none := operators{}
	return &cloud.Cloud{
		Requests: requests{c}, Instances: instances{c}, Feed: feed{c}, Changes: changes{c}, Holds: holds{c},
		Consoles: consoles{c}, Ports: ports{c}, Projects: projects{c}, Usage: usageHistory{c}, Hosts: hostList{c},
		Pools: poolList{c}, Tickets: tickets{c},
		Aggregates: aggregates{c}, Keys: keys{c}, Maintenance: none, Images: images{c}, Objects: objectList{c},
		Definitions: definitions{c}, Audits: none, Monitor: none,
		Tokens: tokens{}, Access: accessTokens{c}, Actions: actionLog{c}, Backups: none,
		Partitions: partitions{c}, Peers: peers{c}, Connection: c,
	}
}
