package kvm

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Requests of linux/kvm.h that the proof needs.
const (
	kvmCreateVM   = 0xae01
	kvmCreateVCPU = 0xae41
)

// proof makes a virtual machine with a processor. It runs no guest: the kernel of an arm64 host has the device only
// where it started in the mode of a hypervisor.
func proof(_ context.Context, device uintptr) error {
	vm, _, errno := unix.Syscall(unix.SYS_IOCTL, device, kvmCreateVM, 0)
	if errno != 0 {
		return fmt.Errorf("make a virtual machine: %w", errno)
	}
	defer unix.Close(int(vm))
	vcpu, _, errno := unix.Syscall(unix.SYS_IOCTL, vm, kvmCreateVCPU, 0)
	if errno != 0 {
		return fmt.Errorf("make its processor: %w", errno)
	}
	return unix.Close(int(vcpu))
}
