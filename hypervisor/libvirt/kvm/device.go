package kvm

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// DeviceProblem describes what is wrong with the owner and mode of /dev/kvm and how to fix it; empty if
// nothing is, or if there is no such device. It matters even without KVM guests: a libvirt that may not open
// the device queries QEMU's capabilities again on every call, about four seconds each time.
func DeviceProblem() string {
	info, err := os.Stat(device)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	name := strconv.Itoa(int(st.Gid))
	if g, err := user.LookupGroupId(name); err == nil {
		name = g.Name
	}
	return problem(name, info.Mode())
}

func problem(group string, mode os.FileMode) string {
	perm := mode.Perm()
	if perm&0o006 == 0o006 || group == "kvm" && perm&0o060 == 0o060 {
		return ""
	}
	return fmt.Sprintf("%s belongs to the group %s with mode %04o, so libvirt's QEMU cannot open it and every libvirt call takes seconds: "+
		"run 'chown root:kvm %[1]s && chmod 660 %[1]s', remove /var/cache/libvirt/qemu/capabilities and restart libvirtd", device, group, perm)
}
