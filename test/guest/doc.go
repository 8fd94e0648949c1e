// Package guest boots the guest built by scripts/guest/build with every source of metadata that it supports.
package guest
