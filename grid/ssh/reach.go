package ssh

import "croft/grid/unit"

// Reach returns the host and port at which a node is reached after all jumps, as the ssh configuration has them.
// Invalid.
func (d *Dialer) Reach(n unit.Node) (host, port string, err error) {
	w, err := parseWhere(n.Address)
	if err != nil {
		return "", "", err
	}
	t, err := d.config.target(w)
	if err != nil {
		return "", "", err
	}
	return t.host, t.port, nil
}
