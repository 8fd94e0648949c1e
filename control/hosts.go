package control

import (
	"context"
	"errors"
	"net/http"
	"reflect"

	"croft"
	"croft/compute"
	"croft/control/actions"
	"croft/control/api"
	"croft/hosts"
	"croft/internal/lazyregexp"
	"croft/tenant/access"
)

var hostOperations = noun{Tag: "hosts",
	Description: "The machines that instances run on. For operators; for others they are not found.",
	Operations: []Operation{
		do(Operation{ID: "listHostImages", At: "GET /v1/hosts/{id}/images", May: access.Operates,
			Summary: "List the images in the cache of a host"},
			func(ctx context.Context, c *call, in api.HostNamed) (api.HeldList, error) {
				return cached(ctx, c, in, c.Cloud.Images.Held)
			}),
		stream(Operation{ID: "pullImage", At: "POST /v1/hosts/{id}/images", May: access.Operates,
			Media: eventStream, Events: Events{"progress": reflect.TypeFor[croft.Progress](),
				"image": reflect.TypeFor[compute.Pulled](), "problem": reflect.TypeFor[api.Problem]()},
			Summary: "Have a host fetch an image before it is needed",
			Description: "Server-sent events: any number of the type `progress` with `done` and `total` in bytes, " +
				"then one of the type `image` with format, virtual size and SHA-256, or of the type `problem` " +
				"with the schema Problem. The host goes on only while the client listens."}, pullImage),
		do(Operation{ID: "removeHostImages", At: "DELETE /v1/hosts/{id}/images", May: access.Operates,
			Summary: "Remove an image from the cache of a host, or all that nothing uses",
			Description: "Answers with what was removed. Disks that stand on an image keep its file. Without " +
				"`image`, it removes those that no disk stands on and that were not used in the last ten minutes."},
			removeHostImages),
		list(Operation{ID: "listHosts", At: "GET /v1/hosts", May: access.Operates,
			Summary: "List the hosts"}, listHosts),
		list(Operation{ID: "listStorages", At: "GET /v1/storages", May: access.Operates,
			Summary: "List the shared storage that hosts mount", Description: "By name."},
			func(ctx context.Context, c *call, _ nothing) (list api.StorageList, err error) {
				list.Storages, err = c.Cloud.Fleet.Storages(ctx)
				return list, err
			}),
		do(Operation{ID: "getHost", At: "GET /v1/hosts/{id}", May: access.Operates,
			Summary: "Get a host with its instances"}, getHost),
		do(Operation{ID: "forgetHost", At: "DELETE /v1/hosts/{id}", May: access.Operates,
			Summary: "Forget a host that is gone for good",
			Description: "Removes its record and its resource provider, and its server of etcd. One that is alive " +
				"or has instances is kept, unless `force` is true: then its instances are lost, and stay on record."},
			forgetHost),
		do(Operation{ID: "fenceHost", At: "POST /v1/hosts/{id}/fence", May: access.Operates, Long: true,
			Summary: "Switch a host off and declare it dead",
			Description: "Its instances are lost, and stay on record; those with the restart policy `elsewhere` are " +
				"recreated on other hosts. `lost` of the answer lists them. Nothing is changed unless the fence agent " +
				"reports that the host is off, or the caller confirms it. A request that was interrupted is finished by " +
				"another one, or by the cloud itself."}, fenceHost),
		do(Operation{ID: "takeHostBack", At: "DELETE /v1/hosts/{id}/fence", May: access.Operates,
			Summary: "Take a host back that was declared dead",
			Description: "It gets new instances again, unless it was drained before. What lost instances left on it " +
				"stays there."},
			func(ctx context.Context, c *call, in api.HostNamed) (api.Host, error) {
				return maintained(c)(c.Cloud.Fleet.TakeBack(ctx, in.ID))
			}),
		do(Operation{ID: "listLeftovers", At: "GET /v1/hosts/{id}/leftovers", May: access.Operates,
			Summary:     "List what lost instances left on a host",
			Description: "The guests are off, and their disks are kept until an operator removes them."}, listLeftovers),
		do(Operation{ID: "removeLeftover", At: "DELETE /v1/hosts/{id}/leftovers/{instance}", May: access.Operates,
			Summary:     "Remove what an instance left on a host",
			Description: "The host removes the guest and its disks as soon as its agent is alive."}, removeLeftover),
		do(Operation{ID: "drainHost", At: "POST /v1/hosts/{id}/drain", May: access.Operates,
			Summary: "Keep new instances away from a host",
			Description: "Until enableHost; its instances go on. Repeating it is no error, here and with the next " +
				"two."},
			func(ctx context.Context, c *call, in api.HostNamed) (api.Host, error) {
				return maintained(c)(c.Cloud.Fleet.Drain(ctx, in.ID))
			}),
		do(Operation{ID: "enableHost", At: "POST /v1/hosts/{id}/enable", May: access.Operates,
			Summary: "Let new instances come to a host again"},
			func(ctx context.Context, c *call, in api.HostNamed) (api.Host, error) {
				return maintained(c)(c.Cloud.Fleet.Enable(ctx, in.ID))
			}),
		do(Operation{ID: "acceptHost", At: "POST /v1/hosts/{id}/accept", May: access.Operates,
			Summary: "Accept a host's agent on another machine or with another state directory"},
			func(ctx context.Context, c *call, in api.HostNamed) (api.Host, error) {
				return maintained(c)(c.Cloud.Fleet.Accept(ctx, in.ID))
			}),
		do(Operation{ID: "emptyHost", Also: accepted, At: "POST /v1/hosts/{id}/moves", May: access.Operates, Long: true,
			Summary: "Move the instances of a drained host to other hosts",
			Description: "Ephemeral ones are recreated from their images, the others move with their disks, as by moveInstance. " +
				"Answers 202 once the moves are on record, with what became of each instance; with " +
				"`wait`, 200 once nothing of the recreated ones is left on the host, and the others are at their new hosts. A wait that runs out of time " +
				"answers 202. A move that was started and not ordered is finished by asking again, or by the " +
				"cloud itself."}, emptyHost),
		do(Operation{ID: "removeMember", At: "DELETE /v1/hosts/{id}/etcd", May: access.Operates,
			Summary:     "Take the server of etcd on a host out of etcd",
			Description: "The host stays. Refused where the others would be too few then."},
			func(ctx context.Context, c *call, in api.HostNamed) (api.Host, error) {
				h, err := c.Cloud.Fleet.Find(ctx, in.ID)
				if h.ID != "" {
					c.action.about("", aboutHost(h))
					err = c.Cloud.Fleet.RemoveMember(ctx, h)
				}
				return maintained(c)(h, err)
			}),
		do(Operation{ID: "listUsages", At: "GET /v1/hosts/{id}/usages", May: access.Operates,
			Summary: "List what the guests of a host use at the moment"}, listUsages),
		do(Operation{ID: "getInventory", At: "GET /v1/hosts/{id}/inventory", May: access.Operates,
			Summary:     "Get what a host offers of each class of resources, and the claimed part of it",
			Description: "The host's agent writes it, from what the host has and from its settings."},
			func(ctx context.Context, c *call, in api.HostNamed) (api.InventoryList, error) {
				p, err := provider(ctx, c, in)
				return api.InventoriesOf(p), err
			}),
		do(Operation{ID: "getHostCapabilities", At: "GET /v1/hosts/{id}/capabilities", May: access.Operates,
			Summary:     "List the capabilities of a host",
			Description: "The host's agent writes them, from what the host has and from its settings."},
			func(ctx context.Context, c *call, in api.HostNamed) (api.CapabilityList, error) {
				p, err := provider(ctx, c, in)
				return api.CapabilitiesOf(p.Traits), err
			}),
	},
}

