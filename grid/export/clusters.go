package export

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/grid/state"
	"croft/internal/nearest"
)

// K0sctl returns the cluster file of k0sctl with every node that is up; the nodes in controllers become controllers.
// Errors: Invalid or NotFound if controllers is empty or contains an unsuitable or unknown node.
func K0sctl(s *state.State, name string, controllers []string) (Object, []Unsaid, error) {
	nodes, unsaid, err := members(s, controllers)
	if err != nil {
		return nil, nil, err
	}
	var hosts []any
	for _, n := range nodes {
		host := Object{"role": "worker"}
		if slices.Contains(controllers, n.Name) {
			host["role"] = "controller"
			if len(nodes) == len(controllers) {
				host["role"] = "controller+worker"
			}
		}
		if n.Local {
			host["localhost"] = Object{"enabled": true}
		} else {
			address, port := reached(n)
			ssh := Object{"address": address}
			if port != 0 {
				ssh["port"] = port
			}
			if n.User != "" {
				ssh["user"] = n.User
			}
			host["ssh"] = ssh
		}
		host["hostname"] = label(n.Name)
		hosts = append(hosts, host)
	}
	return Object{"apiVersion": "k0sctl.k0sproject.io/v1beta1", "kind": "Cluster", "metadata": Object{"name": name},
		"spec": Object{"hosts": hosts}}, unsaid, nil
}

// K3s returns the inventory with which k3s-ansible creates a cluster. Errors: Invalid or NotFound, as K0sctl.
func K3s(s *state.State, controllers []string) (Object, []Unsaid, error) {
	nodes, unsaid, err := members(s, controllers)
	if err != nil {
		return nil, nil, err
	}
	groups := map[bool]Object{}
	for _, server := range []bool{true, false} {
		groups[server] = Object{}
	}
	for _, n := range nodes {
		vars := Object{}
		if n.Local {
			vars["ansible_connection"] = "local"
		} else {
			address, port := reached(n)
			vars["ansible_host"] = address
			if port != 0 {
				vars["ansible_port"] = port
			}
			if n.User != "" {
				vars["ansible_user"] = n.User
			}
		}
		groups[slices.Contains(controllers, n.Name)][label(n.Name)] = vars
	}
	first, _ := reached(s.Node(controllers[0]))
	unsaid = append(unsaid, Unsaid{"k3s_cluster", "k3s_version and token: add them to vars"})
	return Object{"k3s_cluster": Object{
		"children": Object{"server": Object{"hosts": groups[true]}, "agent": Object{"hosts": groups[false]}},
		"vars":     Object{"api_endpoint": first},
	}}, unsaid, nil
}

// members returns the nodes that are up, in the order of s.Leaves, and checks controllers.
func members(s *state.State, controllers []string) (nodes []*state.Node, unsaid []Unsaid, err error) {
	if len(controllers) == 0 {
		return nil, nil, croft.Errorf(croft.Invalid,
			"export: name the nodes that are controllers, as in --controllers n1,n2,n3")
	}
	var names []string
	for _, n := range s.Leaves {
		names = append(names, n.Name)
		switch {
		case n.State != state.Up:
			unsaid = append(unsaid, Unsaid{n.Name, "it is " + n.State + ", and left out"})
		case !n.Local && n.Address == "":
			unsaid = append(unsaid, Unsaid{n.Name,
				"its address comes from your SSH configuration, which others may not have"})
			nodes = append(nodes, n)
		default:
			nodes = append(nodes, n)
		}
	}
	for i, name := range controllers {
		at := slices.IndexFunc(nodes, func(n *state.Node) bool { return n.Name == name })
		switch {
		case s.Node(name) == nil:
			return nil, nil, croft.Errorf(croft.NotFound, "export: there is no node %s%s", name,
				nearest.Hint(name, names))
		case at < 0:
			return nil, nil, croft.Errorf(croft.Invalid, "export: node %s is %s: name controllers that are up", name,
				s.Node(name).State)
		case slices.Contains(controllers[:i], name):
			return nil, nil, croft.Errorf(croft.Invalid, "export: the controller %s is named twice", name)
		}
	}
	if len(controllers)%2 == 0 {
		unsaid = append(unsaid, Unsaid{strings.Join(controllers, ","),
			"an even number of controllers bears no more losses than one fewer"})
	}
	return nodes, unsaid, nil
}

// reached returns the address and the SSH port of a node; port 0 is the default port.
func reached(n *state.Node) (address string, port int) {
	if n.Local {
		return "127.0.0.1", 0
	}
	address = n.Address
	if address == "" {
		return n.Name, 0
	}
	if at, err := netip.ParseAddr(address); err == nil {
		return at.String(), 0
	}
	if host, text, err := net.SplitHostPort(address); err == nil {
		if port, err := strconv.Atoi(text); err == nil {
			return host, port
		}
	}
	return address, 0
}
