package export

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"croft/grid/state"
	"croft/grid/unit"
)

// differ returns the names of the fields in which two units differ.
func differ(a, b unit.Unit) []string {
	var names []string
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			names = append(names, strings.ToLower(x.Type().Field(i).Name))
		}
	}
	return names
}

// job returns the objects of a job: a DaemonSet for a job that runs on every node, a StatefulSet for an instance of a
// template, else a Deployment; and the objects that it needs.
func (k *kubernetes) job(ctx context.Context, j *state.Job) ([]Object, error) {
	u, slots, err := k.sample(ctx, j)
	if err != nil {
		return nil, err
	}
	switch {
	case len(k.state.Leaves) == 0:
		k.cannot(j.Name, "nothing of it, because no node runs it")
		return nil, nil
	case u.VM != nil:
		k.cannot(j.Name, "a virtual machine: none of Kubernetes' own objects is one (KubeVirt has them)")
		return nil, nil
	case slots == 0:
		k.cannot(j.Name, "it has no slots yet: exported as if it ran on %s", k.state.Leaves[0].Name)
	}
	name := k8sName(j.Name)
	own := map[string]string{group + "/job": value(name)}
	pod, needs := k.pod(j, u, name)
	template := Object{"metadata": Object{"labels": texts(own)}, "spec": pod}
	spec := Object{"selector": Object{"matchLabels": texts(own)}, "template": template}
	kind := "Deployment"
	switch {
	case j.Every:
		kind = "DaemonSet"
	case j.Instance != "":
		kind = "StatefulSet"
		spec["serviceName"], spec["replicas"] = name, j.Want
	default:
		spec["replicas"] = j.Want
	}
	k.strategy(j, kind, spec)
	if err := k.policy(j, pod, own); err != nil {
		return nil, err
	}
	set := k.object("apps/v1", kind, name, own, true)
	set["spec"] = spec
	objects := append([]Object{set}, needs...)
	if service := k.service(j, u, name, own); service != nil {
		objects = append(objects, service)
	}
	if j.Min > 0 && j.Min < j.Want && !j.Every {
		budget := k.object("policy/v1", "PodDisruptionBudget", name, own, true)
		budget["spec"] = Object{"minAvailable": j.Min, "selector": Object{"matchLabels": texts(own)}}
		objects = append(objects, budget)
	}
	for _, has := range []struct {
		given bool
		what  string
	}{
		{j.Balance > 1, "balance: the scheduler weighs nodes in its own way"},
		{j.Canary > 0, "canary: a rollout of Kubernetes has no nodes that go first"},
		{j.Gate.Command != nil || j.Gate.Here != nil || j.Gate.URL != "", "gate: a rollout waits for readiness alone"},
		{j.Confirm > 0, "confirm: a change is not undone automatically"},
		{u.Address != "", "address: a pod has an address of the cluster network; " + u.Address + " is not kept"},
		{len(u.Options) > 0, "options: they are the runtime's own"},
	} {
		if has.given {
			k.cannot(j.Name, "%s", has.what)
		}
	}
	return objects, nil
}

// strategy sets how changes are rolled out.
func (k *kubernetes) strategy(j *state.Job, kind string, spec Object) {
	rolling := Object{}
	if j.MaxUnavailable > 0 {
		rolling["maxUnavailable"] = j.MaxUnavailable
	}
	switch {
	case kind == "Deployment" && j.Exclusive:
		spec["strategy"] = Object{"type": "Recreate"}
	case kind == "Deployment" && len(rolling) > 0:
		spec["strategy"] = Object{"type": "RollingUpdate", "rollingUpdate": rolling}
	case kind == "DaemonSet" && len(rolling) > 0:
		spec["updateStrategy"] = Object{"type": "RollingUpdate", "rollingUpdate": rolling}
	case kind == "StatefulSet" && j.MaxUnavailable > 1:
		k.cannot(j.Name, "max_unavailable: a StatefulSet changes one pod after the other")
	}
	if kind == "DaemonSet" && j.Exclusive {
		k.cannot(j.Name, "exclusive: a DaemonSet may start the new pod of a node while the old one ends elsewhere")
	}
}