// maintained returns the answer for a changed host.
func maintained(c *call) func(hosts.Host, error) (api.Host, error) {
	return func(h hosts.Host, err error) (api.Host, error) {
		if err == nil {
			c.action.about("", aboutHost(h))
		}
		return api.HostOf(h), err
	}
}

func aboutHost(h hosts.Host) actions.Object {
	return actions.Object{Kind: actions.Host, ID: string(h.ID), Name: h.Name}
}

func listHosts(ctx context.Context, c *call, _ nothing) (api.HostList, error) {
	all, err := c.Cloud.Fleet.List(ctx)
	if err != nil && len(all) == 0 {
		return api.HostList{}, err
	}
	list := api.HostList{Hosts: make([]api.Host, 0, len(all)), Problems: c.Cloud.Etcd.Problems(ctx)}
	if err != nil {
		list.Error = err.Error()
	}
	for _, h := range all {
		list.Hosts = append(list.Hosts, api.HostOf(h))
	}
	return list, nil
}

func getHost(ctx context.Context, c *call, in api.HostNamed) (api.Host, error) {
	h, err := c.Cloud.Fleet.Find(ctx, in.ID)
	if err != nil {
		return api.Host{}, err
	}
	if !h.IsDead() || h.Alive {
		if cannot := c.Cloud.Fleet.CanSwitchOff(ctx, h.Host); errors.Is(cannot, croft.Invalid) {
			h.NoFence = cannot.Error()
		}
	}
	shown := api.HostOf(h)
	for _, st := range h.Instances {
		shown.Statuses = append(shown.Statuses, c.instance(st))
	}
	return shown, nil
}

