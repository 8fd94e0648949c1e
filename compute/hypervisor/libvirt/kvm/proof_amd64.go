package kvm

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"croft/internal/wording"
)

//go:embed guest/boot.bin
var boot []byte

// Memory layout of the guest, as in guest/boot.S.
const (
	memorySize = 2 << 20
	tables     = 0x1000
	resultAt   = 0x6000
	entry      = 0x7c00
	wantResult = 7000
)

// Requests of linux/kvm.h that the proof needs.
const (
	kvmCreateVM            = 0xae01
	kvmGetVCPUMmapSize     = 0xae04
	kvmGetSupportedCPUID   = 0xc008ae05
	kvmCreateVCPU          = 0xae41
	kvmSetUserMemoryRegion = 0x4020ae46
	kvmSetTSSAddr          = 0xae47
	kvmRun                 = 0xae80
	kvmSetRegs             = 0x4090ae82
	kvmGetSregs            = 0x8138ae83
	kvmSetSregs            = 0x4138ae84
	kvmSetCPUID2           = 0x4008ae90

	exitHalt = 5
)

// tssAddr is where Intel processors without unrestricted guests need three pages, outside the guest's memory.
const tssAddr = 0xfffbd000

// proof runs the guest on a dedicated thread and returns nil if it reached its end. A thread stuck in the
// kernel is abandoned.
func proof(ctx context.Context, kvm uintptr) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- runGuest(ctx, kvm)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(time.Second):
		return errors.New("the kernel does not come back from running it")
	}
}

func runGuest(ctx context.Context, kvm uintptr) error {
	vm, err := ioctl(kvm, kvmCreateVM, 0)
	if err != nil {
		return fmt.Errorf("creating it: %w", err)
	}
	defer unix.Close(int(vm))
	memory, err := unix.Mmap(-1, 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("its memory: %w", err)
	}
	defer unix.Munmap(memory)
	load(memory)
	if err := giveMemory(vm, memory); err != nil {
		return err
	}
	vcpu, err := ioctl(vm, kvmCreateVCPU, 0)
	if err != nil {
		return fmt.Errorf("its processor: %w", err)
	}
	defer unix.Close(int(vcpu))
	if err := setUp(kvm, vcpu); err != nil {
		return err
	}
	reason, err := run(ctx, kvm, vcpu)
	if err != nil {
		return err
	}
	if reason != exitHalt {
		return fmt.Errorf("it stopped with KVM exit %d on the way to 64 bits", reason)
	}
	if got := binary.LittleEndian.Uint32(memory[resultAt:]); got != wantResult {
		return fmt.Errorf("it computed %d where %d is right", got, wantResult)
	}
	return nil
}

// load writes the program and an identity map of the first 2 MiB.
func load(memory []byte) {
	const present, large = 0x3, 0x83
	binary.LittleEndian.PutUint64(memory[tables:], tables+0x1000|present)
	binary.LittleEndian.PutUint64(memory[tables+0x1000:], tables+0x2000|present)
	binary.LittleEndian.PutUint64(memory[tables+0x2000:], large)
	copy(memory[entry:], boot)
}

func giveMemory(vm uintptr, memory []byte) error {
	if _, err := ioctl(vm, kvmSetTSSAddr, tssAddr); err != nil {
		return fmt.Errorf("its task state: %w", err)
	}
	region := struct {
		slot, flags            uint32
		guest, size, userspace uint64
	}{size: uint64(len(memory)), userspace: uint64(uintptr(unsafe.Pointer(&memory[0])))}
	if _, err := ioctlPtr(vm, kvmSetUserMemoryRegion, unsafe.Pointer(&region)); err != nil {
		return fmt.Errorf("its memory: %w", err)
	}
	return nil
}

// setUp enables all CPU features that KVM has and sets the entry point.
func setUp(kvm, vcpu uintptr) error {
	var cpuid struct {
		count, _ uint32
		entries  [256][10]uint32
	}
	cpuid.count = uint32(len(cpuid.entries))
	if _, err := ioctlPtr(kvm, kvmGetSupportedCPUID, unsafe.Pointer(&cpuid)); err != nil {
		return fmt.Errorf("its processor's features: %w", err)
	}
	if _, err := ioctlPtr(vcpu, kvmSetCPUID2, unsafe.Pointer(&cpuid)); err != nil {
		return fmt.Errorf("its processor's features: %w", err)
	}
	var sregs [0x138]byte // cs comes first: base at 0, selector at 12
	if _, err := ioctlPtr(vcpu, kvmGetSregs, unsafe.Pointer(&sregs)); err != nil {
		return fmt.Errorf("its segments: %w", err)
	}
	clear(sregs[0:8])
	clear(sregs[12:14])
	if _, err := ioctlPtr(vcpu, kvmSetSregs, unsafe.Pointer(&sregs)); err != nil {
		return fmt.Errorf("its segments: %w", err)
	}
	var regs [18]uint64
	regs[16], regs[17] = entry, 2 // rip, rflags
	if _, err := ioctlPtr(vcpu, kvmSetRegs, unsafe.Pointer(&regs)); err != nil {
		return fmt.Errorf("its registers: %w", err)
	}
	return nil
}

// run runs the guest until it stops or ctx ends.
func run(ctx context.Context, kvm, vcpu uintptr) (reason uint32, err error) {
	size, err := ioctl(kvm, kvmGetVCPUMmapSize, 0)
	if err != nil {
		return 0, fmt.Errorf("its state: %w", err)
	}
	state, err := unix.Mmap(int(vcpu), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("its state: %w", err)
	}
	defer unix.Munmap(state)
	// The flag stops the next entry and the signal interrupts the current one: whichever the thread meets first.
	const immediateExit, exitReason = 1, 8
	tid := unix.Gettid()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		state[immediateExit] = 1
		_ = unix.Tgkill(unix.Getpid(), tid, unix.SIGURG) // SIGURG is used by Go's runtime and otherwise ignored
	})
	defer func() {
		if !stop() {
			<-interrupted // the interrupter writes to state
		}
	}()
	for {
		_, err := ioctl(vcpu, kvmRun, 0)
		switch {
		case err == nil:
			return binary.LittleEndian.Uint32(state[exitReason:]), nil
		case ctx.Err() != nil:
			return 0, fmt.Errorf("it did not halt within %v", wording.Duration(timeLimit))
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN):
			return 0, fmt.Errorf("running it: %w", err)
		}
	}
}

func ioctl(fd, request, arg uintptr) (uintptr, error) {
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, arg)
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

func ioctlPtr(fd, request uintptr, arg unsafe.Pointer) (uintptr, error) {
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}
