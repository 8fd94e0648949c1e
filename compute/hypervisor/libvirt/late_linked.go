//go:build !libvirt_dlopen

package libvirt

// quiet does nothing: a linked libvirt is loaded from the start.
func quiet() {}
