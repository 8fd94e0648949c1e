package compute

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"croft"
	"croft/internal/redact"
)

// build creates everything up to a defined domain, at most MaxBuilds at once. It calls prepare after the
// image is fetched and before it is used.
func (p *pass) build(ctx context.Context, prepare func() error) error {
	if err := p.arrived(ctx); err != nil {
		return err
	}
	if err := p.runs(); err != nil {
		return err
	}
	nics, err := p.nics()
	if err != nil {
		return err
	}
	source, err := p.source()
	if err != nil {
		return err
	}
	if err := p.queue(ctx); err != nil {
		return err
	}
	defer func() { <-p.agent.builds }()
	p.agent.Log.Info("building", "instance", p.id, "host", p.agent.Host.ID, "name", p.want.Name, "project",
		p.want.Project, "image", redact.Image(p.want.Spec.Image), "resources", p.want.Spec.Resources.String())
	if p.want.Restores(0) {
		return p.buildRestored(ctx, source, nics)
	}
	var img CachedImage
	brought, err := p.broughtDisk(ctx)
	if err != nil {
		return err
	}
	if !brought && p.want.Spec.Image != "" {
		if img, err = p.fetch(ctx); err != nil {
			return err
		}
	}
	if _, err := p.fetchCD(ctx); err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	p.memory.note(croft.EventImage)
	p.observePassing(ctx, croft.Observation{State: croft.StateDefining})
	if err := os.MkdirAll(p.agent.dir(p.id), dirMode); err != nil {
		return fmt.Errorf("make the instance's directory: %w", err)
	}
	if err := p.prepareDisk(ctx); err != nil {
		return err
	}
	dir, err := p.diskDir()
	if err != nil {
		return err
	}
	var layers []Layer
	err = p.phase(ctx, phaseOverlay, func(ctx context.Context) (err error) {
		layers, err = onStorage(ctx, p, func() ([]Layer, error) {
			if !brought {
				if err := p.makeDisk(ctx, img, dir); err != nil {
					return nil, err
				}
			}
			return p.agent.topmost(dir) // there may be snapshots of an instance whose definition was lost
		})
		return err
	})
	if err == nil {
		err = p.noteDisk(ctx)
	}
	if err != nil {
		return err
	}
	return p.define(ctx, layers, source, nics)
}

// runs refuses a machine of an architecture that this host does not offer. Invalid.
func (p *pass) runs() error {
	arch := p.want.Spec.Machine.Arch
	if p.agent.Host.Runs(arch) == nil {
		return nil
	}
	return croft.Errorf(croft.Invalid, "this host runs no %s machines: let the host offer the architecture "+
		"(libvirt.emulated_architectures in its settings), or request another instance", arch.Known())
}

// makeDisk makes the disk above its image, or an empty one if the order names no image.
func (p *pass) makeDisk(ctx context.Context, img CachedImage, dir string) error {
	size := p.want.Spec.Resources[croft.DiskGB]
	if p.want.Spec.Image == "" {
		return p.agent.Images.Volume(ctx, filepath.Join(dir, diskFile), size)
	}
	_, err := p.agent.Images.Disk(ctx, img, dir, size)
	return err
}

// buildRestored defines the domain on disks that it makes from a backup.
func (p *pass) buildRestored(ctx context.Context, source croft.Metadata, nics []NIC) error {
	p.observePassing(ctx, croft.Observation{State: croft.StateFetching})
	if err := p.phase(ctx, phaseFetch, p.restore); err != nil {
		return err
	}
	p.memory.note(croft.EventImage)
	layers, err := p.agent.topmost(p.agent.dir(p.id))
	if err != nil {
		return err
	}
	return p.define(ctx, layers, source, nics)
}

