package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"croft"
)

// Limits of the removal of a machine's identity.
const (
	generalizeMemory = 8 << 30 // address space
	generalizeTime   = 20 * time.Minute
	// bytes of the overlay on the appliance that libguestfs writes
	applianceBytes = 4 << 30
	applianceTime  = 5 * time.Minute
)

// identities are what virt-sysprep removes: what says which machine it is, and what enrols that machine in services.
const identities = "machine-id,ssh-hostkeys,dhcp-client-state,dhcp-server-state,udev-persistent-net,net-hwaddr," +
	"net-hostname,kerberos-hostkeytab,ipa-client,rh-subscription-manager,rhn-systemid,yum-uuid,smolt-uuid,samba-db-log," +
	"sssd-db-log"

// scratchSuffix marks the directory with the files of the virtual machine that changes an image.
const scratchSuffix = ".scratch"

// Generalize implements compute.CopyFiles.
func (c *Copies) Generalize(ctx context.Context, id croft.ImageID, most int64) (err error) {
	const action = "remove the machine identity"
	build, err := exec.LookPath("libguestfs-make-fixed-appliance")
	if err == nil {
		_, err = exec.LookPath("virt-sysprep")
	}
	if err != nil {
		return croft.Errorf(croft.Invalid, "%s: the host of the instance has no virt-sysprep: install guestfs-tools, "+
			"libguestfs-tools and linux-image-cloud-amd64 there, or save the image without --generalize", action)
	}
	staged := c.Staged(id)
	dir := strings.TrimSuffix(staged, stagedSuffix) + scratchSuffix
	appliance, scratch := filepath.Join(dir, "appliance"), filepath.Join(dir, "scratch")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(scratch, 0o700), os.Mkdir(appliance, 0o755)); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := noRoom(c.space.room(c.dir, applianceBytes)); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	if err := makeAppliance(ctx, build, appliance); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	box := sandbox{out: staged, most: max(most, applianceBytes), memory: generalizeMemory, time: generalizeTime,
		machine: &machine{appliance: appliance, scratch: scratch}}
	err = box.run(ctx, "virt-sysprep", "--quiet", "--format", "qcow2", "-a", "/out", "--operations", identities)
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// makeAppliance makes the system of libguestfs's virtual machine from the packages of this host, which the files of an
// image have no part in.
func makeAppliance(ctx context.Context, program, dir string) error {
	limited, cancel := context.WithTimeout(ctx, applianceTime)
	defer cancel()
	cmd := exec.CommandContext(limited, program, dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + dir, "TMPDIR=" + dir,
		"LIBGUESTFS_BACKEND=direct", "LIBGUESTFS_BACKEND_SETTINGS=force_tcg"}
	cmd.WaitDelay = 10 * time.Second
	said := bounded{most: 4 << 10}
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return croft.Errorf(croft.Invalid, "libguestfs cannot make its appliance on the host of the instance, which needs "+
			"a Linux kernel in /boot: %w", err)
	}
	for _, name := range []string{"kernel", "initrd", "root"} { // the sandbox's user reads them
		if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
			return err
		}
	}
	return nil
}
