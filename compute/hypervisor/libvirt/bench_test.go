package libvirt_test

import (
	"context"
	"fmt"
	"testing"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt"
	"croft/internal/testing/libvirttest"
)

// BenchmarkDriver measures the cost of libvirt and the driver with the domains of a full host, all of them
// off.
func BenchmarkDriver(b *testing.B) {
	libvirttest.Start(b)
	d, err := libvirt.New(libvirt.Config{VirtType: libvirt.VirtQEMU})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	machine := func() compute.Machine {
		id := croft.NewInstanceID()
		return compute.Machine{ID: id, Partition: "bench", Ordered: compute.Ordered{Generation: 1}, Name: "bench",
			VCPUs: 1, MemoryMiB: 32,
			Disk: []compute.Layer{{Path: "/dev/null", Format: "raw"}},
			NICs: []compute.NIC{{MAC: id.MAC(0).String(), Network: libvirt.DefaultNetwork}}}
	}
	const domains = 100
	ctx := b.Context()
	var last croft.InstanceID
	for range domains {
		m := machine()
		last = m.ID
		if err := d.Define(ctx, m); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = d.Remove(context.WithoutCancel(ctx), m.ID) })
	}
	for _, op := range []struct {
		name string
		do   func() error
	}{
		{"Get", func() error { _, err := d.Get(ctx, last); return err }},
		{fmt.Sprintf("List%d", domains), func() error { _, err := d.List(ctx); return err }},
		{"DefineRemove", func() error {
			m := machine()
			if err := d.Define(ctx, m); err != nil {
				return err
			}
			return d.Remove(ctx, m.ID)
		}},
	} {
		b.Run(op.name, func(b *testing.B) {
			for b.Loop() {
				if err := op.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
