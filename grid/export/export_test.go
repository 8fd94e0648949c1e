package export

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	kyaml "sigs.k8s.io/yaml"

	"croft"
	"croft/grid/state"
)

type files map[string]string // file contents by name; contents that start with -> are symbolic links

func (f files) load(t *testing.T) *state.State {
	t.Helper()
	dir := t.TempDir()
	for name, text := range f {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(file, []byte(text), 0o644)
		if to, link := strings.CutPrefix(text, "->"); link {
			_ = os.Remove(file)
			err = os.Symlink(to, file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := state.Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cluster returns a cluster of two sites with one rack and two nodes each, and with jobs of every kind.
func cluster() files {
	f := files{
		"cluster.yaml": "id: '0123456789abcdef0123456789abcdef'\nruntime: podman\n",
		"nodes/_.yaml": "id: -1\nuser: ops\ncapacity: {cpu: 8, disks: 4}\n",
		"jobs/web/front@.yaml": `
image: {registry: registry.example/front:1}
command: [serve, "--name", "${instance}", "$$(HOME)"]
env: {ON: "yes", NUMBER: "010"}
ports: ["8080:80", "53:53/udp"]
network: bridge
user: "1000:1001"
files: [{path: /etc/front/front.conf, mode: 0600, content: "a: b\n"}]
mounts: ["/srv/front:/data:ro"]
limits: {cpu: 1.5, memory: 512Mi}
uses: {cpu: 0.5, memory: 256Mi}
replicas: {want: 2, min: 1}
policy: spread(site)
require: [ssd, disk=nvme]
avoid: [old]
priority: 5
max_unavailable: 1
ready: {url: "http://127.0.0.1:8080/health?full=1"}
`,
		"jobs/web/front@7.yaml": "->front@.yaml",
		"jobs/agent.yaml":       "image: {registry: registry.example/agent}\npolicy: every\nmax_unavailable: 2\n",
		"jobs/db.yaml": `
image: {rootfs: /srv/db}
command: [postgres]
exclusive: true
policy: pin(n0)
confirm: 60
canary: 1
ready: {command: [pg_isready]}
uses: {disks: 1}
`,
		"jobs/local.yaml": "image: {registry: x}\nreplicas: 2\n" +
			"policy: \"use s1; select 1 rack; take 1; emit; use s0; take 1\"\n",
		"jobs/guest.yaml": "runtime: vm\nvm: {vcpus: 1, memory: 1Gi, disk: 10Gi, image: /srv/d.qcow2, network: default, " +
			"virt_type: kvm}\n",
	}
	id := 0
	for site := range 2 {
		f[fmt.Sprintf("nodes/s%d/_.yaml", site)] = fmt.Sprintf("id: %d\n", -2-2*site)
		f[fmt.Sprintf("nodes/s%d/r%d/_.yaml", site, site)] = fmt.Sprintf("id: %d\n", -3-2*site)
		for range 2 {
			f[fmt.Sprintf("nodes/s%d/r%d/n%d.yaml", site, site, id)] = fmt.Sprintf("id: %d\n"+
				"address: 192.0.2.%d:22%02d\nfacts: {ssd: true, disk: nvme, old: false}\n", id, id+1, id)
			id++
		}
	}
	f["alloc/web/front@7/0"] = "->../../../nodes/s0/r0/n0.yaml"
	f["alloc/web/front@7/1"] = "->../../../nodes/s1/r1/n2.yaml"
	f["alloc/db/0"] = "->../../nodes/s0/r0/n0.yaml"
	for n := range 4 {
		f[fmt.Sprintf("alloc/agent/%d", n)] = fmt.Sprintf("->../../nodes/s%d/r%d/n%d.yaml", n/2, n/2, n)
	}
	return f
}

// kinds maps each kind of object to the Kubernetes type that it is strictly decoded into.
var kinds = map[string]func() any{
	"apps/v1 Deployment":  func() any { return &appsv1.Deployment{} },
	"apps/v1 DaemonSet":   func() any { return &appsv1.DaemonSet{} },
	"apps/v1 StatefulSet": func() any { return &appsv1.StatefulSet{} }, "v1 Node": func() any { return &corev1.Node{} },
	"v1 Service": func() any { return &corev1.Service{} }, "v1 ConfigMap": func() any { return &corev1.ConfigMap{} },
	"policy/v1 PodDisruptionBudget":      func() any { return &policyv1.PodDisruptionBudget{} },
	"scheduling.k8s.io/v1 PriorityClass": func() any { return &schedulingv1.PriorityClass{} },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return &networkingv1.NetworkPolicy{} },
}

// decoded decodes every object as Kubernetes does. The result is keyed by kind and name.
func decoded(t *testing.T, all []File) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, f := range all {
		for _, o := range f.Objects {
			var text bytes.Buffer
			if err := Write(&text, o); err != nil {
				t.Fatal(err)
			}
			kind := fmt.Sprintf("%v %v", o["apiVersion"], o["kind"])
			into := kinds[kind]
			if into == nil {
				t.Fatalf("%s: an object of kind %s", f.Name, kind)
			}
			v := into()
			if err := kyaml.UnmarshalStrict(text.Bytes(), v); err != nil {
				t.Errorf("%s: %v\n%s", f.Name, err, text.String())
			}
			found[fmt.Sprintf("%v %v", o["kind"], o["metadata"].(Object)["name"])] = v
		}
	}
	return found
}

func TestJobsAsKubernetesReadsThem(t *testing.T) {
	s := cluster().load(t)
	all, unsaid, err := Kubernetes(t.Context(), s, Options{Namespace: "grid", Access: []Access{{Name: "office",
		From: []string{"198.51.100.0/24"}, To: []string{"web/front@7"}, FromJobs: []string{"agent"},
		Proto: "tcp", Ports: []Ports{{80, 80}, {8000, 8010}}}}})
	if err != nil {
		t.Fatal(err)
	}
	found := decoded(t, all)
	front := found["StatefulSet "+k8sName("web/front@7")].(*appsv1.StatefulSet)
	pod := front.Spec.Template.Spec
	c := pod.Containers[0]
	switch {
	case *front.Spec.Replicas != 2 || front.Namespace != "grid":
		t.Errorf("the set %+v", front)
	case !slices.Equal(c.Args, []string{"serve", "--name", "7", "$$(HOME)"}) || c.Image != "registry.example/front:1":
		t.Errorf("it runs %q of %s", c.Args, c.Image)
	case c.Env[0].Value != "010" || c.Env[1].Value != "yes":
		t.Errorf("its environment is %+v", c.Env)
	case c.Ports[0].HostPort != 8080 || c.Ports[0].ContainerPort != 80 || c.Ports[1].Protocol != corev1.ProtocolUDP:
		t.Errorf("its ports are %+v", c.Ports)
	case c.Resources.Limits.Cpu().MilliValue() != 1500 || c.Resources.Requests.Memory().Value() != 256<<20:
		t.Errorf("its resources are %+v", c.Resources)
	case *c.SecurityContext.RunAsUser != 1000 || *c.SecurityContext.RunAsGroup != 1001:
		t.Errorf("its user is %+v", c.SecurityContext)
	case c.ReadinessProbe.HTTPGet.Path != "/health?full=1" || c.ReadinessProbe.HTTPGet.Port.IntValue() != 80:
		t.Errorf("its probe is %+v", c.ReadinessProbe)
	case c.VolumeMounts[0].MountPath != "/etc/front/front.conf" || pod.Volumes[0].ConfigMap.Items[0].Mode == nil ||
		*pod.Volumes[0].ConfigMap.Items[0].Mode != 0o600 || !c.VolumeMounts[1].ReadOnly ||
		pod.Volumes[1].HostPath.Path != "/srv/front":
		t.Errorf("its volumes are %+v %+v", pod.Volumes, c.VolumeMounts)
	case pod.TopologySpreadConstraints[0].TopologyKey != "grid.croft/site" || pod.PriorityClassName != "grid-5":
		t.Errorf("its spread is %+v", pod.TopologySpreadConstraints)
	case fmt.Sprint(pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) !=
		"[{[{grid.croft/fact-disk In [nvme]} {grid.croft/fact-ssd Exists []} {grid.croft/fact-old DoesNotExist []}] []}]":
		t.Errorf("its nodes are %+v", pod.Affinity.NodeAffinity)
	case pod.Affinity.PodAntiAffinity == nil || pod.HostNetwork:
		t.Errorf("two may be on one node: %+v", pod.Affinity)
	}
	config := found["ConfigMap "+front.Name+"-files"].(*corev1.ConfigMap)
	if fmt.Sprint(config.Data) != "map[0-front.conf:a: b\n]" {
		t.Errorf("its files are %q", config.Data)
	}
	b := found["PodDisruptionBudget "+front.Name].(*policyv1.PodDisruptionBudget)
	if b.Spec.MinAvailable.IntValue() != 1 {
		t.Errorf("its budget is %+v", b.Spec)
	}
	if v := found["Service "+front.Name].(*corev1.Service); v.Spec.ClusterIP != "None" || len(v.Spec.Ports) != 2 {
		t.Errorf("its service is %+v", v.Spec)
	}
	allowed := found["NetworkPolicy office-"+front.Name].(*networkingv1.NetworkPolicy)
	if in := allowed.Spec.Ingress[0]; in.From[0].IPBlock.CIDR != "198.51.100.0/24" ||
		in.From[1].PodSelector.MatchLabels["grid.croft/job"] != "agent" || in.Ports[0].Port.IntValue() != 80 ||
		in.Ports[0].EndPort != nil || *in.Ports[1].EndPort != 8010 {
		t.Errorf("access is %+v", allowed.Spec)
	}
	agent := found["DaemonSet agent"].(*appsv1.DaemonSet)
	if agent.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() != 2 || !agent.Spec.Template.Spec.HostNetwork {
		t.Errorf("the agent is %+v", agent.Spec)
	}
	db := found["Deployment db"].(*appsv1.Deployment)
	if db.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType ||
		db.Spec.Template.Spec.Containers[0].Image != "registry.invalid/db" {
		t.Errorf("the database is %+v", db.Spec)
	}
	node := found["Node n2"].(*corev1.Node)
	if fmt.Sprint(node.Labels) != "map[grid.croft/fact-disk:nvme grid.croft/fact-ssd:true grid.croft/rack:r1 "+
		"grid.croft/site:s1 topology.kubernetes.io/region:s1 topology.kubernetes.io/zone:r1]" {
		t.Errorf("the labels of a node are %v", node.Labels)
	}
	var said []string
	for _, u := range unsaid {
		said = append(said, u.About+": "+u.What)
	}
	for _, want := range []string{"db: the directory /srv/db", "db: ready: a probe", "db: confirm", "db: canary",
		"db: uses disks", "guest: a virtual machine", "local: a policy in several parts",
		"local: it has no slots yet"} {
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("%q is not told: %q", want, said)
		}
	}
	if found["Deployment guest"] != nil {
		t.Error("the virtual machine is exported")
	}
}

func TestSlotsThatDifferAndSecretsAreTold(t *testing.T) {
	f := files{"cluster.yaml": cluster()["cluster.yaml"], "nodes/_.yaml": "id: -1\n", "nodes/a.yaml": "id: 0\n",
		"nodes/b.yaml": "id: 1\nstate: drain\n",
		"jobs/x.yaml": "image: {registry: x}\nreplicas: 2\nenv: {N: \"${node.name}\", PW: \"u:${var.pw}\"}\nvar: {pw: \"age:YQ==\"}\nfiles:\n- path: /key\n  secret: true\n" +
			"  content: hush-hush\n",
		"alloc/x/0": "->../../nodes/a.yaml", "alloc/x/1": "->../../nodes/b.yaml"}
	all, unsaid, err := Kubernetes(t.Context(), f.load(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	found := decoded(t, all)
	if !found["Node b"].(*corev1.Node).Spec.Unschedulable {
		t.Error("a node that is drained takes pods")
	}
	if told := fmt.Sprint(unsaid); !strings.Contains(told, "another env") ||
		!strings.Contains(told, "key 0-key of the Secret x-secrets") ||
		!strings.Contains(told, "key PW of the Secret x-secrets") {
		t.Errorf("told %s", told)
	}
	for _, one := range all {
		var text bytes.Buffer
		if err := Write(&text, one.Objects...); err != nil || strings.Contains(text.String(), "hush") {
			t.Errorf("%s: %v\n%s", one.Name, err, text.String())
		}
	}
}

func TestNamesOfJobs(t *testing.T) {
	long := strings.Repeat("a", 60)
	seen := map[string]string{}
	for _, job := range []string{"web", "web/front", "web-front", "web.front", "web/front@7", "web@front", long,
		long + "b", "a_b"} {
		name := k8sName(job)
		if len(name) > 52 || label(name) != name || name == "" {
			t.Errorf("%s has the name %q", job, name)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("%s and %s are both %s", job, other, name)
		}
		seen[name] = job
	}
}

func TestFilesOfClusters(t *testing.T) {
	s := cluster().load(t)
	o, _, err := K0sctl(s, "grid", []string{"n0"})
	if err != nil {
		t.Fatal(err)
	}
	hosts := o["spec"].(Object)["hosts"].([]any)
	if len(hosts) != 4 || hosts[1].(Object)["role"] != "worker" || fmt.Sprint(hosts[0]) !=
		"map[hostname:n0 role:controller ssh:map[address:192.0.2.1 port:2200 user:ops]]" {
		t.Errorf("k0sctl: %v", hosts)
	}
	o, unsaid, err := K3s(s, []string{"n0", "n1"})
	if err != nil {
		t.Fatal(err)
	}
	in := o["k3s_cluster"].(Object)
	agents := in["children"].(Object)["agent"].(Object)["hosts"].(Object)
	if in["vars"].(Object)["api_endpoint"] != "192.0.2.1" || len(agents) != 2 ||
		!strings.Contains(fmt.Sprint(unsaid), "even number") {
		t.Errorf("k3s: %v %v", o, unsaid)
	}
	for _, c := range []struct {
		controllers []string
		kind        error
		says        string
	}{
		{nil, croft.Invalid, "--controllers"},
		{[]string{"n9"}, croft.NotFound, "there is no node n9"},
		{[]string{"n0", "n0"}, croft.Invalid, "twice"},
	} {
		if _, _, err := K0sctl(s, "grid", c.controllers); err == nil || !strings.Contains(err.Error(), c.says) ||
			croft.KindOf(err) != c.kind {
			t.Errorf("controllers %q: %v", c.controllers, err)
		}
	}
}
