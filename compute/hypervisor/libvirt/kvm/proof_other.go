//go:build !amd64

package kvm

import (
	"context"
	"errors"
)

// proof supports amd64 only; croft's domains are x86-64 too.
func proof(context.Context, uintptr) error {
	return errors.New("the proof is written for x86-64 only")
}
