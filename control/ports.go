package control

import (
	"cmp"
	"io"
	"strconv"
	"strings"

	"croft"
	"croft/control/api"
	"croft/internal/endpoint"
	"croft/schedule"
)

// forwardPort connects the client to a TCP port of the guest.
func forwardPort(c *call, in api.GuestPort) error {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		return api.NewProblem(api.BadRequest, "a port is forwarded over a WebSocket: ask for an upgrade of the connection")
	}
	if err := c.checkHandshake(); err != nil {
		return err
	}
	port := cmp.Or(in.Port, 22)
	ctx, cancel := c.brief()
	st, err := c.find(ctx)
	cancel()
	if err != nil {
		return err
	}
	if err := checkAddress(st); err != nil {
		return err
	}
	at := schedule.Address(&st)
	still := func(now croft.Status) bool { return keepsAddress(now, at) }
	lasting, end := c.lastingFor(st, still)
	defer end()
	var refused error
	err = c.Cloud.Ports.Connect(lasting, st, port, func(guest io.ReadWriteCloser) error {
		if refused = c.checkSame(st, still); refused == nil {
			refused = c.tunnel(lasting, guest, false)
		}
		return refused
	})
	switch {
	case c.upgraded:
		return nil
	case refused != nil:
		return refused
	case croft.KindOf(err) == croft.Unavailable:
		return api.NewProblem(api.BackendDown, "port "+strconv.Itoa(port)+" of "+st.Instance.Name+
			" does not answer at "+schedule.Address(&st)+" from where the API is served")
	}
	return err
}

// keepsAddress reports whether an instance still has an address, so that no other guest can have it: its guest is on,
// has no other address, and is not being removed. An unknown address counts as unchanged, because the host may not know
// it at the moment.
func keepsAddress(now croft.Status, address string) bool {
	off := now.Observation != nil &&
		(now.Observation.State == croft.StateStopped || now.Observation.State == croft.StateRemoving)
	if off || now.Instance.State != croft.StateScheduled {
		return false
	}
	at := schedule.Address(&now)
	return at == "" || at == address
}

// checkAddress refuses addresses that cannot be a guest's. The host reports the address of a guest, and may be wrong or
// lie.
func checkAddress(st croft.Status) error {
	address := schedule.Address(&st)
	if address == "" {
		return api.NewProblem(api.BadState,
			"instance "+st.Instance.Name+" has no address: it is "+schedule.Describe(&st))
	}
	if !endpoint.Elsewhere()(address) {
		return api.NewProblem(api.BadState, "instance "+st.Instance.Name+" has an address that cannot be a guest's")
	}
	return nil
}
