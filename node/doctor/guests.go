package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"croft"
	"croft/internal/checks"
)

// look is the function of a Check.
type look = func(ctx context.Context) checks.Result

const kvmDevice = "/dev/kvm"

// lookKVM distinguishes a KVM that runs guests from one that is only present, and detects a device that
// libvirt's QEMU cannot open: libvirt then probes QEMU on every call, and defining a domain takes a minute.
func (c Config) lookKVM(p Probes) look {
	return func(ctx context.Context) checks.Result {
		if c.VirtType == "qemu" {
			return checks.Good("not used: virt_type is qemu")
		}
		file, err := p.File(kvmDevice)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return c.noKVM(kvmDevice + " is not there")
		case err != nil:
			return c.noKVM(err.Error())
		case !openToGroup(file):
			return checks.Failure(
				fmt.Sprintf(
					"%s belongs to %s:%s with mode %04o, so that libvirt's QEMU cannot open it and every libvirt call takes seconds",
					kvmDevice,
					file.Owner,
					file.Group,
					file.Mode.Perm(),
				),
				"chown root:kvm "+kvmDevice+" && chmod 660 "+kvmDevice)
		}
		if usable, reason := p.KVM(ctx); !usable {
			return c.noKVM(kvmDevice + " is there and runs no guest: " + reason)
		}
		return checks.Good("runs guests")
	}
}

// noKVM is a failure only if KVM was requested.
func (c Config) noKVM(found string) checks.Result {
	if c.VirtType == "kvm" {
		return checks.Failure(found,
			"turn virtualisation on in the firmware and load kvm_intel or kvm_amd, or set virt_type to auto")
	}
	return checks.Warning(
		found+"; guests are emulated, about ten times slower",
		"turn virtualisation on in the firmware (nested virtualisation where this is a guest itself) and load kvm_intel or kvm_amd",
	)
}

func openToGroup(f File) bool {
	const groupRW, otherRW = 0o060, 0o006
	return f.Group == "kvm" && f.Mode.Perm()&groupRW == groupRW || f.Mode.Perm()&otherRW == otherRW
}

func lookProgram(p Probes, program, debianPackage string) look {
	return func(context.Context) checks.Result {
		path, err := p.LookPath(program)
		if err != nil {
			return checks.Failure(program+" is not installed", "apt-get install "+debianPackage)
		}
		return checks.Good(path)
	}
}

func lookLibvirt(p Probes) look {
	return func(ctx context.Context) checks.Result {
		version, err := p.Libvirt(ctx)
		if err != nil {
			return checks.Failure(err.Error(),
				"apt-get install libvirt-daemon-system, then systemctl start libvirtd (or virtlogd -d; libvirtd -d)")
		}
		return checks.Good(version)
	}
}

// lookGuests finds guests whose disks are not in the state directory: they belong to another installation, or
// to this host before it lost that directory. It also finds guests that lost their network.
func (c Config) lookGuests(p Probes) look {
	return func(ctx context.Context) checks.Result {
		guests, err := p.Guests(ctx)
		if err != nil {
			return checks.Failure("list the guests: "+err.Error(), "first fix the fault in the line about libvirt")
		}
		var strange []string
		for _, id := range guests {
			if _, err := p.File(filepath.Join(c.StateDir, "instances", id)); errors.Is(err, fs.ErrNotExist) {
				strange = append(strange, id)
			}
		}
		if len(strange) > 0 {
			return checks.Warning(
				fmt.Sprintf(
					"%d of %d guests have their disks elsewhere than in %s, such as %s: another croft runs here, or this host had another state directory",
					len(strange),
					len(guests),
					c.StateDir,
					strange[0],
				),
				"in the second case set state_dir to that one, or put its host-id into this one; croft leaves them alone until then",
			)
		}
		cut, err := p.CutOff(ctx)
		if err != nil {
			return checks.Failure(
				"look for guests without a network: "+err.Error(),
				"first fix the fault in the line about libvirt",
			)
		}
		if len(cut) > 0 {
			return checks.Failure(
				fmt.Sprintf("%d of %d guests are cut off: an interface of theirs is on no bridge, such as one of %s",
					len(cut), len(guests), cut[0]),
				"start their network again (virsh net-start); a running agent attaches them to it within 15 seconds",
			)
		}
		return checks.Good(fmt.Sprintf("%d here", len(guests)))
	}
}

func lookTun(p Probes) look {
	const device = "/dev/net/tun"
	return func(context.Context) checks.Result {
		if _, err := p.File(device); err != nil {
			return checks.Failure(device+" is not there, so that guests have no network", "modprobe tun")
		}
		return checks.Good(device)
	}
}

