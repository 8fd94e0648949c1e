//go:build libvirt_dlopen

package libvirt

// The binding calls into libvirt when it is initialized, to have it print no errors,
// and so loads it, with all that it needs, into every process of this program: ten
// milliseconds and more of each command that has nothing to do with libvirt. So that
// one call waits here until somebody connects.

// #cgo LDFLAGS: -Wl,--wrap=virSetErrorFuncWrapper
// void croftQuietLibvirt(void);
import "C"

// quiet does what the binding meant to do first. It must come before every other use
// of libvirt.
func quiet() { C.croftQuietLibvirt() }