func forgetHost(ctx context.Context, c *call, in api.HostRemoval) (api.Host, error) {
	h, err := c.Cloud.Fleet.Forget(ctx, in.ID, in.Force)
	c.lost(ctx, h)
	return maintained(c)(h, err)
}

// fenceHost asks for the name of the host once more, because the host is switched off and its disks may be lost.
func fenceHost(ctx context.Context, c *call, in api.HostFence) (api.Host, error) {
	h, err := c.Cloud.Fleet.Record(ctx, in.ID)
	if err != nil {
		return api.Host{}, err
	}
	if in.Confirm != h.Name {
		return api.Host{}, croft.Errorf(croft.Invalid, "confirm is %q, which is not the name of host %s: repeat the name",
			in.Confirm, h.Name)
	}
	fenced, err := c.Cloud.Fleet.Fence(ctx, string(h.ID), in.How == croft.ConfirmedOff)
	c.lost(ctx, fenced)
	return maintained(c)(fenced, err)
}

func listLeftovers(ctx context.Context, c *call, in api.HostNamed) (list api.LeftoverList, err error) {
	h, err := c.Cloud.Fleet.Record(ctx, in.ID)
	if err == nil {
		list.Leftovers, err = c.Cloud.Fleet.Leftovers(ctx, h.ID)
	}
	return list, err
}

func removeLeftover(ctx context.Context, c *call, in api.LeftoverNamed) (nothing, error) {
	h, err := c.Cloud.Fleet.Record(ctx, in.ID)
	if err != nil {
		return nothing{}, err
	}
	c.action.about("", actions.Object{Kind: actions.Host, ID: string(h.ID), Name: h.Name})
	return nothing{}, c.Cloud.Fleet.RemoveLeftover(ctx, h.ID, in.Instance)
}

// lost adds entries to the action logs of the projects whose instances were lost with a host. It adds the last backups
// of these instances to the answer.
func (c *call) lost(ctx context.Context, h hosts.Host) {
	var stay []croft.Instance
	for _, lost := range h.Lost {
		if lost.To == "" {
			stay = append(stay, croft.Instance{ID: lost.ID, Project: lost.Project})
		}
	}
	last, err := c.Cloud.Backups.LastOf(ctx, stay)
	if err != nil { // getInstance names them too
		c.Log.Warn("the last backups of lost instances are not named", "host", h.ID, "err", err)
	}
	for i, lost := range h.Lost {
		if lost.To == "" {
			h.Lost[i].Backup = last[lost.ID]
		}
		c.action.also(c, actions.InstanceLost, lost.Project,
			actions.Object{Kind: actions.Instance, ID: string(lost.ID), Name: lost.Name})
	}
}

