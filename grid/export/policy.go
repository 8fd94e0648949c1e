package export

import (
	"slices"
	"strings"

	"croft/crush/policy"
	"croft/grid/place"
	"croft/grid/state"
)

// policy sets where pods may run: on nodes with the required facts, spread as the job's policy selects, and never two
// on one node.
func (k *kubernetes) policy(j *state.Job, pod Object, own map[string]string) error {
	var demands []any
	for _, fact := range j.Require {
		demands = append(demands, k.demand(j.Name, fact, true))
	}
	for _, fact := range j.Avoid {
		demands = append(demands, k.demand(j.Name, fact, false))
	}
	rule, err := place.Resolve(k.state, j.Policy)
	if err != nil {
		return err
	}
	affinity := Object{}
	if !j.Every {
		affinity["podAntiAffinity"] = Object{"requiredDuringSchedulingIgnoredDuringExecution": []any{
			Object{"labelSelector": Object{"matchLabels": texts(own)}, "topologyKey": hostLabel}}}
	}
	switch {
	case rule.Every:
	case rule.Pin != "":
		demands = append(demands, Object{"key": hostLabel, "operator": "In", "values": []any{label(rule.Pin)}})
	default:
		within, spread := k.instructions(j, rule.Policy, own)
		demands = append(demands, within...)
		put(pod, "topologySpreadConstraints", spread)
	}
	if len(demands) > 0 {
		affinity["nodeAffinity"] = Object{"requiredDuringSchedulingIgnoredDuringExecution": Object{
			"nodeSelectorTerms": []any{Object{"matchExpressions": demands}}}}
	}
	if len(affinity) > 0 {
		pod["affinity"] = affinity
	}
	return nil
}

// instructions converts the instructions of a policy to Kubernetes constraints: within restricts the nodes, spread
// spreads the pods. Kubernetes cannot express a policy with several parts, each ending in an emit: only the first part
// is converted.
func (k *kubernetes) instructions(j *state.Job, p policy.Policy, own map[string]string) (within, spread []any) {
	lowest := ""
	if len(k.state.Cluster.Types) > 0 {
		lowest = k.state.Cluster.Types[0]
	}
	for i, in := range p {
		switch in.Op {
		case policy.Use:
			b := k.bucket(in.Name)
			if b == nil || b.Parent == nil {
				continue // all nodes
			}
			within = append(within, Object{"key": k.typeLabel(b.Type), "operator": "In",
				"values": []any{value(b.Name)}})
		case policy.Select:
			if in.Name == lowest {
				continue // the anti-affinity already keeps two pods off one node
			}
			c := Object{"maxSkew": 1, "topologyKey": k.typeLabel(in.Name), "whenUnsatisfiable": "DoNotSchedule",
				"labelSelector": Object{"matchLabels": texts(own)}}
			if in.N > 1 {
				c["minDomains"] = in.N
			}
			spread = append(spread, c)
		case policy.Take:
			if in.N > 1 && len(spread) > 0 {
				k.cannot(j.Name, "take %d: Kubernetes spreads pods evenly over the selected domains, without a "+
					"number for each", in.N)
			}
		case policy.Emit:
			if slices.ContainsFunc(p[i:], func(next policy.Instruction) bool { return next.Op != policy.Emit }) {
				k.cannot(j.Name, "a policy in several parts: the first one is exported, up to the first emit")
				return within, spread
			}
		}
	}
	return within, spread
}

func (k *kubernetes) bucket(name string) *state.Bucket {
	for _, b := range k.state.Buckets {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// access returns a NetworkPolicy for each job that a rule lets others reach.
func (k *kubernetes) access(a Access) []Object {
	if a.Proto != "" && a.Proto != "tcp" && a.Proto != "udp" {
		k.cannot("net/access/"+a.Name, "the protocol %s: a NetworkPolicy knows TCP, UDP and SCTP", a.Proto)
		return nil
	}
	if len(a.To) == 0 {
		k.cannot("net/access/"+a.Name, "it allows addresses that no job has")
	}
	var all []Object
	for _, job := range a.To {
		name := k8sName(job)
		o := k.object("networking.k8s.io/v1", "NetworkPolicy", k8sName(a.Name)+"-"+name, nil, true)
		rule := Object{}
		var from, ports []any
		for _, prefix := range a.From {
			from = append(from, Object{"ipBlock": Object{"cidr": prefix}})
		}
		for _, other := range a.FromJobs {
			labels := Object{group + "/job": value(k8sName(other))}
			from = append(from, Object{"podSelector": Object{"matchLabels": labels}})
		}
		protocols := []string{a.Proto}
		if a.Proto == "" {
			protocols = []string{"tcp", "udp"}
		}
		for _, port := range a.Ports {
			for _, protocol := range protocols {
				one := Object{"port": port.First, "protocol": strings.ToUpper(protocol)}
				if port.Last > port.First {
					one["endPort"] = port.Last
				}
				ports = append(ports, one)
			}
		}
		put(rule, "from", from)
		if len(a.Ports) == 0 && a.Proto != "" {
			ports = append(ports, Object{"protocol": strings.ToUpper(a.Proto)})
		}
		put(rule, "ports", ports)
		o["spec"] = Object{"podSelector": Object{"matchLabels": Object{group + "/job": value(name)}},
			"policyTypes": []any{"Ingress"}, "ingress": []any{rule}}
		all = append(all, o)
	}
	return all
}