// define writes the metadata disk and defines the domain on these layers of its root disk, with its volumes.
func (p *pass) define(ctx context.Context, layers []Layer, source croft.Metadata, nics []NIC) error {
	seed, err := p.seed(ctx, source)
	if err != nil {
		return err
	}
	machine := p.machine(layers, seed, nics)
	machine.Source = source
	if machine.Kind.Firmware, err = p.firmware(ctx, layers); err != nil {
		return err
	}
	if machine.Kind.Firmware.IsUEFI() {
		machine.NVRAM = filepath.Join(p.agent.dir(p.id), nvramFile)
	}
	if machine.Volumes, err = p.disks(ctx); err != nil {
		return err
	}
	if machine.PCI, err = p.choosePCI(ctx, p.hadPCI()); err != nil {
		return err
	}
	if machine.CD, err = p.insertCD(ctx); err != nil {
		return err
	}
	if err := p.phase(ctx, phaseDefine, func(ctx context.Context) error {
		return p.agent.Hypervisor.Define(ctx, machine)
	}); err != nil {
		return err
	}
	p.memory.note(croft.EventDefined)
	return nil
}

// queue waits for a free build slot.
func (p *pass) queue(ctx context.Context) error {
	return p.phase(ctx, phaseQueue, func(ctx context.Context) error {
		select {
		case p.agent.builds <- struct{}{}:
			return nil
		default:
		}
		p.observePassing(ctx, croft.Observation{State: croft.StatePending})
		select {
		case p.agent.builds <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// fetch makes the image of the disk available in the host's cache.
func (p *pass) fetch(ctx context.Context) (CachedImage, error) {
	return p.fetchImage(ctx, p.want.Spec.Image, p.want.Spec.ImagePublic)
}

// fetchCD makes the image of the CD available in the host's cache; empty: the CD drive is to be empty.
func (p *pass) fetchCD(ctx context.Context) (CachedImage, error) {
	cd := p.want.CD()
	if cd == nil || p.cd.Path != "" {
		return p.cd, nil
	}
	img, err := p.fetchImage(ctx, cd.Image, cd.Public)
	if err != nil {
		return img, p.withoutCD(err)
	}
	p.cd = img
	return img, nil
}

// withoutCD adds to an error about the CD how the instance can go on without it.
func (p *pass) withoutCD(err error) error {
	if croft.KindOf(err) == "" {
		return fmt.Errorf("its CD: %w", err)
	}
	return fmt.Errorf("its CD (`schedule eject %s` goes on without it): %w", p.want.Name, err)
}

// insertCD puts the ISO into the instance's directory, and returns its path; empty: the CD drive is to be empty.
func (p *pass) insertCD(ctx context.Context) (string, error) {
	img, err := p.fetchCD(ctx)
	if err != nil || img.Path == "" {
		return "", err
	}
	file := filepath.Join(p.agent.dir(p.id), cdFile)
	if err := p.agent.Images.CD(ctx, img, file); err != nil {
		return "", p.withoutCD(err)
	}
	return file, nil
}

// fetchImage makes an image available in the host's cache. public: see croft.Spec.ImagePublic.
func (p *pass) fetchImage(ctx context.Context, reference string, public bool) (img CachedImage, err error) {
	p.observePassing(ctx, croft.Observation{State: croft.StateFetching})
	fetch := p.agent.Images.Fetch
	if public {
		fetch = p.agent.Images.FetchPublic
	}
	if id, _ := croft.CatalogImage(reference); id != "" {
		fetch = func(ctx context.Context, _ string, progress func(croft.Progress)) (CachedImage, error) {
			return p.agent.catalogImage(ctx, id, p.id, progress)
		}
	}
	var written time.Time
	err = p.phase(ctx, phaseFetch, func(ctx context.Context) (err error) {
		img, err = fetch(ctx, reference, func(done croft.Progress) {
			if time.Since(written) < progressEvery {
				return
			}
			written = time.Now()
			p.observePassing(ctx, croft.Observation{State: croft.StateFetching, Progress: &done})
		})
		return err
	})
	return img, err
}

// progressEvery is the least time between two writes of the progress of a download.
const progressEvery = time.Second

// source returns where the guest finds its metadata. Invalid: this host cannot provide the source that the order
// requires.
func (p *pass) source() (croft.Metadata, error) {
	if p.agent.Seeds == nil {
		return croft.MetadataServer, nil
	}
	return p.agent.Seeds.Source(*p.want)
}

// seed writes the metadata disk and returns its path; empty: the guest needs no disk.
func (p *pass) seed(ctx context.Context, source croft.Metadata) (path string, err error) {
	if source == croft.MetadataServer {
		return "", nil
	}
	path = filepath.Join(p.agent.dir(p.id), seedFile)
	// A file left by an earlier attempt may belong to QEMU's user and have another mode.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("write the metadata disk: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, seedMode)
	if err != nil {
		return "", fmt.Errorf("write the metadata disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := p.phase(ctx, phaseSeed, func(ctx context.Context) error {
		return p.agent.Seeds.WriteSeed(ctx, f, *p.want)
	}); err != nil {
		return "", fmt.Errorf("write the metadata disk: %w", err)
	}
	return path, f.Sync()
}

// nics returns the guest's network interfaces. Invalid: the order names a network that this host does not have, or that
// its settings do not open to the project; both cases have the same message, because tenants read it.
func (p *pass) nics() ([]NIC, error) {
	var all []NIC
	usual := 0 // index of the first interface on the usual networks
	for _, name := range p.want.Spec.Networks {
		nic, ok := p.agent.Networks[name]
		switch {
		case name == croft.DefaultNetworks:
			usual = len(all)
			all = append(all, p.agent.NICs...)
		case ok && p.agent.Host.AdmitsTo(name, p.want.Project):
			all = append(all, nic)
		default:
			return nil, croft.Errorf(croft.Invalid, "host %s has no network %q in its settings (networks)",
				p.agent.Host.Name, name)
		}
	}
	if len(p.want.Spec.Networks) == 0 {
		all = slices.Clone(p.agent.NICs)
	}
	for i := range all {
		all[i].MAC = p.id.MAC(i).String()
	}
	address := p.want.Spec.FixedAddress
	if address == "" {
		return all, nil
	}
	for i := usual; i < min(usual+len(p.agent.NICs), len(all)); i++ {
		if all[i].Network != "" {
			all[i].Address = address
			return all, nil
		}
	}
	return nil, croft.Errorf(croft.Invalid, "host %s has no network that gives the address %s", p.agent.Host.Name,
		address)
}

// machine returns the description of the domain.
func (p *pass) machine(disk []Layer, seed string, nics []NIC) Machine {
	return Machine{
		ID: p.id, Partition: p.want.Partition, Ordered: OrderedBy(*p.want), Name: p.want.Name,
		VCPUs: p.want.Spec.Resources[croft.VCPU], MemoryMiB: p.want.Spec.Resources[croft.MemoryMB],
		Disk: disk, Seed: seed, Console: p.agent.ConsoleLog(p.id), NICs: nics, Agent: true, Kind: p.want.Spec.Machine,
	}
}

// firmware returns the firmware of the domain: the one in the order, else the one that boots the disk. Invalid: none
// does on this host.
func (p *pass) firmware(ctx context.Context, layers []Layer) (croft.Firmware, error) {
	wanted, machine := p.want.Spec.Machine.Firmware, p.want.Spec.Machine
	if machine.Arch == croft.ArchAArch64 { // it has no other
		wanted = croft.FirmwareUEFI
	}
	boots, err := onStorage(ctx, p, func() (croft.Firmware, error) { return p.agent.Images.OnlyFirmware(layers) })
	switch {
	case err != nil:
		return wanted, err
	case boots == croft.FirmwareBIOS && wanted.IsUEFI() && machine.ISO == "" &&
		len(p.want.Volumes) == 0 && !machine.Boot.Has(croft.BootNetwork):
		remedy := "leave --firmware out, or give an image that UEFI boots"
		if machine.Arch == croft.ArchAArch64 {
			remedy = "give an image for aarch64"
		}
		return "", croft.Errorf(croft.Invalid, "its disk boots only by a BIOS, since no partition on it can have a boot "+
			"loader for UEFI: %s", remedy)
	case wanted.IsUEFI() || boots != croft.FirmwareUEFI:
		return wanted, nil
	case wanted == croft.FirmwareBIOS:
		return "", croft.Errorf(croft.Invalid, "its disk boots only by UEFI, and the request asks for a BIOS: ask for "+
			"--firmware uefi, or give an image that a BIOS boots")
	case !slices.Contains(p.agent.Provider.Traits, croft.TraitUEFI):
		return "", croft.Errorf(croft.Invalid, "its disk boots only by UEFI, and its host has no UEFI firmware: ask with "+
			"--firmware uefi, so that a host is chosen that has it, or give an image that a BIOS boots")
	}
	return croft.FirmwareUEFI, nil
}
