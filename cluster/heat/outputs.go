package heat

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft/cluster"
	"croft/cluster/heat/template"
)

// mostOutputs bounds the outputs of a stack, in bytes of JSON.
const mostOutputs = 256 << 10

// read adds the outputs of a stack to the observation.
func read(seen *cluster.Seen, st *stacks.RetrievedStack, b cluster.Build, c cluster.Contract) {
	outputs, failed := outputsOf(st)
	if text, err := json.Marshal(outputs); err != nil || len(text) > mostOutputs {
		seen.Failure = fmt.Sprintf("the outputs have %d KiB; at most %d are kept", len(text)>>10, mostOutputs>>10)
		return
	}
	seen.Outputs = outputs
	for _, name := range []string{template.MasterIP, template.Hosts, template.WorkerIPs} {
		if why := failed[name]; why != "" && seen.Failure == "" {
			seen.Failure = "output " + name + ": " + why
		}
	}
	address, _ := outputs[template.MasterIP].(string)
	if ip, err := netip.ParseAddr(address); err == nil {
		seen.MasterIP = ip.String()
	} else if seen.Failure == "" {
		seen.Failure = fmt.Sprintf("output master_ip is %.80v, which is no address", outputs[template.MasterIP])
	}
	m := member(b, cluster.Master, 0)
	place(&m, seen.MasterIP)
	seen.Members = append(seen.Members, m)
	name, entries, err := entriesOf(outputs)
	if err == nil && entries != nil {
		err = slavesIn(name, entries, numberingOf(st), b, c)
	}
	if err != nil && seen.Failure == "" {
		seen.Failure = err.Error()
	}
	addSlaves(seen, entries, numberingOf(st), b, c)
}

// slavesIn checks that an output lists as many slaves as the stack was asked for: none will appear later once the stack
// is complete.
func slavesIn(output string, entries []entry, g numbering, b cluster.Build, c cluster.Contract) error {
	want := len(b.Indexes)
	if _, sized := c.Declared[template.ClusterSize]; sized {
		want = g.size
	}
	got := 0
	for _, e := range entries {
		if !e.master {
			got++
		}
	}
	if got != want {
		return fmt.Errorf("output %s has %d slaves, but the stack was asked for %d", output, got, want)
	}
	return nil
}

// outputsOf returns the outputs by name, and for those without a value the reason.
func outputsOf(st *stacks.RetrievedStack) (outputs map[string]any, failed map[string]string) {
	outputs, failed = map[string]any{}, map[string]string{}
	for _, o := range st.Outputs {
		name, _ := o["output_key"].(string)
		outputs[name] = o["output_value"]
		if why, _ := o["output_error"].(string); why != "" {
			failed[name] = why
		}
	}
	return outputs, failed
}

// entry is a host as an output describes it.
type entry struct {
	name, address, remote string
	master                bool
	index                 int // -1: not given
}

// entriesOf parses the output hosts or, if it is missing, worker_ips, and returns the name of the parsed output. Nil
// entries: there is neither. An output that is null or not a list is an error.
func entriesOf(outputs map[string]any) (name string, all []entry, err error) {
	name = template.Hosts
	value, there := outputs[name]
	if !there {
		name = template.WorkerIPs
		if value, there = outputs[name]; !there {
			return "", nil, nil
		}
	}
	list, ok := value.([]any)
	if !ok {
		return name, nil, fmt.Errorf("output %s is %.80v, which is no list of hosts", name, value)
	}
	all = []entry{}
	for _, item := range list {
		e := entry{index: -1}
		switch v := item.(type) {
		case string:
			e.address = v
		case map[string]any:
			e.name, _ = v["name"].(string)
			e.address, _ = v["address"].(string)
			e.remote, _ = v["id"].(string)
			e.master = v["role"] == string(cluster.Master)
			e.index = indexOf(v["index"])
		}
		all = append(all, e)
	}
	return name, all, nil
}

// indexOf parses an index, which Heat may return as text. -1: none exists.
func indexOf(value any) int {
	switch v := value.(type) {
	case float64:
		return int(v)
	case string:
		if i, err := strconv.Atoi(v); err == nil {
			return i
		}
	}
	return -1
}

// addSlaves adds the slaves in the outputs, each with its index in this cloud.
func addSlaves(seen *cluster.Seen, entries []entry, g numbering, b cluster.Build, c cluster.Contract) {
	_, sized := c.Declared[template.ClusterSize]
	var indexes []int
	switch {
	case c.RemoveNamed:
		indexes = g.indexes()
	case sized:
		indexes = firstOf(b.Indexes, g.size)
	default:
		indexes = b.Indexes
	}
	if entries == nil { // the template does not list slaves, so a complete stack means that all exist
		for _, i := range indexes {
			m := member(b, cluster.Slave, i)
			m.State, m.Step = cluster.MemberReady, "ready"
			seen.Members = append(seen.Members, m)
		}
		return
	}
	position := 0
	for _, e := range entries {
		if e.master {
			seen.Members[0].Name, seen.Members[0].RemoteID = orName(e.name, seen.Members[0].Name), e.remote
			continue
		}
		i := position
		if position++; i < len(indexes) {
			i = indexes[i]
		}
		if e.index >= 0 && c.RemoveNamed {
			i = g.index(e.index)
		}
		m := member(b, cluster.Slave, i)
		m.Name, m.RemoteID = orName(e.name, m.Name), e.remote
		place(&m, e.address)
		seen.Members = append(seen.Members, m)
	}
}

// firstOf returns size indexes: the wanted ones, then further ones.
func firstOf(wanted []int, size int) []int {
	all := append([]int{}, wanted[:min(size, len(wanted))]...)
	for next := 0; len(all) < size; next++ {
		if len(all) > 0 {
			next = max(next, all[len(all)-1]+1)
		}
		all = append(all, next)
	}
	return all
}

// member returns a member that does not exist yet.
func member(b cluster.Build, role cluster.Role, index int) cluster.Member {
	name := b.Name + "-" + string(role)
	if role == cluster.Slave {
		name += "-" + strconv.Itoa(index)
	}
	return cluster.Member{ID: cluster.IDOf(b.Cluster, role, index), Name: name, Role: role, Index: index,
		State: cluster.MemberBuilding, Step: "booting"}
}

// place sets the address of a member. Without an address the member stays as it is: an incomplete machine has the
// address null.
func place(m *cluster.Member, address string) {
	if ip, err := netip.ParseAddr(address); err == nil {
		m.Address, m.State, m.Step = ip.String(), cluster.MemberReady, "ready"
	}
}

func orName(name, other string) string {
	if name == "" {
		return other
	}
	return name
}
