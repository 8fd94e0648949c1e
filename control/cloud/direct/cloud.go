package direct

import (
	"cmp"
	"context"
	"io"
	"log/slog"

	"croft"
	"croft/control/cloud"
	"croft/control/cloud/fencing"
	"croft/control/federation"
	"croft/etcdstore"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/placementclient"
	"croft/schedule"
	"croft/schedule/backups"
	catalog "croft/schedule/images"
	"croft/schedule/resize"
	"croft/schedule/volumes"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/trust"
)

// Claims is the client of Placement.
type Claims = *placementclient.Client

// Over returns a cloud that uses connections which stay the caller's: closing the cloud does not close them.
func Over(store *etcdstore.Store, claims Claims, s Settings, how Scheduling) (*cloud.Cloud, error) {
	requests := &volumes.Manager{Partition: store.Partition(), Store: store.Volumes, Claims: claims,
		Hosts: store.Registry, Instances: store.Instances, Log: slog.New(slog.DiscardHandler)}
	sizes := &resize.Manager{Partition: store.Partition(), Records: store.Instances, Claims: claims,
		Volumes: requests, Log: slog.New(slog.DiscardHandler)}
	config := how.config(store, claims)
	config.Volumes = requests
	var kept *backups.Manager
	config.LastBackup = func(ctx context.Context, inst croft.Instance) (schedule.Copy, error) {
		return kept.LastBackup(ctx, inst)
	}
	scheduler, err := schedule.New(config)
	if err != nil {
		return nil, err
	}
	a := agents{store}
	fleet, err := hosts.New(hosts.Config{Partition: store.Partition(), Hosts: store.Registry, Members: store.Cluster,
		Instances: store.Instances, Orders: store.Orders, Claims: claims, Aggregates: store.Aggregates,
		Distances: store.Distances, Properties: objects.OfHosts{Store: store.Objects}, Chooser: scheduler,
		Recreator: scheduler, Power: power(cmp.Or(s.Fence, s.Etcd.FenceFile)),
		Volumes: store.Volumes,
		Overdue: func(ctx context.Context) (map[croft.HostID]string, error) { return overdue(ctx, store) }})
	if err != nil {
		return nil, err
	}
	auditor, err := audit.New(audit.Config{Records: store.Records, Instances: store.Instances, Registry: store.Registry,
		Claims: claims, Agents: a, Fleet: fleet, Volumes: requests, Resizes: sizes})
	if err != nil {
		return nil, err
	}
	images := images{a}
	stored := &catalog.Manager{Store: store.Images, Hosts: store.Registry, Snapshots: requests,
		Instances: store.Instances, Uploads: images, Log: slog.New(slog.DiscardHandler)}
	known := &federation.Service{Home: store.Partition(), Store: store.Partitions, Peers: store.Partitions,
		Apart:   claims,
		Foreign: s.Placement.Cloud != ""}
	over := &cloud.Cloud{
		Scheduler: scheduler, Instances: store.Instances, Consoles: consoles{a}, Ports: ports{}, Fleet: fleet,
		Etcd: health{store}, Aggregates: store.Aggregates, Distances: distances{store}, Policies: store.Policies,
		NamedSizes: store.Sizes,
		Keys:       store.SSHKeys, Projects: store.Projects, Claims: claims, Usage: store.Usage, Images: images,
		Catalog: stored,
		Auditor: auditor, Volumes: requests, Sizes: sizes, Monitor: a, Tokens: tokens{store, fleet, s},
		Access:     accessTokens{store.AccessTokens},
		Federation: known, Connection: io.NopCloser(nil),
	}
	building := how.Clusters
	if building == nil {
		building = &Clusters{}
	}
	if err := building.over(over, store, scheduler); err != nil {
		return nil, err
	}
	kept = backups.New(backups.Manager{Partition: store.Partition(), Store: store.Backups,
		Vault:     building.Vault,
		Snapshots: requests, Scheduler: scheduler, Instances: store.Instances, Hosts: store.Registry,
		Labels: Labels(store), Log: building.Log})
	over.Backups = kept
	return over, nil
}

// labels returns the source of the labels of a project's instances, as name=value.
// Labels returns a function that reads the labels of a project's instances, as name=value.
func Labels(store *etcdstore.Store) func(context.Context, croft.Project) (map[croft.InstanceID][]string, error) {
	return func(ctx context.Context, project croft.Project) (map[croft.InstanceID][]string, error) {
		noted, _, err := store.Objects.List(ctx, access.Everything(), objects.Instance)
		all := map[croft.InstanceID][]string{}
		for _, o := range noted {
			for name, value := range o.Properties {
				if o.Project == project {
					all[croft.InstanceID(o.ID)] = append(all[croft.InstanceID(o.ID)], name+"="+value.String())
				}
			}
		}
		return all, err
	}
}

// power returns the fence agents in a file; nil: no file is configured.
func power(file string) hosts.Power {
	if file == "" {
		return nil
	}
	return &fencing.Agents{File: file}
}

// overdue describes the hosts whose certificates are overdue for renewal.
func overdue(ctx context.Context, store *etcdstore.Store) (map[croft.HostID]string, error) {
	joined, err := store.Trust.AllJoined(ctx)
	all := map[croft.HostID]string{}
	for id, j := range joined {
		if problem := trust.OverdueOf(j); problem != "" {
			all[id] = problem
		}
	}
	return all, err
}