// pod returns the pod spec, and the objects that the pod mounts.
func (k *kubernetes) pod(j *state.Job, u unit.Unit, name string) (Object, []Object) {
	container := Object{"name": "main", "image": k.image(j, u, name)}
	if len(u.Command) > 0 {
		container["args"] = list(u.Command)
	}
	var env []any
	for _, key := range slices.Sorted(maps.Keys(u.Env)) {
		env = append(env, Object{"name": key, "value": strings.ReplaceAll(u.Env[key], "$(", "$$(")})
	}
	for _, v := range u.SecretEnv {
		env = append(env, Object{"name": v.Name,
			"valueFrom": Object{"secretKeyRef": Object{"name": name + "-secrets", "key": v.Name}}})
		k.cannot(j.Name, "the variable %s, which has a secret: make the key %s of the Secret %s-secrets", v.Name, v.Name,
			name)
	}
	put(container, "env", env)
	var ports []any
	for _, p := range u.Ports {
		port := Object{"containerPort": p.Unit, "protocol": strings.ToUpper(p.Protocol)}
		if u.Network != "host" && u.Network != "" {
			port["hostPort"] = p.Node
			if p.Address != "" {
				port["hostIP"] = p.Address
			}
		}
		ports = append(ports, port)
	}
	put(container, "ports", ports)
	k.resources(j, u, container)
	k.user(j, u, container)
	k.ready(j, u, container)
	pod := Object{"containers": []any{container}}
	switch u.Network {
	case "", "host":
		pod["hostNetwork"] = true
	case "none":
		k.cannot(j.Name, "network none: a pod has a network; a NetworkPolicy can forbid its use")
	}
	if j.Priority != 0 {
		k.priorities[j.Priority] = true
		pod["priorityClassName"] = className(j.Priority)
	}
	needs := k.volumes(j, u, name, pod, container)
	return pod, needs
}

// image returns the reference of the image that a pod pulls: a placeholder if the job's image is not in a registry.
func (k *kubernetes) image(j *state.Job, u unit.Unit, name string) string {
	if u.Image.Registry != "" {
		return u.Image.Registry
	}
	stand := "registry.invalid/" + name
	what := "no image"
	switch {
	case u.Image.Archive != "":
		what = "the archive " + u.Image.Archive
	case u.Image.Rootfs != "":
		what = "the directory " + u.Image.Rootfs + " of the node"
	}
	k.cannot(j.Name, "%s as its image: push it to a registry, and write that in the place of %s", what, stand)
	return stand
}

func (k *kubernetes) resources(j *state.Job, u unit.Unit, container Object) {
	limits, requests := Object{}, Object{}
	if u.CPU > 0 {
		limits["cpu"] = strconv.FormatFloat(u.CPU*1000, 'f', 0, 64) + "m"
	}
	if u.Memory > 0 {
		limits["memory"] = strconv.FormatInt(u.Memory, 10)
	}
	for _, what := range slices.Sorted(maps.Keys(j.Uses)) {
		switch n := j.Uses[what]; what {
		case "cpu":
			requests["cpu"] = strconv.FormatInt(n, 10) + "m"
		case "memory":
			requests["memory"] = strconv.FormatInt(n/1000, 10)
		default:
			k.cannot(j.Name, "uses %s: nodes of Kubernetes do not count that", what)
		}
	}
	both := Object{}
	if len(limits) > 0 {
		both["limits"] = limits
	}
	if len(requests) > 0 {
		both["requests"] = requests
	}
	if len(both) > 0 {
		container["resources"] = both
	}
}

func (k *kubernetes) user(j *state.Job, u unit.Unit, container Object) {
	if u.User == "" {
		return
	}
	name, team, _ := strings.Cut(u.User, ":")
	security := Object{}
	for field, text := range map[string]string{"runAsUser": name, "runAsGroup": team} {
		if text == "" {
			continue
		}
		if id, err := strconv.Atoi(text); err == nil && id >= 0 {
			security[field] = id
		} else {
			k.cannot(j.Name, "user %s: a pod takes numbers alone", text)
		}
	}
	if len(security) > 0 {
		container["securityContext"] = security
	}
}

