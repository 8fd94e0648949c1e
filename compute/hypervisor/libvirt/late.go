//go:build libvirt_dlopen

package libvirt

// The binding calls libvirt during initialization, to suppress its error output. That loads libvirt and its
// dependencies into every process of this program, which takes at least ten milliseconds even for commands that do not
// use libvirt. The linker wraps this call, and quiet makes it on the first connection.

// #cgo LDFLAGS: -Wl,--wrap=virSetErrorFuncWrapper
// void croftQuietLibvirt(void);
import "C"

// quiet makes the deferred initialization call of the binding. It must precede every other use of libvirt.
func quiet() { C.croftQuietLibvirt() }