// emptyHost orders the moves of a host's instances. It runs until all are ordered or the client disconnects. Each
// unfinished move has a record, from which the next request or an audit finishes it.
func emptyHost(ctx context.Context, c *call, in api.HostEmptying) (list api.MoveList, err error) {
	h, err := c.Cloud.Fleet.Find(ctx, in.ID)
	if h.ID == "" {
		return list, err
	}
	c.action.about("", aboutHost(h))
	moved, err := c.Cloud.Fleet.MoveAll(ctx, h)
	if err != nil && len(moved) == 0 {
		return list, err
	}
	list.Moves = []api.Move{}
	for _, m := range moved {
		list.Moves = append(list.Moves, api.MoveOf(m))
	}
	c.action.record(c, actions.Done) // independently of how the wait ends
	c.status = http.StatusAccepted
	if err != nil {
		list.Error = err.Error()
	}
	if err != nil || in.Wait == "" {
		return list, nil
	}
	waiting, cancel := context.WithTimeout(ctx, in.Timeout.Duration())
	defer cancel()
	err = hosts.AwaitMoved(waiting, c.Cloud.Scheduler.View, h.ID, moved)
	if errors.Is(waiting.Err(), context.DeadlineExceeded) {
		return list, nil
	}
	c.status = http.StatusOK
	return list, err
}

func listUsages(ctx context.Context, c *call, in api.HostNamed) (list api.GuestUsageList, err error) {
	h, err := c.Cloud.Fleet.Record(ctx, in.ID)
	if err != nil {
		return list, err
	}
	all, err := c.Cloud.Monitor.Usages(ctx, h)
	return api.GuestUsageList{Usages: append([]compute.Usage{}, all...)}, err
}

// provider returns what a host offers, and how much of it is claimed. NotFound.
func provider(ctx context.Context, c *call, in api.HostNamed) (croft.Provider, error) {
	h, err := c.Cloud.Fleet.Record(ctx, in.ID)
	if err != nil {
		return croft.Provider{}, err
	}
	p, err := c.Cloud.Claims.Provider(ctx, h.ID)
	if errors.Is(err, croft.NotFound) {
		err = croft.Errorf(croft.NotFound, "host %s has no resource provider yet: its agent makes one", h.Name)
	}
	return p, err
}

// digest matches a SHA-256, which cannot be a name in the catalog.
var digest = lazyregexp.New("^[0-9a-f]{64}$")

// removeHostImages removes an image from the cache of a host, or without a name all unused images.
func removeHostImages(ctx context.Context, c *call, in api.HostImage) (list api.HeldList, err error) {
	if in.Image != "" && !digest.MatchString(in.Image) {
		found, err := c.image(ctx, in.Image)
		if err != nil {
			return list, err
		}
		in.Image = found.reference
	}
	return cached(ctx, c, in.HostNamed, func(ctx context.Context, h croft.Host) ([]compute.Held, error) {
		return c.Cloud.Images.Remove(ctx, h, in.Image)
	})
}

// cached returns the images of a host's cache that do returns.
func cached(ctx context.Context, c *call, in api.HostNamed, do func(context.Context, croft.Host) ([]compute.Held,
	error)) (list api.HeldList, err error) {
	h, err := c.Cloud.Fleet.Record(ctx, in.ID)
	if err != nil {
		return list, err
	}
	c.action.about("", actions.Object{Kind: actions.Host, ID: string(h.ID), Name: h.Name})
	all, err := do(ctx, h)
	return api.HeldList{Images: append([]compute.Held{}, all...)}, err
}

// pullImage makes a host fetch an image.
func pullImage(c *call, in api.NewImage) error {
	ctx, cancel := c.brief()
	defer cancel()
	found, err := c.image(ctx, in.Image) // only operators pull
	if err != nil {
		return err
	}
	h, err := c.Cloud.Fleet.Record(ctx, in.ID)
	if err != nil {
		return err
	}
	c.action.about("", actions.Object{Kind: actions.Host, ID: string(h.ID), Name: h.Name})
	return c.streaming(func(ctx context.Context, e *events) {
		pulled, err := c.Cloud.Images.Pull(ctx, h, in.Image, found.reference, func(p croft.Progress) {
			_ = e.send("progress", 0, p) // heartbeats notice that a client is gone
		})
		if err != nil {
			_ = e.send("problem", 0, c.problem(err)) // the stream ends either way
			return
		}
		_ = e.send("image", 0, pulled) // likewise
	})
}