// ready sets a readiness probe if the check is an HTTP request to a port of the unit.
func (k *kubernetes) ready(j *state.Job, u unit.Unit, container Object) {
	c := u.Ready
	switch {
	case c.URL != "" && c.Query == "":
		at, err := url.Parse(c.URL)
		if err == nil {
			if port := unitPort(u, at); port != 0 {
				get := Object{"port": port, "path": at.RequestURI()}
				if at.Scheme == "https" {
					get["scheme"] = "HTTPS"
				}
				container["readinessProbe"] = Object{"httpGet": get}
				return
			}
		}
		k.cannot(j.Name, "ready: %s is no port of the job", c.URL)
	case c.Query != "":
		k.cannot(j.Name, "ready: a query of Prometheus is no probe")
	case c.Here != nil, c.Command != nil:
		k.cannot(j.Name, "ready: a probe runs within the pod, and %s runs outside of it",
			append(slices.Clone(c.Here), c.Command...)[0])
	}
}

// unitPort returns the port of the unit that a URL reaches, or 0.
func unitPort(u unit.Unit, at *url.URL) int {
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[at.Scheme]
	}
	for _, p := range u.Ports {
		if p.Protocol == "tcp" && (p.Node == port || u.Address != "" && p.Unit == port) {
			return p.Unit
		}
	}
	return 0
}

// volumes returns a ConfigMap with the files, and mounts the files, secrets and directories of the node.
func (k *kubernetes) volumes(j *state.Job, u unit.Unit, name string, pod, container Object) (needs []Object) {
	var volumes, mounts []any
	data, items, secrets := Object{}, []any{}, []any{}
	for i, f := range u.Files {
		key := fmt.Sprintf("%d-%s", i, value(path.Base(f.Path)))
		item := Object{"key": key, "path": key, "mode": int(f.Mode)}
		volume := "files"
		if f.Secret {
			volume = "secrets"
			secrets = append(secrets, item)
			k.cannot(j.Name, "the secret %s: make the key %s of the Secret %s-secrets", f.Path, key, name)
		} else {
			data[key] = f.Content
			items = append(items, item)
		}
		mounts = append(mounts, Object{"name": volume, "mountPath": f.Path, "subPath": key, "readOnly": true})
	}
	if len(items) > 0 {
		files := k.object("v1", "ConfigMap", name+"-files", nil, true)
		files["data"] = data
		needs = append(needs, files)
		volumes = append(volumes, Object{"name": "files", "configMap": Object{"name": name + "-files", "items": items}})
	}
	if len(secrets) > 0 {
		volumes = append(volumes, Object{"name": "secrets", "secret": Object{"secretName": name + "-secrets",
			"items": secrets}})
	}
	for i, m := range u.Mounts {
		volume := fmt.Sprintf("mount-%d", i)
		volumes = append(volumes, Object{"name": volume, "hostPath": Object{"path": m.From}})
		mount := Object{"name": volume, "mountPath": m.To}
		if m.ReadOnly {
			mount["readOnly"] = true
		}
		mounts = append(mounts, mount)
	}
	put(pod, "volumes", volumes)
	put(container, "volumeMounts", mounts)
	return needs
}

// service returns the Service under which other pods reach the job, or nil if the job needs none.
func (k *kubernetes) service(j *state.Job, u unit.Unit, name string, own map[string]string) Object {
	var ports []any
	for _, p := range u.Ports {
		ports = append(ports, Object{"name": fmt.Sprintf("%s-%d", p.Protocol, p.Node), "port": p.Node,
			"targetPort": p.Unit, "protocol": strings.ToUpper(p.Protocol)})
	}
	if len(ports) == 0 && (j.Instance == "" || j.Every) {
		return nil
	}
	o := k.object("v1", "Service", name, own, true)
	spec := Object{"selector": texts(own)}
	put(spec, "ports", ports)
	if len(ports) == 0 || j.Instance != "" {
		spec["clusterIP"] = "None" // a StatefulSet needs a headless service
	}
	o["spec"] = spec
	return o
}

func list(all []string) []any {
	var out []any
	for _, one := range all {
		out = append(out, strings.ReplaceAll(one, "$(", "$$("))
	}
	return out
}

func put(o Object, key string, all []any) {
	if len(all) > 0 {
		o[key] = all
	}
}
