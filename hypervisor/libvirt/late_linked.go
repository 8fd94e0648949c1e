//go:build !libvirt_dlopen

package libvirt

// quiet has nothing to do where libvirt is linked: it is there from the start.
func quiet() {}
