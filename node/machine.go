package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"croft"
	"croft/compute/hypervisor/libvirt"
	"croft/internal/checks"
	"croft/mdserver"
	"croft/node/doctor"
	"croft/node/settings"
	"croft/trust"
)

// MachineConfig returns what doctor checks of a machine on which a host runs with these settings, except ports.
func MachineConfig(s *settings.Settings) doctor.Config {
	c := doctor.Config{
		StateDir: s.StateDir, Libvirt: s.Hypervisor == "libvirt", VirtType: s.Libvirt.VirtType,
		Arch: runtime.GOARCH, Emulated: s.Libvirt.EmulatedArchitectures,
		Network: s.Network.Name, Bridge: s.Network.Bridge,
		Named: map[string]doctor.NamedNetwork{}, Spoofing: s.Libvirt.AllowSpoofing,
		Metadata: s.Metadata.Server && s.Hypervisor == "libvirt",
	}
	for name, n := range s.Networks {
		c.Named[name] = doctor.NamedNetwork{Network: n.Network, Bridge: n.Bridge}
	}
	return c
}

// MachineProbes returns the probes of this machine, except MetadataServer. Without a driver it returns the ones that
// need no libvirt.
func MachineProbes(driver *libvirt.Driver) doctor.Probes {
	probes := doctor.System()
	if driver == nil {
		return probes
	}
	probes.KVM = libvirt.ProbeKVM
	probes.Libvirt = driver.Version
	probes.Machines = driver.Machines
	probes.Filter = driver.Filterable
	probes.Guests = func(ctx context.Context) ([]string, error) {
		domains, err := driver.List(ctx)
		var ids []string
		for _, d := range domains {
			ids = append(ids, string(d.ID))
		}
		return ids, err
	}
	probes.CutOff = func(ctx context.Context) ([]string, error) {
		cut, err := driver.FindCutOff(ctx)
		var ids []string
		for _, id := range cut {
			ids = append(ids, string(id))
		}
		return ids, err
	}
	probes.Network = func(ctx context.Context, name string) (doctor.Network, error) {
		return lookAtNetwork(ctx, driver, name)
	}
	return probes
}

// lookAtNetwork reports a missing or stopped network as a result instead of an error.
func lookAtNetwork(ctx context.Context, driver *libvirt.Driver, name string) (doctor.Network, error) {
	n, active, err := driver.FindNetwork(ctx, name)
	switch {
	case errors.Is(err, croft.NotFound):
		return doctor.Network{}, nil
	case err != nil:
		return doctor.Network{}, err
	}
	return doctor.Network{Defined: true, Active: active, Bridge: n.Bridge, Subnet: n.Subnet}, nil
}

// diagnose returns a function that checks this machine, for the host's agent: the checks of croft doctor that concern
// the machine alone. What else that command checks has another place: the agent itself reports guests without a
// network, shared storage and PCI devices, and the list of hosts the state of the cloud.
func (h *host) diagnose() func(context.Context) []croft.Finding {
	c := MachineConfig(&h.settings)
	c.StateDir, c.Running = h.dir.Path, os.Getpid()
	driver, _ := h.hv.(*libvirt.Driver)
	probes := MachineProbes(driver)
	if driver != nil {
		probes.KVM = func(context.Context) (bool, string) { // as probed once per boot
			virt, reason := driver.VirtType()
			return virt == libvirt.VirtKVM, reason
		}
		probes.CutOff = func(context.Context) ([]string, error) { return nil, nil }
		probes.MetadataServer = h.lookMetadataServer
	}
	all := append(doctor.Checks(c, probes), checks.Check{Name: "certificates",
		Look: func(context.Context) checks.Result { return Certificates(c.StateDir) }})
	return func(ctx context.Context) (found []croft.Finding) {
		for _, r := range checks.Run(ctx, all) {
			if r.Level != checks.OK {
				found = append(found, croft.Finding{Level: string(r.Level), Check: r.Check, Found: r.Found, Do: r.Do})
			}
		}
		return found
	}
}

// lookMetadataServer returns whose metadata server a process runs on a bridge.
func (h *host) lookMetadataServer(ctx context.Context, bridge string, pid int32) (doctor.MetadataServer, error) {
	server, err := mdserver.Served(ctx, bridge, mdserver.Address)
	if err != nil {
		return doctor.MetadataServer{}, err
	}
	found := doctor.MetadataServer{Cloud: string(server.Partition)}
	found.Ours = server.Partition == "" || int(pid) == os.Getpid() || server.Partition == h.store.Partition()
	if found.Ours && server.Host != "" && server.Host != h.id {
		found.Sibling = string(server.Host)
	}
	return found, nil
}

// Certificates checks the certificates in a state directory.
func Certificates(stateDir string) checks.Result {
	all, err := trust.AllHeld(stateDir)
	if errors.Is(err, fs.ErrPermission) {
		return checks.Result{Level: checks.OK, Found: "not looked at: they are root's"}
	}
	if err != nil {
		return checks.Result{Level: checks.Fail, Found: err.Error(),
			Do: "follow that message; croft up creates missing certificates, and a host that joined can join again " +
				"with a token"}
	}
	if len(all) == 0 {
		return checks.Result{Level: checks.OK, Found: "none, and none are needed on this machine alone"}
	}
	var first time.Time
	for _, c := range all {
		switch c.State {
		case trust.Expired, trust.NotYetValid:
			return checks.Result{Level: checks.Fail, Found: fmt.Sprintf("%s: the certificate of %s %s, %s", c.File,
				c.Of, c.State, trust.Expiry(c.Until)),
				Do: "check the clock, and start croft up; if it says that a host has to join again: croft token " +
					"create --host NAME"}
		case trust.Overdue:
			return checks.Result{Level: checks.Warn, Found: fmt.Sprintf(
				"%s: the certificate of %s is not renewed, and %s", c.File, c.Of, trust.Expiry(c.Until)),
				Do: "look whether croft up runs on the host that has the authority, and whether this one reaches it " +
					"(join.listen)"}
		}
		if first.IsZero() || c.Until.Before(first) {
			first = c.Until
		}
	}
	return checks.Result{Level: checks.OK, Found: fmt.Sprintf("%d, the first %s", len(all), trust.Expiry(first))}
}
