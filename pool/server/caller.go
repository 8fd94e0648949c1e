package server

import "context"

// caller is the sender of a request.
type caller struct {
	name  string // of the token; empty: anonymous
	role  Role   // empty: public read access only
	quota Quota  // of the token
}

// may reports whether the caller has the rights of a role.
func (c caller) may(role Role) bool { return c.role == role || c.role == RoleAdmin }

type callerKey struct{}

// callerOf returns the sender of a request that only authorized.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}