// lookNetwork accepts a missing or stopped network, because the agent creates and starts it.
func lookNetwork(p Probes, name string) look {
	return func(ctx context.Context) checks.Result {
		n, err := p.Network(ctx, name)
		switch {
		case err != nil:
			return checks.Failure(fmt.Sprintf("libvirt's network %s: %v", name, err),
				"first fix the fault in the line about libvirt")
		case n.Active:
			return checks.Good(fmt.Sprintf("%s on bridge %s, %s", name, n.Bridge, n.Subnet))
		case n.Defined:
			return checks.Good(name + " is not active; the agent starts it")
		case name == "default":
			return checks.Good(name + " is not defined; the agent defines and starts it")
		}
		return checks.Failure("libvirt has no network "+name,
			"define it with virsh net-define, or set network to default")
	}
}

// lookFilter reports whether guests can be restricted to their addresses.
func (c Config) lookFilter(p Probes) look {
	return func(ctx context.Context) checks.Result {
		if c.Spoofing {
			return checks.Warning("libvirt.allow_spoofing: guests may send from the addresses of others",
				"set it to false, unless guests route for others")
		}
		if err := p.Filter(ctx); err != nil {
			return checks.Failure(err.Error(), "apt-get install nftables; its kernel module is nf_tables, with the family bridge")
		}
		return checks.Good("nftables holds guests to their addresses")
	}
}

func lookBridge(p Probes, name string) look {
	return func(context.Context) checks.Result {
		links, err := p.Links()
		if err != nil {
			return checks.Failure("list the network interfaces: "+err.Error(), "run this as root")
		}
		for _, l := range links {
			if l.Name == name {
				return checks.Good(strings.TrimSpace(name + " " + joinPrefixes(l.Addresses)))
			}
		}
		return checks.Failure("there is no bridge "+name, "make it, or set network instead of bridge")
	}
}

// hostArchs maps the architecture of a host that runs guests, in Go's notation, to the architecture of its guests.
var hostArchs = map[string]croft.Arch{"amd64": croft.ArchX86, "arm64": croft.ArchAArch64}

// RunsGuests reports whether hosts of an architecture, in Go's notation, run guests.
func RunsGuests(arch string) bool { return hostArchs[arch] != "" }

// qemu has QEMU's program and its package for machines of an architecture, and the package of their firmware.
var qemu = map[croft.Arch]struct{ program, debianPackage, firmware string }{
	croft.ArchX86:     {"qemu-system-x86_64", "qemu-system-x86", "ovmf"},
	croft.ArchAArch64: {"qemu-system-aarch64", "qemu-system-arm", "qemu-efi-aarch64"},
}

// InstallMachines returns the command that installs what libvirt needs to run machines of an architecture.
func InstallMachines(arch croft.Arch) string {
	needs := qemu[arch.Known()]
	return "apt-get install " + needs.debianPackage + " " + needs.firmware
}

// native returns the architecture of machines that the host can run without emulation.
func (c Config) native() croft.Arch { return cmp.Or(hostArchs[c.Arch], croft.ArchX86) }

// lookMachine rejects architectures on which no guests run.
func (c Config) lookMachine(context.Context) checks.Result {
	switch {
	case !RunsGuests(c.Arch):
		return checks.Failure(fmt.Sprintf(
			"this machine is %s, and croft's guests are x86_64 and aarch64 machines: it is not supported", c.Arch),
			"use an x86_64 or aarch64 machine for guests; with hypervisor: none this one can run the services that all "+
				"hosts share")
	case c.native() == croft.ArchAArch64:
		return checks.Warning("aarch64: its guests are aarch64 machines, which were tried under emulation alone",
			"try your images here before you rely on it")
	}
	return checks.Good(string(c.native()))
}

// lookMachines reports whether libvirt runs the machines of the host's architecture, and those that it is to emulate.
func (c Config) lookMachines(p Probes) look {
	return func(ctx context.Context) checks.Result {
		traits, err := p.Machines(ctx)
		if err != nil {
			return checks.Failure(err.Error(), "look at the result of the check libvirt")
		}
		var found []string
		for _, arch := range append([]croft.Arch{c.native()}, c.Emulated...) {
			if !slices.Contains(traits, arch.Trait()) {
				return checks.Failure(fmt.Sprintf("libvirt runs no %s machines", arch.Known()),
					InstallMachines(arch)+", then systemctl restart libvirtd")
			}
			if !slices.Contains(found, string(arch.Known())) {
				found = append(found, string(arch.Known()))
			}
		}
		return checks.Good(strings.Join(found, ", "))
	}
}
