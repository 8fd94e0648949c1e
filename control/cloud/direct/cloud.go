package direct

import (
	"io"

	"croft/control/cloud"
	"croft/control/federation"
	"croft/etcdstore"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/placementclient"
	"croft/schedule"
	"croft/tenant/objects"
)

// Claims is the client of Placement.
type Claims = *placementclient.Client

// Over returns a cloud that uses connections which stay the caller's: closing the cloud does not close them.
func Over(store *etcdstore.Store, claims Claims, s Settings, how Scheduling) (*cloud.Cloud, error) {
	scheduler, err := schedule.New(how.config(store, claims))
	if err != nil {
		return nil, err
	}
	a := agents{store}
	fleet, err := hosts.New(hosts.Config{Partition: store.Partition(), Hosts: store.Registry, Members: store.Cluster,
		Instances: store.Instances, Orders: store.Orders, Claims: claims, Aggregates: store.Aggregates,
		Distances: store.Distances, Properties: objects.OfHosts{Store: store.Objects}, Chooser: scheduler})
	if err != nil {
		return nil, err
	}
	auditor, err := audit.New(audit.Config{Records: store.Records, Instances: store.Instances, Registry: store.Registry,
		Claims: claims, Agents: a, Fleet: fleet})
	if err != nil {
		return nil, err
	}
	h := hostList{store, fleet}
	known := &federation.Service{Home: store.Partition(), Store: store.Partitions, Peers: store.Partitions,
		Apart:   claims,
		Foreign: s.Placement.Cloud != ""}
	over := &cloud.Cloud{
		Requests: requests{scheduler, store}, Instances: instances{scheduler, store}, Feed: store.Instances,
		Changes: scheduler, Holds: scheduler, Consoles: consoles{a}, Ports: ports{}, Hosts: h, Fleet: fleet,
		Aggregates: aggregates{store.Aggregates, store}, Distances: distances{store},
		Policies: policies{store, scheduler},
		Keys:     store.SSHKeys, Projects: projects{store.Projects},
		Catalogue: catalogue{claims, fleet}, Usage: usageHistory{store.Usage}, Images: images{a},
		Auditor: auditor,
		Monitor: a, Tokens: tokens{store, h, s},
		Access:     accessTokens{store.AccessTokens},
		Federation: known,
		Connection: io.NopCloser(nil),
	}
	building := how.Clusters
	if building == nil {
		building = &Clusters{}
	}
	return over, building.over(over, store, scheduler)
}
