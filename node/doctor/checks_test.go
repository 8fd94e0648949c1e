package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/internal/checks"
)

// healthy returns the probes of a healthy host; tests change one answer.
func healthy() Probes {
	return Probes{
		KVM:      func(context.Context) (bool, string) { return true, "" },
		Libvirt:  func(context.Context) (string, error) { return "libvirt 9.0.0, QEMU 7.2.0", nil },
		Machines: func(context.Context) ([]croft.Trait, error) { return []croft.Trait{croft.TraitX86}, nil },
		Guests:   func(context.Context) ([]string, error) { return nil, nil },
		CutOff:   func(context.Context) ([]string, error) { return nil, nil },
		Filter:   func(context.Context) error { return nil },
		Network: func(context.Context, string) (Network, error) {
			return Network{Defined: true, Active: true, Bridge: "virbr0",
				Subnet: netip.MustParsePrefix("192.168.122.1/24")}, nil
		},
		File: files(map[string]File{
			"/dev/kvm": {Mode: 0o660, Owner: "root", Group: "kvm"}, "/dev/net/tun": {Mode: 0o666},
			"/": dir(0o755), "/var": dir(0o755), "/var/lib": dir(0o755), "/var/lib/croft": dir(0o755),
		}),
		LookPath: func(program string) (string, error) { return "/usr/bin/" + program, nil },
		Writable: func(string) error { return nil },
		DiskFree: func(string) (uint64, error) { return 100 * gib, nil },
		Memory:   func(context.Context) (uint64, uint64, error) { return 16 * gib, 24 * gib, nil },
		Links: func() ([]Link, error) {
			return []Link{link("lo", "127.0.0.1/8"), link("virbr0", "192.168.122.1/24")}, nil
		},
		Listeners:      func(context.Context) ([]Listener, error) { return nil, nil },
		MetadataServer: serves(MetadataServer{Cloud: "5d2e", Ours: true}),
		Clock: func() (Clock, error) {
			return Clock{Synchronised: true, MaxError: 20 * time.Millisecond}, nil
		},
	}
}

func serves(s MetadataServer) func(context.Context, string, int32) (MetadataServer, error) {
	return func(context.Context, string, int32) (MetadataServer, error) { return s, nil }
}

func config() Config {
	return Config{
		StateDir: "/var/lib/croft", Libvirt: true, Network: "default", VirtType: "auto", Metadata: true,
		Arch: "amd64",
		Ports: []Port{{"etcd", netip.MustParseAddrPort("127.0.0.1:2379")},
			{"Placement", netip.MustParseAddrPort("127.0.0.1:8778")}},
	}
}

func dir(mode fs.FileMode) File { return File{Mode: fs.ModeDir | mode, Owner: "root", Group: "root"} }

func files(known map[string]File) func(string) (File, error) {
	return func(path string) (File, error) {
		f, ok := known[path]
		if !ok {
			return File{}, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
		}
		return f, nil
	}
}

func with(p Probes, path string, f *File) func(string) (File, error) {
	return func(asked string) (File, error) {
		switch {
		case asked != path:
			return p.File(asked)
		case f == nil:
			return File{}, fs.ErrNotExist
		}
		return *f, nil
	}
}

func link(name, prefix string) Link {
	return Link{Name: name, Addresses: []netip.Prefix{netip.MustParsePrefix(prefix)}}
}

func listens(addr, program string, pid int32) func(context.Context) ([]Listener, error) {
	return func(context.Context) ([]Listener, error) {
		return []Listener{{Addr: netip.MustParseAddrPort(addr), Program: program, PID: pid}}, nil
	}
}

