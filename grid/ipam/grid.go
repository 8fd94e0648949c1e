package ipam

import (
	"errors"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"croft"
	"croft/grid/ipam/setexpr"
	"croft/internal/lazyregexp"
)

// Grid answers questions about nodes, and about which node each owner of leases is placed on.
type Grid interface {
	// Cluster returns the cluster's id, 32 hexadecimal digits; empty: the cluster has no id.
	Cluster() (string, error)
	// NodeOf returns the path below nodes/ of the node that an owner is placed on, such as syd/r1/web1; empty: the
	// owner is on no node.
	NodeOf(o Owner) (string, error)
	// Nodes returns the paths of all nodes, sorted.
	Nodes() ([]string, error)
	// Node reads one node by its path. NotFound.
	Node(path string) (*Node, error)
}

// Node is a machine.
type Node struct {
	Path      string       // below nodes/
	Addresses []netip.Addr // all known addresses
	Names     []string     // host names given in place of addresses
	SSHPort   uint16       // the port on which the node is managed
	File      string
}

// gridFiles reads the grid's files in the cluster's directory. It reads only the files that a question needs.
type gridFiles struct{ dir *Dir }

// NewGrid returns a Grid that reads the files of a cluster's directory.
func NewGrid(d *Dir) Grid { return gridFiles{d} }

var clusterForm = lazyregexp.New(`^[0-9a-f]{32}$`)

// Cluster implements Grid.
func (g gridFiles) Cluster() (string, error) {
	r, err := g.dir.reader("cluster.yaml")
	if croft.KindOf(err) == croft.NotFound {
		return "", nil
	} else if err != nil {
		return "", err
	}
	n := r.at("id")
	if n == nil || !clusterForm.MatchString(n.Value) {
		return "", croft.Errorf(croft.Invalid, "cluster.yaml: id: want the cluster's id, 32 hexadecimal digits")
	}
	return n.Value, nil
}

// NodeOf implements Grid.
func (g gridFiles) NodeOf(o Owner) (string, error) {
	name := "alloc/" + o.String()
	to, err := g.dir.target(name)
	switch {
	case croft.KindOf(err) == croft.NotFound:
		return "", nil
	case errors.Is(err, syscall.EINVAL):
		return "", croft.Errorf(croft.Invalid,
			"%s should be a link to a node's file: version control did not keep it, or "+
				"it was made by hand", name)
	case err != nil:
		return "", err
	}
	below, is := strings.CutPrefix(to, "nodes/")
	node, ends := strings.CutSuffix(below, yamlEnding)
	if !is || !ends {
		return "", croft.Errorf(croft.Invalid, "%s leads to %s, which is no node", name, to)
	}
	return node, nil
}

// Nodes implements Grid.
func (g gridFiles) Nodes() ([]string, error) {
	var all []string
	err := g.below("nodes", 0, &all)
	slices.Sort(all)
	return all, err
}

func (g gridFiles) below(dir string, depth int, all *[]string) error {
	if depth > maxDepth {
		return croft.Errorf(croft.Invalid, "%s: more than %d directories in each other", dir, maxDepth)
	}
	entries, err := g.dir.list(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		node, isYAML := strings.CutSuffix(strings.TrimPrefix(at, "nodes/"), yamlEnding)
		switch {
		case e.IsDir():
			if err := g.below(at, depth+1, all); err != nil {
				return err
			}
		case isYAML && e.Type().IsRegular() && path.Base(node) != "_":
			*all = append(*all, node)
		}
	}
	return nil
}

// Node implements Grid.
func (g gridFiles) Node(name string) (*Node, error) {
	r, err := g.dir.reader("nodes/" + name + yamlEnding)
	if err != nil {
		return nil, err
	}
	n := &Node{Path: name, SSHPort: 22, File: r.file}
	values := r.scalars("addresses")
	if a := r.at("address"); a != nil {
		values = append(values, a)
	}
	if r.err != nil {
		return nil, r.err
	}
	for _, v := range values {
		n.add(v.Value)
	}
	slices.SortFunc(n.Addresses, netip.Addr.Compare)
	n.Addresses = slices.Compact(n.Addresses)
	return n, nil
}

// add adds an address or host name, with or without a port. A port sets SSHPort.
func (n *Node) add(text string) {
	host := text
	if at, err := netip.ParseAddrPort(text); err == nil {
		host, n.SSHPort = at.Addr().String(), at.Port()
	} else if name, port, ok := strings.Cut(text, ":"); ok && !strings.Contains(port, ":") {
		if p, err := strconv.ParseUint(port, 10, 16); err == nil && p > 0 {
			host, n.SSHPort = name, uint16(p)
		}
	}
	if a, err := setexpr.ParseAddr(strings.Trim(host, "[]")); err == nil {
		n.Addresses = append(n.Addresses, a)
	} else {
		n.Names = append(n.Names, host)
	}
}
