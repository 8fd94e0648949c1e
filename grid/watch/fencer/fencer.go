// Package fencer ensures that nodes are off, by a program that the cluster provides: a hard point of the kind fence,
// with the verb fence.
//
// Exit code 0, or another one listed under ok, means that nothing runs on the node any more. After any other result,
// the node's exclusive jobs stay on the node.
package fencer

import (
	"context"
	"embed"
	"errors"
	"io/fs"

	"croft"
	"croft/grid/hardpoint"
	"croft/grid/machine"
	"croft/grid/state"
	"croft/grid/watch"
)

// none are the shipped fences: there are none, because each site switches machines off in its own way.
var none embed.FS

// Point is the fence of a cluster.
type Point struct{ point *hardpoint.Point }

var _ watch.Fencer = (*Point)(nil)

// Open reads hardpoints/fence/NAME.yaml in a cluster's directory. NotFound: no such file. Invalid: it is faulty, or
// lacks the verb fence.
func Open(repository fs.FS, name string) (*Point, error) {
	p, err := hardpoint.Library{Kind: "fence", Verbs: []string{"fence"}, Shipped: none,
		Repository: repository}.Load(name)
	if err != nil {
		return nil, err
	}
	if !p.Has("fence") {
		return nil, croft.Errorf(croft.Invalid, "%s: it has no verb fence", p.From)
	}
	return &Point{p}, nil
}

// Fence implements watch.Fencer. The program gets the values name, address and user of the node, and var.X for each
// scalar of the node's variables.
func (p *Point) Fence(ctx context.Context, n *state.Node) (watch.Answer, error) {
	values := hardpoint.Values{"name": n.Name, "address": n.Address, "user": n.User}
	if n.Values != nil && n.Values.Fields["var"] != nil {
		for key, v := range n.Values.Fields["var"].Fields {
			if v.Kind != state.Map && v.Kind != state.List {
				values["var."+key] = v.Text
			}
		}
	}
	r, err := p.point.Run(ctx, machine.Local{}, "fence", values, nil)
	switch {
	case errors.Is(err, croft.Unavailable):
		return watch.No, err
	case err != nil:
		return watch.Unknown, err
	case r.No, r.Absent, r.Unknown:
		return watch.No, nil
	}
	return watch.Yes, nil
}
