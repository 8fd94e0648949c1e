package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/appliances"
	"croft/cluster/local"
	"croft/schedule"
)

// applied is a cluster of an appliance on a cloud, with the driver that builds it.
type applied struct {
	*cloud
	driver *local.Driver
	build  cluster.Build
	key    string // file of the private SSH key
	at     cluster.SiteAccess
}

// newAppliance prepares a cluster of an appliance that croft ships.
func newAppliance(c *cloud, name, image string, slaves int, parameters map[string]any) *applied {
	c.t.Helper()
	text, shipped := appliances.Text(name, "local")
	if !shipped {
		c.t.Fatalf("there is no appliance %s", name)
	}
	b := newCluster(c, name, text, slaves)
	b.build.Parameters = map[string]any{"image": image, "key_name": name}
	for name, value := range parameters {
		b.build.Parameters[name] = value
	}
	return b
}

// newCluster prepares a cluster from the text of an appliance.
func newCluster(c *cloud, name, text string, slaves int) *applied {
	c.t.Helper()
	by := newBuilder(c)
	store := by.store
	b := &applied{cloud: c, driver: by.driver(by.link()), key: c.newKey()}
	line, err := os.ReadFile(b.key + ".pub")
	if err == nil {
		err = store.SSHKeys.AddKey(c.t.Context(), schedule.Key{Project: croft.DefaultProject, Name: name,
			Line: strings.TrimSpace(string(line))})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	id := croft.NewClusterID()
	b.build = cluster.Build{Partition: store.Partition(), Cluster: id, Name: name, Project: croft.DefaultProject,
		Implementation: cluster.Implementation{Template: text}, Remote: cluster.Remote{Name: "croft-" + string(id)},
		Timeout: time.Hour}
	for i := range slaves {
		b.build.Indexes = append(b.build.Indexes, i)
	}
	return b
}

// until polls the cluster until it is in a phase, and returns its state then.
func (b *applied) until(want cluster.Phase) (seen cluster.Seen) {
	b.t.Helper()
	end := time.Now().Add(3 * debianPatience)
	steps := ""
	for ; time.Now().Before(end); time.Sleep(time.Second) {
		all, err := b.driver.Observe(b.t.Context(), b.at, []cluster.Build{b.build})
		if err != nil {
			b.t.Fatal(err)
		}
		seen = all[b.build.Cluster]
		if seen.Phase == want {
			return seen
		}
		now := string(seen.Phase)
		for _, m := range seen.Members {
			now += fmt.Sprintf(", %s %s %s", m.Name, m.Step, m.Error)
		}
		if now != steps {
			b.t.Logf("%s %s", time.Now().Format(time.TimeOnly), now)
			steps = now
		}
		if seen.Phase == cluster.Broken || seen.Phase == cluster.Unsized {
			for _, m := range seen.Members {
				r := b.schedule("console", m.Name)
				b.t.Logf("the console of %s:\n%s", m.Name, r.stdout[max(0, len(r.stdout)-3000):])
			}
			b.t.Fatalf("the cluster is %s: %s", seen.Phase, seen.Failure)
		}
	}
	b.t.Fatalf("the cluster is %+v, want that it is %s", seen, want)
	return seen
}

// on runs a command on a member.
func (b *applied) on(member, command string) string {
	b.t.Helper()
	return strings.TrimSpace(b.must("ssh", "--user", "debian", "--identity", b.key, member, command))
}

func (b *applied) launch() (cluster.Seen, time.Duration) {
	b.t.Helper()
	begun := time.Now()
	if _, err := b.driver.Launch(b.t.Context(), b.at, b.build); err != nil {
		b.t.Fatal(err)
	}
	seen := b.until(cluster.Standing)
	return seen, time.Since(begun)
}

func (b *applied) resize(indexes ...int) {
	b.t.Helper()
	b.build.Indexes = indexes
	if err := b.driver.Resize(b.t.Context(), b.at, b.build); err != nil {
		b.t.Fatal(err)
	}
}

func (b *applied) destroy() {
	b.t.Helper()
	if err := b.driver.Destroy(b.t.Context(), b.at, b.build); err != nil {
		b.t.Fatal(err)
	}
	b.until(cluster.Absent)
}

// TestClusterOfSmallGuests builds the smallest cluster of real guests: they learn of each other while they boot, and
// only the cluster can stop them.
func TestClusterOfSmallGuests(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	b := newCluster(c, "few", `
ready: phone-home
master: {resources: "VCPU:1,MEMORY_MB:128,DISK_GB:1", image: "`+guestImage+`"}
slave:
  resources: VCPU:1,MEMORY_MB:128,DISK_GB:1
  image: `+guestImage+`
  user_data: |
    #!/bin/sh
    echo the master is at ${master_ip}
    for n in $(seq 100); do
      if wget -q -T 20 -O /tmp/peers http://169.254.169.254/croft/v1/peers; then break; fi
      sleep 1
    done
    sed 's/^/peer: /; s/ ssh-.*//' /tmp/peers
`, 1)
	seen, _ := b.launch()
	slave := c.show("few-slave-0")
	for _, words := range []string{"the master is at " + seen.MasterIP, "peer: " + seen.MasterIP + " few-master master",
		"peer: " + slave.Addresses[0] + " few-slave-0 slave"} {
		c.waitForConsole("few-slave-0", words)
	}
	c.mustAnswer(seen.MasterIP, "few-master", string(cluster.IDOf(b.build.Cluster, cluster.Master, 0)))
	for _, verb := range []string{"stop", "destroy"} {
		r := c.schedule(verb, "few-slave-0")
		if r.exit != 5 || !strings.Contains(r.stderr, "part of cluster "+string(b.build.Cluster)) {
			t.Errorf("%s of a member by itself: %v", verb, r)
		}
	}
	b.destroy()
	c.nothingLeft(slave.ID)
}

// slurmImage names an image with Slurm's packages; without one the tests of appliances are skipped.
func slurmImage(t *testing.T) string {
	t.Helper()
	image := os.Getenv("CROFT_TEST_SLURM")
	if image == "" {
		t.Skip("CROFT_TEST_SLURM names no image with Slurm: make test-guests builds one")
	}
	return image
}

// memberResources are the resources of each member of these clusters.
const memberResources = "VCPU:1,MEMORY_MB:512,DISK_GB:2"

// bootTime returns the number of seconds until a single guest, requested without an appliance, is set up.
func bootTime(b *applied, image string) float64 {
	b.t.Helper()
	begun := time.Now()
	b.must("resources="+memberResources, image, "--name", "alone", "--key", b.key+".pub", "--wait=ready", "--timeout",
		debianPatience.String())
	took := time.Since(begun).Seconds()
	b.must("destroy", "--wait", "alone")
	return took
}

// TestSlurm builds a batch system, runs jobs on it, and changes its size meanwhile.
func TestSlurm(t *testing.T) {
	t.Parallel()
	image := slurmImage(t)
	c := sharedCloud(t)
	b := newAppliance(c, "slurm", image, 2, map[string]any{"master_resources": memberResources,
		"slave_resources": memberResources})
	before := bootTime(b, image)
	begun := time.Now()
	seen, all := b.launch()
	idle := b.idleAfter(begun, "slurm-slave-0", "slurm-slave-1")
	if len(seen.Members) != 3 || seen.MasterIP == "" {
		t.Fatalf("the cluster is %+v", seen)
	}
	if got := b.on("slurm-master", "sinfo -h -t idle -o %D"); got != "2" {
		t.Errorf("%s nodes are idle, want 2", got)
	}
	// a job on all members succeeds
	if got := b.on("slurm-master", `echo '#!/bin/sh
srun hostname' >job && sbatch --wait -N 2 -o /dev/null job >/dev/null && srun -N 2 hostname | sort | tr '\n' ' '`); got !=
		"slurm-slave-0 slurm-slave-1" {
		t.Errorf("a job ran on %q", got)
	}
	if got := b.on("slurm-slave-1", "sudo ssh slurm-master hostname"); got != "slurm-master" {
		t.Errorf("from a slave to the master: %q", got)
	}
	// the members share the home directories, users of the master are known on all members, and jobs are accounted for
	b.on("slurm-master", "sudo useradd -m -u 1500 -s /bin/bash anna")
	eventuallyOn(b, "slurm-slave-1", "getent passwd anna | cut -d: -f3", "1500")
	eventuallyOn(b, "slurm-master", "sacctmgr -nP list user anna format=user,defaultaccount", "anna|users")
	b.on("slurm-master", "sudo -u anna -i sh -c 'echo from-the-master >note && "+
		"sbatch --wait -J anns -o out --wrap \"cat note\"'")
	if got := b.on("slurm-slave-0", "sudo cat /home/anna/out"); got != "from-the-master" {
		t.Errorf("a job of anna wrote %q", got)
	}
	eventuallyOn(b, "slurm-master", "sacct -anP -X --name anns -o User,State,Account", "anna|COMPLETED|users")
	// adds one slave, and removes one by its name, while a job runs elsewhere
	b.on("slurm-master", "sbatch -w slurm-slave-1 -o /dev/null --wrap 'sleep 600' >/dev/null")
	b.resize(0, 1, 2)
	b.until(cluster.Standing)
	if got := b.on("slurm-master", "srun -w slurm-slave-2 hostname"); got != "slurm-slave-2" {
		t.Errorf("on the new slave: %q", got)
	}
	b.resize(1, 2)
	b.until(cluster.Standing)
	eventuallyOn(b, "slurm-master", "sinfo -h -N -o %N | sort | tr '\n' ' '", "slurm-slave-1 slurm-slave-2")
	if got := b.on("slurm-master", "squeue -h -o '%T %N'"); got != "RUNNING slurm-slave-1" {
		t.Errorf("the job is %q", got)
	}
	names := strings.Fields(b.on("slurm-master", "awk '{print $2}' /etc/croft/peers | sort | tr '\n' ' '"))
	if !slices.Equal(names, []string{"slurm-master", "slurm-slave-1", "slurm-slave-2"}) {
		t.Errorf("the master knows %v", names)
	}
	if r := c.schedule("stop", "slurm-master"); r.exit != 5 || !strings.Contains(r.stderr, "part of cluster") {
		t.Errorf("stopping a member by itself: %v", r)
	}
	b.destroy()
	one := (before + bootTime(b, image)) / 2 // the boot time of one guest varies by a quarter
	t.Logf("one guest was set up after %.1f s, Slurm on three was idle after %.1f s: %.2f of that; all was set up after "+
		"%.1f s", one, idle, idle/one, all.Seconds())
}

// idleAfter returns how many seconds after begun the last of the slaves became idle according to sinfo, by the clocks
// of the slaves, which have a resolution of one second.
func (b *applied) idleAfter(begun time.Time, slaves ...string) (last float64) {
	b.t.Helper()
	for _, slave := range slaves {
		said := b.on(slave, "sudo journalctl -b -o short-unix -u croft-set-up --no-pager | grep 'gives jobs' | head -1")
		at, err := strconv.ParseFloat(strings.SplitN(said, " ", 2)[0], 64)
		if err != nil {
			b.t.Fatalf("%s did not say when the master gave it jobs: %q", slave, said)
		}
		last = max(last, at-float64(begun.UnixMilli())/1000)
	}
	return last
}

// eventuallyOn repeats a command on a member until it prints the wanted text.
func eventuallyOn(b *applied, member, command, want string) {
	b.t.Helper()
	got := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Second) {
		if got = b.on(member, command); got == want {
			return
		}
	}
	b.t.Errorf("%s prints %q, want %q", command, got, want)
}

// TestNFS builds a file server and a slave that mounts its share.
func TestNFS(t *testing.T) {
	t.Parallel()
	image := slurmImage(t)
	b := newAppliance(sharedCloud(t), "nfs", image, 1, map[string]any{"master_resources": memberResources,
		"slave_resources": memberResources})
	b.launch()
	b.on("nfs-slave-0", "echo written-by-$(hostname) >/srv/share/note")
	if got := b.on("nfs-master", "cat /srv/share/note"); got != "written-by-nfs-slave-0" {
		t.Errorf("the master has %q", got)
	}
	b.destroy()
}

// TestHosts builds plain machines that know each other's addresses.
func TestHosts(t *testing.T) {
	t.Parallel()
	image := slurmImage(t)
	b := newAppliance(sharedCloud(t), "hosts", image, 1, map[string]any{"resources": memberResources})
	b.launch()
	if got := b.on("hosts-master", "sudo ssh hosts-slave-0 hostname"); got != "hosts-slave-0" {
		t.Errorf("from the master to a slave: %q", got)
	}
	b.destroy()
}
