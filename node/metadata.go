package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/internal/userdata"
	"croft/mdserver"
)

// servesMetadata reports whether this process runs a metadata server.
func (h *host) servesMetadata() bool { return h.settings.Metadata.Server && h.bridge != "" }

// readVendor reads the operator's additions to the cloud-init data of every guest.
func (h *host) readVendor() error {
	file := h.settings.Metadata.VendorData
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return croft.Errorf(croft.Invalid, "metadata.vendor_data: %w", err)
	}
	if err := userdata.Check(text); err != nil {
		return croft.Errorf(croft.Invalid, "metadata.vendor_data: %s: %w", file, err)
	}
	if userdata.KindOf(text) == userdata.Gzip {
		return croft.Errorf(croft.Invalid, "metadata.vendor_data: %s is compressed: unpack it, nothing is gained here",
			file)
	}
	h.vendor = text
	return nil
}

// seeds returns the builder of metadata disks. Simulated guests read none; their disks are built as with a metadata
// server.
func (h *host) seeds() (compute.Seeds, error) {
	if err := h.readVendor(); err != nil {
		return nil, err
	}
	c := h.settings.ForSeeds()
	c.Vendor, c.Gateway, c.Server = h.vendor, h.gateway, h.servesMetadata() || h.settings.Hypervisor == "sim"
	if h.server == nil {
		return c, nil
	}
	return sharedSeeds{c, h.server}, nil
}

// sharedSeeds makes disks for guests that the metadata server of this process does not serve, because another
// host's agent
// got the address first.
type sharedSeeds struct {
	mdserver.Seeds
	server *mdserver.Server
}

// Source implements compute.Seeds.
func (s sharedSeeds) Source(o croft.Order) (croft.Metadata, error) {
	s.Server = s.Server && !s.server.Elsewhere()
	return s.Seeds.Source(o)
}

// elsewhereFile, in the state directory, names the bridge on which another host's agent was found to serve metadata.
// From then on, the agent permanently leaves metadata on that bridge to it, so that guests of either agent find their
// metadata in the same place, whichever agent starts first.
const elsewhereFile = "metadata-elsewhere"

// leaveMetadata gives up the metadata server of this process to another host's agent on this machine.
func (h *host) leaveMetadata(why error) error {
	h.settings.Metadata.Server = false
	h.log.Warn("another agent on this machine serves metadata on "+h.bridge+", so guests of this host get theirs on a "+
		"disk and cannot report that they are ready", "host", h.id, "reason", why)
	file := filepath.Join(h.dir.Path, elsewhereFile)
	if err := os.WriteFile(file, []byte(h.bridge+"\n"), 0o600); err != nil {
		return fmt.Errorf("note that another agent serves metadata: %w", err)
	}
	return nil
}

// leftMetadata reports whether the metadata server of the bridge was left to another host's agent.
func (h *host) leftMetadata() bool {
	text, err := os.ReadFile(filepath.Join(h.dir.Path, elsewhereFile))
	return err == nil && strings.TrimSpace(string(text)) == h.bridge
}

// startMetadata serves metadata on the guests' bridge, if there is one and the settings do not disable it. If another
// server of the same host listens there, that one continues to serve; if another host's does, guests of this host get
// disks. Conflict: a server of another cloud does.
func (h *host) startMetadata(ctx context.Context, p *Parts) error {
	if !h.servesMetadata() {
		return nil
	}
	if err := h.readVendor(); err != nil {
		return err
	}
	server, err := h.metadata(reports{h})
	if err != nil {
		return err
	}
	err = server.Free(ctx, h.bridge, mdserver.Address)
	if errors.Is(err, mdserver.ErrSibling) || err == nil && h.leftMetadata() {
		return h.leaveMetadata(err)
	}
	if err != nil {
		return err
	}
	h.server = server
	p.Self.Counts(server)
	p.Self.Checks.Add("metadata server", server.Ready)
	p.Start(ctx, "the metadata server", func(ctx context.Context) error {
		return server.Run(ctx, h.bridge, mdserver.Address)
	})
	p.Start(ctx, "the metadata server on IPv6", func(ctx context.Context) error {
		return server.RunIPv6(ctx, h.bridge)
	})
	return nil
}