var errNo = errors.New("no such luck")

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(*Config, *Probes)
		check string
		level checks.Level
		found string // substring
		do    string // substring
	}{
		{"kvm that runs guests is fine", nil, "kvm", checks.OK, "runs guests", ""},
		{"no /dev/kvm is a warning", func(_ *Config, p *Probes) { p.File = with(healthy(), kvmDevice, nil) }, "kvm",
			checks.Warn, "/dev/kvm is not there; guests are emulated", "firmware"},
		{"no /dev/kvm fails where kvm was asked for", func(c *Config, p *Probes) {
			c.VirtType = "kvm"
			p.File = with(healthy(), kvmDevice, nil)
		}, "kvm", checks.Fail, "/dev/kvm is not there", "virt_type to auto"},
		{"no kvm at all is fine where it is not used", func(c *Config, p *Probes) {
			c.VirtType = "qemu"
			p.File = with(healthy(), kvmDevice, nil)
		}, "kvm", checks.OK, "not used", ""},
		{"a kvm that libvirt's QEMU cannot open fails", func(_ *Config, p *Probes) {
			p.File = with(healthy(), kvmDevice, &File{Mode: 0o600, Owner: "root", Group: "root"})
		}, "kvm", checks.Fail, "root:root with mode 0600", "chown root:kvm /dev/kvm && chmod 660 /dev/kvm"},
		{"a kvm open to everybody is fine", func(_ *Config, p *Probes) {
			p.File = with(healthy(), kvmDevice, &File{Mode: 0o666, Owner: "root", Group: "root"})
		}, "kvm", checks.OK, "runs guests", ""},
		{"a kvm that is only present is a warning", func(_ *Config, p *Probes) {
			p.KVM = func(context.Context) (bool, string) { return false, "the guest did not halt" }
		}, "kvm", checks.Warn, "is there and runs no guest: the guest did not halt", "nested"},

		{"an installed qemu is named", nil, "qemu", checks.OK, "/usr/bin/qemu-system-x86_64", ""},
		{"a missing program names its package", func(_ *Config, p *Probes) {
			p.LookPath = func(string) (string, error) { return "", errNo }
		}, "dnsmasq", checks.Fail, "dnsmasq is not installed", "apt-get install dnsmasq-base"},
		{"libvirt says its version", nil, "libvirt", checks.OK, "libvirt 9.0.0", ""},
		{"a libvirt that does not answer fails", func(_ *Config, p *Probes) {
			p.Libvirt = func(context.Context) (string, error) { return "", errNo }
		}, "libvirt", checks.Fail, "no such luck", "systemctl start libvirtd"},
		{"no tun device fails", func(_ *Config, p *Probes) { p.File = with(healthy(), "/dev/net/tun", nil) }, "tun",
			checks.Fail, "no network", "modprobe tun"},

		{"guests with their disks here are fine", func(_ *Config, p *Probes) {
			f := dir(0o755)
			p.File, p.Guests = with(healthy(), "/var/lib/croft/instances/a", &f), guests("a")
		}, "guests", checks.OK, "1 here", ""},
		{"guests with their disks elsewhere are a warning", func(_ *Config, p *Probes) {
			p.Guests = guests("a", "b")
		}, "guests", checks.Warn, "2 of 2 guests have their disks elsewhere than in /var/lib/croft, such as a", "host-id"},
		{"guests that cannot be listed fail", func(_ *Config, p *Probes) {
			p.Guests = func(context.Context) ([]string, error) { return nil, errNo }
		}, "guests", checks.Fail, "no such luck", "line about libvirt"},

		{"an active network says its bridge", nil,
			"network", checks.OK, "default on bridge virbr0, 192.168.122.1/24", ""},
		{"a stopped network is fine", func(_ *Config, p *Probes) { p.Network = network(Network{Defined: true}, nil) },
			"network", checks.OK, "the agent starts it", ""},
		{"a missing default network is fine", func(_ *Config, p *Probes) { p.Network = network(Network{}, nil) },
			"network", checks.OK, "defines and starts", ""},
		{"another network that is missing fails", func(c *Config, p *Probes) {
			c.Network = "lab"
			p.Network = network(Network{}, nil)
		}, "network", checks.Fail, "no network lab", "virsh net-define"},
		{"a network that cannot be asked for fails", func(_ *Config, p *Probes) {
			p.Network = network(Network{}, errNo)
		}, "network", checks.Fail, "no such luck", "line about libvirt"},
		{"a bridge of the host is looked for instead", func(c *Config, _ *Probes) {
			c.Network, c.Bridge = "", "virbr0"
		}, "bridge", checks.OK, "virbr0 192.168.122.1/24", ""},
		{"a bridge that is not there fails", func(c *Config, _ *Probes) { c.Network, c.Bridge = "", "br0" }, "bridge",
			checks.Fail, "no bridge br0", "make it"},

		{"a bridge beside the network that is not there fails", func(c *Config, _ *Probes) { c.Bridge = "br0" },
			"bridge", checks.Fail, "no bridge br0", "make it"},
		{"a bridge that guests may name is looked for", func(c *Config, _ *Probes) {
			c.Named = map[string]NamedNetwork{"lab": {Bridge: "br-lab"}}
		}, "network lab", checks.Fail, "no bridge br-lab", "make it"},
		{"a network that guests may name is looked for", func(c *Config, p *Probes) {
			c.Named, p.Network = map[string]NamedNetwork{"quiet": {Network: "isolated"}}, network(Network{}, nil)
		}, "network quiet", checks.Fail, "no network isolated", "virsh net-define"},

		{"a packet filter is fine", nil, "packet filter", checks.OK, "nftables", ""},
		{"none fails", func(_ *Config, p *Probes) { p.Filter = func(context.Context) error { return errNo } },
			"packet filter", checks.Fail, "no such luck", "apt-get install nftables"},
		{"none by choice is a warning", func(c *Config, _ *Probes) { c.Spoofing = true }, "packet filter", checks.Warn,
			"addresses of others", "set it to false"},

		{"a guest on no bridge fails", func(_ *Config, p *Probes) {
			p.CutOff = func(context.Context) ([]string, error) { return []string{"8c1d"}, nil }
		}, "guests", checks.Fail, "1 of 0 guests are cut off: an interface of theirs is on no bridge, such as one of 8c1d",
			"virsh net-start"},
		{"a free metadata address is fine", nil, "metadata", checks.OK, "169.254.169.254:80 is free", ""},
		{"croft's own metadata server is fine", func(_ *Config, p *Probes) {
			p.Listeners = listens("169.254.169.254:80", "croft", 7)
		}, "metadata", checks.OK, "process 7", ""},
		{"another cloud's metadata server fails", func(_ *Config, p *Probes) {
			p.Listeners = listens("169.254.169.254:80", "croft", 7)
			p.MetadataServer = func(_ context.Context, bridge string, pid int32) (MetadataServer, error) {
				return MetadataServer{Cloud: fmt.Sprint(bridge, pid)}, nil
			}
		}, "metadata", checks.Fail,
			"the croft of another cloud (process 7, partition virbr07) serves 169.254.169.254 on virbr0",
			"metadata.server to false"},
		{"a metadata server on another bridge does not", func(_ *Config, p *Probes) {
			p.Listeners = listens("169.254.169.254:80", "croft", 7)
			p.MetadataServer = func(context.Context, string, int32) (MetadataServer, error) {
				return MetadataServer{}, errNo
			}
		}, "metadata", checks.OK, "on another bridge", ""},
		{"the agent of another host on this machine is a warning", func(_ *Config, p *Probes) {
			p.Listeners = listens("169.254.169.254:80", "croft", 7)
			p.MetadataServer = serves(MetadataServer{Cloud: "5d2e", Ours: true, Sibling: "b7c0"})
		}, "metadata", checks.Warn, "on virbr0 as the agent of host b7c0, another one of this cloud on this machine",
			"network of its own"},
		{"an x86_64 machine runs guests", nil, "machine", checks.OK, "x86_64", ""},
		{"an aarch64 machine does so untried", func(c *Config, _ *Probes) { c.Arch = "arm64" },
			"machine", checks.Warn, "under emulation alone", "try your images"},
		{"another does not", func(c *Config, _ *Probes) { c.Arch = "riscv64" },
			"machine", checks.Fail, "this machine is riscv64",
			"hypervisor: none"},
		{"an aarch64 machine needs QEMU for it", func(c *Config, p *Probes) {
			c.Arch, p.LookPath = "arm64", func(string) (string, error) { return "", errNo }
		}, "qemu", checks.Fail, "qemu-system-aarch64 is not installed", "apt-get install qemu-system-arm"},
		{"the machines that libvirt runs are named", func(c *Config, p *Probes) {
			c.Emulated, p.Machines = croft.Archs(), func(context.Context) ([]croft.Trait, error) {
				return []croft.Trait{croft.TraitX86, croft.TraitAArch64}, nil
			}
		}, "machines", checks.OK, "x86_64, aarch64", ""},
		{"an architecture that libvirt cannot emulate fails", func(c *Config, _ *Probes) {
			c.Emulated = []croft.Arch{croft.ArchAArch64}
		}, "machines", checks.Fail, "libvirt runs no aarch64 machines",
			"apt-get install qemu-system-arm qemu-efi-aarch64, then systemctl restart libvirtd"},
		{"a web server on every address takes the metadata's", func(_ *Config, p *Probes) {
			p.Listeners = listens("[::]:80", "nginx", 7)
		}, "metadata", checks.Fail, "nginx (process 7) listens on [::]:80", "address of its own"},
		{"a web server on another address does not", func(_ *Config, p *Probes) {
			p.Listeners = listens("192.168.1.5:80", "nginx", 7)
		}, "metadata", checks.OK, "free", ""},
		{"the address on another link is a warning", func(_ *Config, p *Probes) {
			p.Links = func() ([]Link, error) { return []Link{link("eth0", "169.254.169.254/32")}, nil }
		}, "metadata", checks.Warn, "an address of eth0", "ip address del 169.254.169.254/32 dev eth0"},
		{"sockets that cannot be listed fail", func(_ *Config, p *Probes) {
			p.Listeners = func(context.Context) ([]Listener, error) { return nil, errNo }
		}, "metadata", checks.Fail, "no such luck", "root"},

		{"a state directory that is there is fine", nil, "state", checks.OK, "/var/lib/croft", ""},
		{"one that is not there yet is made", func(c *Config, _ *Probes) { c.StateDir = "/var/lib/other/croft" },
			"state", checks.OK, "/var/lib/other/croft will be made", ""},
		{"a file in its place fails", func(_ *Config, p *Probes) {
			p.File = with(healthy(), "/var/lib/croft", &File{Mode: 0o644})
		}, "state", checks.Fail, "not a directory", "--state-dir"},
		{"one that cannot be written fails", func(_ *Config, p *Probes) {
			p.Writable = func(string) error { return fs.ErrPermission }
		}, "state", checks.Fail, "permission denied", "run as root"},
		{"one below a directory closed to others fails", func(c *Config, p *Probes) {
			f := dir(0o700)
			p.File = with(healthy(), "/var/lib", &f)
		}, "state", checks.Fail, "/var/lib is closed to others", "chmod o+x /var/lib"},
		{"simulated guests need no open directory", func(c *Config, p *Probes) {
			f := dir(0o700)
			c.Libvirt, p.File = false, with(healthy(), "/var/lib", &f)
		}, "state", checks.OK, "/var/lib/croft", ""},

		{"much room is fine", nil, "disk", checks.OK, "100.0 GiB free at /var/lib/croft", ""},
		{"little room is a warning", func(_ *Config, p *Probes) {
			p.DiskFree = func(string) (uint64, error) { return 5 * gib, nil }
		}, "disk", checks.Warn, "5.0 GiB", "make room"},
		{"no room fails", func(_ *Config, p *Probes) { p.DiskFree = func(string) (uint64, error) { return gib, nil } },
			"disk", checks.Fail, "1.0 GiB", "make room"},
		{"room that cannot be asked for fails", func(_ *Config, p *Probes) {
			p.DiskFree = func(string) (uint64, error) { return 0, errNo }
		}, "disk", checks.Fail, "no such luck", ""},
		{"much memory is fine", nil, "memory", checks.OK, "16.0 GiB available of 24.0 GiB", ""},
		{"little memory is a warning", func(_ *Config, p *Probes) { p.Memory = memoryIs(gib / 2) },
			"memory", checks.Warn,
			"0.5 GiB", "end the programs that use it"},
		{"no memory fails", func(_ *Config, p *Probes) { p.Memory = memoryIs(gib / 8) },
			"memory", checks.Fail, "0.1 GiB",
			"end the programs that use it"},

		{"a free port is fine", nil, "port etcd", checks.OK, "127.0.0.1:2379 is free", ""},
		{"the running process is croft, whatever its file is called", func(c *Config, p *Probes) {
			c.Running, p.Listeners = 7, listens("127.0.0.1:2379", "croft-1.8", 7)
		}, "port etcd", checks.OK, "croft's own (process 7)", ""},
		{"the running process serves metadata, whatever its file is called", func(c *Config, p *Probes) {
			c.Running, p.Listeners = 7, listens("169.254.169.254:80", "croft-1.8", 7)
		}, "metadata", checks.OK, "croft serves 169.254.169.254 (process 7)", ""},
		{"croft's own port is fine", func(_ *Config, p *Probes) { p.Listeners = listens("127.0.0.1:2379", "croft", 7) },
			"port etcd", checks.OK, "croft's own (process 7)", ""},
		{"another's port fails", func(_ *Config, p *Probes) { p.Listeners = listens("127.0.0.1:2379", "etcd", 7) },
			"port etcd", checks.Fail, "taken by etcd (process 7)", "another address for etcd"},
		{"a socket on every address takes the port too", func(_ *Config, p *Probes) {
			p.Listeners = listens("0.0.0.0:8778", "", 0)
		}, "port Placement", checks.Fail, "a process that this user cannot see", "as root"},
		{"an invisible listener is not another's while croft runs here", func(c *Config, p *Probes) {
			c.Running = 7
			p.Listeners = listens("127.0.0.1:2379", "", 0)
		}, "port etcd", checks.OK, "croft runs with this state directory (process 7)", ""},
		{"another program's listener fails while croft runs here", func(c *Config, p *Probes) {
			c.Running = 7
			p.Listeners = listens("127.0.0.1:2379", "etcd", 8)
		}, "port etcd", checks.Fail, "taken by etcd", "stop that program"},
		{"the same port of another address is free", func(_ *Config, p *Probes) {
			p.Listeners = listens("127.0.0.9:2379", "etcd", 7)
		}, "port etcd", checks.OK, "free", ""},
		{"wanting every address, one that is taken is enough", func(c *Config, p *Probes) {
			c.Ports[0].Addr = netip.MustParseAddrPort("0.0.0.0:2379")
			p.Listeners = listens("127.0.0.9:2379", "etcd", 7)
		}, "port etcd", checks.Fail, "taken by etcd", ""},

		{"a synchronised clock is fine", nil, "clock", checks.OK, "at most 20ms", ""},
		{"a clock that runs free is a warning", func(_ *Config, p *Probes) {
			p.Clock = func() (Clock, error) { return Clock{}, nil }
		}, "clock", checks.Warn, "no time service", "chrony"},
		{"a clock that is far off is a warning", func(_ *Config, p *Probes) {
			p.Clock = func() (Clock, error) { return Clock{Synchronised: true, MaxError: 16 * time.Second}, nil }
		}, "clock", checks.Warn, "wrong by 16s", "chrony"},
		{"a clock that cannot be asked is a warning", func(_ *Config, p *Probes) {
			p.Clock = func() (Clock, error) { return Clock{}, errNo }
		}, "clock", checks.Warn, "no such luck", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, probes := config(), healthy()
			if c.setup != nil {
				c.setup(&conf, &probes)
			}
			got := find(t, checks.Run(t.Context(), Checks(conf, probes)), c.check)
			if got.Level != c.level || !strings.Contains(got.Found, c.found) || !strings.Contains(got.Do, c.do) {
				t.Errorf("got %+v, want %s, found %q, do %q", got, c.level, c.found, c.do)
			}
			if (got.Level == checks.OK) != (got.Do == "") {
				t.Errorf("%+v: what is not ok says what to do, and nothing else does", got)
			}
		})
	}
}

