package node

import (
	"context"
	"net/netip"
	"os"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/internal/userdata"
	"croft/mdserver"
)

// servesMetadata reports whether this process runs a metadata server.
func (h *host) servesMetadata() bool { return h.settings.Metadata.Server && h.bridge != "" }

// readVendor reads the operator's additions to the set-up of every guest.
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

// seeds makes the metadata disks. Simulated guests read none; theirs are made as with a metadata server.
func (h *host) seeds() (compute.Seeds, error) {
	if err := h.readVendor(); err != nil {
		return nil, err
	}
	c := h.settings.ForSeeds()
	c.Vendor, c.Server = h.vendor, h.servesMetadata() || h.settings.Hypervisor == "sim"
	return c, nil
}

// startMetadata serves metadata on the guests' bridge, if there is one and the settings do not disable it. If
// another server of the same cloud listens there, it stays in charge. Conflict: a server of another cloud does.
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
	if err := server.Free(ctx, h.bridge, mdserver.Address); err != nil {
		return err
	}
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
	c.Guests, c.Reports, c.Partition, c.Log = guests{h}, reports, h.store.Partition(), h.log
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
	if order.Want == croft.WantGone || order.Partition != g.host.store.Partition() {
		return mdserver.Guest{}, croft.Errorf(croft.NotFound, "instance %s is not to run here", id)
	}
	guest := mdserver.FromOrder(order)
	guest.Zone, guest.Address, guest.Vendor = g.host.settings.Host.Location, addr, g.host.vendor
	guest.MACs = mdserver.MACs(order, len(g.host.settings.ForAgent().NICs))
	if hv, ok := g.host.hv.(bridged); ok {
		guest.Ports, err = hv.Ports(ctx, id)
	}
	return guest, err
}