func (h *host) metadata(reports mdserver.Reports) (*mdserver.Server, error) {
	c := h.settings.ForMetadata()
	c.Guests, c.Reports, c.Partition, c.Host, c.Log = guests{h}, reports, h.store.Partition(), h.id, h.log
	if shared, ok := h.hv.(sharedMachine); ok {
		c.Reserved = func(ctx context.Context) (croft.InstanceID, error) {
			n := h.settings.Network
			return shared.NeedsOthersServer(ctx, h.store.Partition(), n.Name, n.Bridge, h.dir.Path)
		}
	}
	return mdserver.New(c)
}

// reports passes reports of guests to the agent, which starts after the server.
type reports struct{ host *host }

func (r reports) agent() (compute.Reports, error) {
	agent := r.host.running.Load()
	if agent == nil {
		return compute.Reports{}, croft.Errorf(croft.Unavailable, "the agent has not started yet")
	}
	return agent.Reports(), nil
}

// CloudInit implements mdserver.Reports.
func (r reports) CloudInit(ctx context.Context, id croft.InstanceID, c croft.CloudInit) error {
	agent, err := r.agent()
	if err != nil {
		return err
	}
	return agent.CloudInit(ctx, id, c)
}

// SetPassword implements mdserver.Reports.
func (r reports) SetPassword(ctx context.Context, id croft.InstanceID, password string) error {
	agent, err := r.agent()
	if err != nil {
		return err
	}
	return agent.SetPassword(ctx, id, password)
}

// Password implements mdserver.Reports.
func (r reports) Password(ctx context.Context, id croft.InstanceID) (string, error) {
	agent, err := r.agent()
	if err != nil {
		return "", err
	}
	return agent.Password(ctx, id)
}

// guests finds the guest of an address: the hypervisor knows the instance, the order everything else.
type guests struct{ host *host }

// NewGuests returns the guests of a hypervisor for the metadata server, with their orders from store. vendor is
// added to the set-up of each guest.
func NewGuests(id croft.HostID, store *etcdstore.Store, hv hypervisor, vendor []byte) mdserver.Guests {
	return guests{&host{id: id, store: cloudIn(store), hv: hv, vendor: vendor}}
}

// sharedMachine is a hypervisor whose guests may belong to several agents on this machine.
type sharedMachine interface {
	// NeedsOthersServer returns an instance of another agent on this machine that reads its metadata from that agent's
	// server; empty: no such instance, or this agent's own instances need its server too.
	NeedsOthersServer(ctx context.Context, p croft.PartitionID, network, bridge, dir string) (croft.InstanceID, error)
}

// bridged is a hypervisor that connects guests to bridges of this host.
type bridged interface {
	// Ports returns the host's interfaces for the guest's, by MAC. NotFound.
	Ports(ctx context.Context, id croft.InstanceID) (map[string]string, error)
}

// Guest implements mdserver.Guests.
func (g guests) Guest(ctx context.Context, addr netip.Addr) (mdserver.Guest, error) {
	id, err := g.host.hv.Owner(ctx, addr)
	if err != nil {
		return mdserver.Guest{}, err
	}
	order, err := g.host.orders().forGuest(ctx, id)
	if err != nil {
		return mdserver.Guest{}, err
	}
	if order.Want.Withdrawn() || order.Partition != g.host.store.Partition() {
		return mdserver.Guest{}, croft.Errorf(croft.NotFound, "instance %s is not to run here", id)
	}
	guest := mdserver.FromOrder(order)
	guest.Zone, guest.Address, guest.Vendor = g.host.settings.Host.Location, addr, g.host.vendor
	guest.MACs = mdserver.MACs(order, len(g.host.settings.ForAgent().NICs))
	guest.Home, guest.Gateway = mdserver.Home(order), g.host.gateway
	if hv, ok := g.host.hv.(bridged); ok {
		guest.Ports, err = hv.Ports(ctx, id)
	}
	return guest, err
}