func network(n Network, err error) func(context.Context, string) (Network, error) {
	return func(context.Context, string) (Network, error) { return n, err }
}

func guests(ids ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) { return ids, nil }
}

func memoryIs(available uint64) func(context.Context) (uint64, uint64, error) {
	return func(context.Context) (uint64, uint64, error) { return available, 24 * gib, nil }
}

func find(t *testing.T, findings []checks.Result, check string) checks.Result {
	t.Helper()
	for _, f := range findings {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("no check %q in %+v", check, findings)
	return checks.Result{}
}

func TestAHealthyHostHasNothingToDo(t *testing.T) {
	findings := checks.Run(t.Context(), Checks(config(), healthy()))
	if !checks.Healthy(findings) {
		t.Error("not healthy")
	}
	for _, f := range findings {
		if f.Level != checks.OK {
			t.Errorf("%+v", f)
		}
	}
}

func TestClocksOfHostsAreCompared(t *testing.T) {
	if r := CompareClocks(map[string]time.Duration{"one": 0, "two": 20 * time.Second}); r.Level != checks.OK {
		t.Errorf("clocks that agree: %+v", r)
	}
	r := CompareClocks(map[string]time.Duration{"one": 0, "two": time.Hour, "three": -2 * time.Minute})
	if r.Level != checks.Warn || !strings.Contains(r.Found, "that of three is at least 2m behind, that of two is at least "+
		"1h ahead") ||
		!strings.Contains(r.Do, "chrony") {
		t.Errorf("clocks that differ: %+v", r)
	}
}

func TestASimulatedHostIsNotAskedForLibvirt(t *testing.T) {
	c := config()
	c.Libvirt, c.Metadata = false, false
	p := healthy()
	p.KVM, p.Libvirt, p.Network = nil, nil, nil
	var names []string
	for _, f := range checks.Run(t.Context(), Checks(c, p)) {
		names = append(names, f.Check)
	}
	if got, want := strings.Join(names, ","), "state,disk,memory,port etcd,port Placement,clock"; got != want {
		t.Errorf("checks %s, want %s", got, want)
	}
}

func TestHealthy(t *testing.T) {
	if !checks.Healthy([]checks.Result{{Level: checks.OK}, {Level: checks.Warn}}) {
		t.Error("a warning makes a host unhealthy")
	}
	if checks.Healthy([]checks.Result{{Level: checks.Fail}, {Level: checks.OK}}) {
		t.Error("a failure leaves a host healthy")
	}
}
