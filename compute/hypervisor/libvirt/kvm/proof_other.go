//go:build !amd64 && !arm64

package kvm

import (
	"context"
	"errors"
)

// proof supports the architectures of hosts that run guests.
func proof(context.Context, uintptr) error {
	return errors.New("the proof is written for x86_64 and aarch64 only")
}
