package scheduletest

import (
	"context"

	"croft"
)

// Hold implements schedule.Holds.
func (m *Memory) Hold(ctx context.Context, inst croft.Instance, host croft.HostID) (croft.Instance, error) {
	err := m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		if err := m.takesOrders(host); err != nil {
			return err
		}
		if err := m.admit(&inst, host); err != nil {
			return err
		}
		inst.State, inst.Host, inst.Session = croft.StateHeld, host, ""
		inst = m.put(inst)
		return nil
	})
	return inst, err
}

// takesOrders refuses a host that is silent or drained.
func (m *Memory) takesOrders(host croft.HostID) error {
	if m.alive[host] == 0 || m.hosts[host].Drained {
		return croft.Errorf(croft.Unavailable, "host %s is not alive or drained", host)
	}
	return nil
}

// Use implements schedule.Holds.
func (m *Memory) Use(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	err := m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		if err := m.takesOrders(o.Host); err != nil {
			return err
		}
		if len(inst.Spec.UserData) == 0 {
			inst.Spec.UserData = m.instances[inst.ID].Spec.UserData
			o.Spec.UserData = inst.Spec.UserData
		}
		inst.State, inst.Generation = croft.StateScheduled, o.Generation
		inst = m.put(inst)
		m.orders[croft.OrderID{Host: o.Host, Instance: inst.ID}] = o
		return nil
	})
	return inst, err
}

// Abandon implements schedule.Holds.
func (m *Memory) Abandon(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	err := m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		inst.State, inst.Session = croft.StateScheduling, ""
		inst = m.put(inst)
		return nil
	})
	return inst, err
}
