package remote

import "croft/cloud"

// Cloud returns the cloud as commands use it.
func (c *Client) Cloud() *cloud.Cloud {
	none := operators{}
	return &cloud.Cloud{
		Requests: requests{c}, Instances: instances{c}, Feed: feed{c}, Changes: changes{c}, Holds: holds{c},
		Consoles: consoles{c}, Ports: ports{c}, Projects: projects{c},
		Hosts:      hostList{c},
		Aggregates: aggregates{c}, Distances: distances{c},
		Keys: keys{c}, Maintenance: none, Images: images{c}, Objects: objectList{c},
		Definitions: definitions{c}, Audits: none, Monitor: none,
		Tokens: tokens{}, Access: accessTokens{c}, Actions: actionLog{c}, Backups: none,
		Partitions: partitions{c}, Connection: c,
	}
}
