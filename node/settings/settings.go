// Package settings has the settings of the programs on hosts: croft up, compute, mdserver, placement and pool
// serve. It reads them strictly, once, from compute.yaml, the environment and flags, and derives the
// configurations of other packages; it starts nothing.
package settings

import (
	"cmp"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/compute/image"
	"croft/compute/pci"
	"croft/control/actions"
	"croft/control/cloud/direct"
	"croft/internal/egress"
	"croft/internal/redact"
	"croft/internal/settings"
	"croft/internal/traces"
	"croft/internal/wording"
	"croft/placement"
	poolserver "croft/pool/server"
	"croft/schedule"
	"croft/trust"
	"croft/trust/pki"
)

// Settings are the settings of compute.yaml; compute.yaml.example explains each.
type Settings struct {
	StateDir string `yaml:"state_dir"`

	Host struct {
		Name     string `yaml:"name"`
		Location string `yaml:"location"`
		Fence    string `yaml:"fence"`
	} `yaml:"host"`

	Etcd struct {
		direct.EtcdSettings `yaml:",inline"`

		Listen         string `yaml:"listen"`
		PeerListen     string `yaml:"peer_listen"`
		ListenCert     string `yaml:"listen_cert"`
		ListenKey      string `yaml:"listen_key"`
		ListenClientCA string `yaml:"listen_client_ca"`
		Insecure       bool   `yaml:"insecure"`
	} `yaml:"etcd"`

	Join struct {
		Listen          string        `yaml:"listen"`
		CertificateLife time.Duration `yaml:"certificate_life"`
	} `yaml:"join"`

	Trust string `yaml:"trust"`

	Placement struct {
		direct.PlacementSettings `yaml:",inline"`

		Listen   string   `yaml:"listen"`
		Keystone Keystone `yaml:"keystone"`

		ConsistentReads string `yaml:"consistent_reads"`
		Randomize       bool   `yaml:"randomize"`
		AccessLog       bool   `yaml:"access_log"`
	} `yaml:"placement"`

	API struct {
		Listen string `yaml:"listen"`
	} `yaml:"api"`

	CloudAPI struct {
		Listen string `yaml:"listen"`
		Socket string `yaml:"socket"`
		Cert   string `yaml:"cert"`
		Key    string `yaml:"key"`

		Address string `yaml:"address"`

		ImageSources []string `yaml:"image_sources"`
		ActionsTo    string   `yaml:"actions_to"`

		Pools direct.PoolSettings `yaml:"pools"`

		OIDC     OIDC    `yaml:"oidc"`
		Keystone Tenants `yaml:"keystone"`
	} `yaml:"cloud_api"`

	Clusters struct {
		Enabled           bool     `yaml:"enabled"`
		CredentialKeyFile []string `yaml:"credential_key_file"`
		AllowedIP         string   `yaml:"allowed_ip"`
		CallNetworks      []string `yaml:"call_networks"`
	} `yaml:"clusters"`

	Hypervisor string `yaml:"hypervisor"`
	Libvirt    struct {
		URI              string        `yaml:"uri"`
		VirtType         string        `yaml:"virt_type"`
		StopGrace        time.Duration `yaml:"stop_grace"`
		EmulatorCacheMiB int           `yaml:"emulator_cache_mib"`
		AllowSpoofing    bool          `yaml:"allow_spoofing"`

		EmulatedArchitectures []croft.Arch `yaml:"emulated_architectures"`
	} `yaml:"libvirt"`
	Sim struct {
		Boot  time.Duration `yaml:"boot"`
		Sysfs string        `yaml:"sysfs"`

		Architectures []croft.Arch `yaml:"architectures"`
	} `yaml:"sim"`

	Network struct {
		Name   string `yaml:"name"`
		Bridge string `yaml:"bridge"`
	} `yaml:"network"`

	Networks map[string]Network `yaml:"networks"`

	Storage struct {
		Shared map[string]SharedStorage `yaml:"shared"`
	} `yaml:"storage"`

	Metadata struct {
		Server bool `yaml:"server"`
		Disk   bool `yaml:"disk"`

		Listen string `yaml:"listen"`

		VendorData string `yaml:"vendor_data"`
		Passwords  bool   `yaml:"passwords"`
	} `yaml:"metadata"`

	ServerNames []string `yaml:"server_names"`

	Metrics struct {
		TokenFile string `yaml:"token_file"`
	} `yaml:"metrics"`

	Traces traces.Settings `yaml:"traces"`

	Offer struct {
		VCPURatio         float64  `yaml:"vcpu_ratio"`
		MemoryRatio       float64  `yaml:"memory_ratio"`
		DiskRatio         float64  `yaml:"disk_ratio"`
		ReservedVCPUs     int64    `yaml:"reserved_vcpus"`
		ReservedMemoryMiB int64    `yaml:"reserved_memory_mib"`
		ReservedDiskGiB   int64    `yaml:"reserved_disk_gib"`
		Traits            []string `yaml:"traits"`
	} `yaml:"offer"`

	PCI []string `yaml:"pci"`

	Images struct {
		CacheGiB       int64    `yaml:"cache_gib"`
		AllowFiles     []string `yaml:"allow_files"`
		AllowRedirects []string `yaml:"allow_redirects"`
		CallNetworks   []string `yaml:"call_networks"`
		Proxy          string   `yaml:"proxy"`
	} `yaml:"images"`

	Pool struct {
		File     string `yaml:"file"`
		Logs     string `yaml:"logs"`
		Listen   string `yaml:"listen"`
		Address  string `yaml:"address"`
		Page     string `yaml:"page"`
		Tokens   string `yaml:"tokens"`
		Cert     string `yaml:"cert"`
		Key      string `yaml:"key"`
		CA       string `yaml:"ca"`
		Insecure bool   `yaml:"insecure"`
		History  int    `yaml:"history"`

		Quota struct {
			Open int     `yaml:"open"`
			Rate float64 `yaml:"rate"`
		} `yaml:"quota"`
	} `yaml:"pool"`

	Expiry struct {
		Hook []string `yaml:"hook"`
	} `yaml:"expiry"`

	MaxBuilds int           `yaml:"max_builds"`
	Resync    time.Duration `yaml:"resync"`
	Sweep     time.Duration `yaml:"sweep"`
	LogLevel  string        `yaml:"log_level"`
}

// longestLife bounds the life of certificates.
const longestLife = 365 * 24 * time.Hour

// longestRound bounds the intervals of a host's periodic work.
const longestRound = 24 * time.Hour

// Network is a network that guests may name: either Network or Bridge is set.
type Network struct {
	Network string `yaml:"network"` // libvirt's
	Bridge  string `yaml:"bridge"`  // of the host
	// the projects whose instances may use it; nil: see croft.NetworkProjects
	Projects []croft.Project `yaml:"projects"`
}

// SharedStorage is a directory that several hosts mount.
type SharedStorage struct {
	Path string `yaml:"path"`
}

// Defaults returns the default settings.
func Defaults() Settings {
	var s Settings
	s.StateDir = direct.DefaultStateDir()
	s.Etcd.Endpoints = []string{} // see Reach
	s.Etcd.Listen = "127.0.0.1:2379"
	s.Join.CertificateLife = pki.Life
	s.Trust = trust.Direct
	s.Placement.Token = direct.DefaultToken
	s.Placement.Keystone.ReaderProjects = []string{}
	s.Placement.Listen = "127.0.0.1:8778"
	s.Placement.ConsistentReads = string(placement.ConsistentClaims)
	s.Placement.Randomize = true
	s.API.Listen = "127.0.0.1:8779"
	s.CloudAPI.Listen = "127.0.0.1:8781"
	s.CloudAPI.ImageSources = []string{"https://", "http://"}
	s.CloudAPI.Pools.Endpoints = []string{}
	s.CloudAPI.OIDC = OIDC{UserClaim: "preferred_username", GroupsClaim: "groups", Groups: []string{}}
	s.CloudAPI.Keystone = Tenants{Projects: []string{}, Roles: []string{}, Operators: []string{}}
	s.Clusters.Enabled = true
	s.Clusters.CredentialKeyFile = []string{}
	s.Clusters.CallNetworks = []string{}
	s.Hypervisor = "libvirt"
	s.Libvirt.URI = "qemu:///system"
	s.Libvirt.VirtType = "auto"
	s.Libvirt.StopGrace = time.Minute
	s.Libvirt.EmulatorCacheMiB = 128
	s.Sim.Boot = 2 * time.Second
	s.Sim.Sysfs = pci.DefaultRoot
	s.Network.Name = "default"
	s.Networks = map[string]Network{}
	s.Storage.Shared = map[string]SharedStorage{}
	s.Metadata.Server = true
	s.Metadata.Listen = "127.0.0.1:8780"
	s.ServerNames = []string{}
	s.Offer.VCPURatio, s.Offer.MemoryRatio, s.Offer.DiskRatio = 4, 1, 1
	s.Offer.ReservedMemoryMiB = 512
	s.PCI = []string{}
	s.Images.CacheGiB = 64
	s.Images.AllowFiles = []string{"/"}
	s.Images.AllowRedirects = []string{}
	s.Images.CallNetworks = []string{}
	s.Pool.Listen = "127.0.0.1:49100"
	s.Pool.History = 10000
	s.Pool.Quota.Open, s.Pool.Quota.Rate = poolserver.DefaultQuota.Open, poolserver.DefaultQuota.Rate
	s.Expiry.Hook = []string{}
	s.MaxBuilds = 4
	s.Resync = 30 * time.Second
	s.Sweep = time.Minute
	s.LogLevel = "info"
	return s
}

// isOrigin reports whether an address is empty, or the https:// or http:// address of a server.
func isOrigin(address string) bool {
	u, err := url.Parse(address)
	return address == "" || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" &&
		address == u.Scheme+"://"+u.Host
}

// Validate refuses settings with which no part could work. Invalid.
func (s *Settings) Validate() error {
	invalid := func(format string, args ...any) error { return croft.Errorf(croft.Invalid, format, args...) }
	switch {
	case s.StateDir == "":
		return invalid("state_dir is empty: name a directory")
	case !slices.Contains([]string{"libvirt", "sim", NoHypervisor}, s.Hypervisor):
		return invalid("hypervisor is %q: use libvirt, sim or none", s.Hypervisor)
	case s.Network.Name == "" && s.Network.Bridge == "" && s.Hypervisor == "libvirt":
		return invalid("network.name and network.bridge are both empty: guests need one of them")
	case slices.ContainsFunc([]float64{s.Offer.VCPURatio, s.Offer.MemoryRatio, s.Offer.DiskRatio},
		func(ratio float64) bool { return !(ratio > 0 && ratio <= croft.MaxAllocationRatio) }):
		return invalid("offer: the ratios must be greater than 0, and at most %d", croft.MaxAllocationRatio)
	case s.Offer.ReservedVCPUs < 0 || s.Offer.ReservedMemoryMiB < 0 || s.Offer.ReservedDiskGiB < 0:
		return invalid("offer: reserved amounts cannot be negative")
	case !slices.Contains([]string{"none", "claims", "all"}, s.Placement.ConsistentReads):
		return invalid("placement.consistent_reads is %q: use none, claims or all", s.Placement.ConsistentReads)
	case s.Trust != trust.Direct && s.Trust != trust.Strict:
		return invalid("trust is %q: use direct or strict", s.Trust)
	case s.Join.CertificateLife < time.Minute || s.Join.CertificateLife > longestLife:
		return invalid("join.certificate_life is %s: use something between 1m and %s",
			wording.Duration(s.Join.CertificateLife),
			wording.Duration(longestLife))
	case s.Pool.Quota.Open < 1 || !(s.Pool.Quota.Rate > 0):
		return invalid("pool.quota is %d tickets and %g a second: use numbers greater than 0", s.Pool.Quota.Open,
			s.Pool.Quota.Rate)
	case s.Pool.History < 1:
		return invalid("pool.history is %d: use 1 or more", s.Pool.History)
	case s.Host.Fence != "" && !filepath.IsAbs(s.Host.Fence):
		return invalid("host.fence is %q, which is not an absolute path of a file", s.Host.Fence)
	case len(s.Expiry.Hook) > 0 && !filepath.IsAbs(s.Expiry.Hook[0]):
		return invalid("expiry.hook has %q, which is not the absolute path of a program", s.Expiry.Hook[0])
	case s.MaxBuilds < 1:
		return invalid("max_builds is %d: use 1 or more", s.MaxBuilds)
	case s.Resync <= 0 || s.Sweep <= 0:
		return invalid("resync and sweep must be longer than 0")
	case s.Resync > longestRound || s.Sweep > longestRound:
		return invalid("resync is %s and sweep %s: use at most %s, so that faults are noticed in time",
			wording.Duration(s.Resync),
			wording.Duration(s.Sweep), wording.Duration(longestRound))
	case actions.CheckTarget(s.CloudAPI.ActionsTo) != nil:
		return invalid("cloud_api.actions_to: %w", actions.CheckTarget(s.CloudAPI.ActionsTo))
	case s.CloudAPI.Socket != "" && !filepath.IsAbs(s.CloudAPI.Socket):
		return invalid("cloud_api.socket is %q, which is not an absolute path", s.CloudAPI.Socket)
	case (s.CloudAPI.Cert == "") != (s.CloudAPI.Key == ""):
		return invalid("cloud_api.cert and cloud_api.key go together: set both, or neither")
	case !isOrigin(s.CloudAPI.Address):
		return invalid("cloud_api.address is %q: use https:// and a name, such as https://cloud.example:8781, without a path",
			redact.Address(s.CloudAPI.Address))
	case s.Libvirt.StopGrace <= 0 || s.Libvirt.StopGrace > longestRound:
		return invalid("libvirt.stop_grace is %s: use something between 1s and %s",
			wording.Duration(s.Libvirt.StopGrace), wording.Duration(longestRound))
	case s.Sim.Boot < 0 || s.Sim.Boot > longestRound:
		return invalid("sim.boot is %s: use something between 0s and %s", wording.Duration(s.Sim.Boot),
			wording.Duration(longestRound))
	case !filepath.IsAbs(s.Sim.Sysfs):
		return invalid("sim.sysfs is %q, which is not the absolute path of a directory", s.Sim.Sysfs)
	case s.Images.CacheGiB < 1:
		return invalid("images.cache_gib is %d: use 1 or more", s.Images.CacheGiB)
	}
	if i := slices.IndexFunc(s.Images.AllowFiles, func(dir string) bool { return !filepath.IsAbs(dir) }); i >= 0 {
		return invalid("images.allow_files has %q, which is not an absolute path of a directory", s.Images.AllowFiles[i])
	}
	for _, trait := range s.Offer.Traits {
		if _, err := schedule.ParseTrait(trait); err != nil {
			return invalid("offer.traits: %w", err)
		}
	}
	if _, err := s.ForPCI(); err != nil {
		return err
	}
	if _, err := image.ParseNetworks(s.Images.AllowRedirects); err != nil {
		return invalid("images.allow_redirects: %w", err)
	}
	if _, err := egress.ParseProxy(s.Images.Proxy); err != nil {
		return invalid("images.proxy: %w", err)
	}
	if _, err := image.ParseSources(s.CloudAPI.ImageSources); err != nil {
		return invalid("cloud_api.image_sources: %w", err)
	}
	err := cmp.Or(s.checkNetworks(), s.checkStorage(), s.checkClusters(), s.Placement.Keystone.validate(),
		s.Traces.Check())
	if err != nil {
		return err
	}
	if _, err := s.Level(); err != nil {
		return invalid("log_level is %q: use debug, info, warn or error", s.LogLevel)
	}
	return nil
}

func (s *Settings) Level() (slog.Level, error) {
	var level slog.Level
	err := level.UnmarshalText([]byte(s.LogLevel))
	return level, err
}

// FileName is the name of the settings file of hosts.
const FileName = "compute.yaml"

// renamed maps setting names of the previous version to their new names; this version still reads both.
var renamed = map[string]string{"control": "join"}

// Load reads the settings: flags (given, by the paths of settings) override the environment, which overrides the file,
// which overrides the defaults. If file is empty, Load searches for it. Load returns the name of the file and warnings
// about former names. Invalid.
func Load(defaults Settings, file string, given map[string]string) (s Settings, from string, warnings []string,
	err error) {
	s, from, err = settings.Load(defaults, settings.Source{
		Name: FileName, File: file, Flags: given, Former: direct.FormerSettings,
		Renamed: renamed, Warn: func(words string) { warnings = append(warnings, words) },
	})
	if err != nil {
		return s, from, nil, err
	}
	if s.StateDir, err = filepath.Abs(strings.TrimSpace(s.StateDir)); err != nil {
		return s, from, nil, croft.Errorf(croft.Invalid, "state_dir: %w", err)
	}
	return s, from, warnings, nil
}

// EnvNames lists the environment variables of the settings, including former names.
func EnvNames() []string { return settings.EnvNames(Defaults(), renamed) }

// checkNetworks refuses networks that no guest could use.
func (s *Settings) checkNetworks() error {
	for _, name := range slices.Sorted(maps.Keys(s.Networks)) {
		if err := croft.CheckNetworkName(name); err != nil {
			return croft.Errorf(croft.Invalid, "networks: %w", err)
		}
		n := s.Networks[name]
		switch {
		case name == croft.DefaultNetworks:
			return croft.Errorf(croft.Invalid,
				"networks.%s: that name means the networks of the setting network: take another", name)
		case (n.Network == "") == (n.Bridge == ""):
			return croft.Errorf(croft.Invalid,
				"networks.%s: name either a network of libvirt (network) or a bridge of this host (bridge)", name)
		}
		for _, p := range n.Projects {
			if p == croft.EveryProject {
				continue
			}
			if err := p.Check(); err != nil {
				return croft.Errorf(croft.Invalid, "networks.%s.projects: %w; or use %q for all projects", name, err,
					string(croft.EveryProject))
			}
		}
	}
	return nil
}

// checkStorage refuses shared storage that no host could use.
func (s *Settings) checkStorage() error {
	at := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.Storage.Shared)) {
		path := filepath.Clean(s.Storage.Shared[name].Path)
		switch {
		case name == croft.StorageLocal || name == croft.StorageShared:
			return croft.Errorf(croft.Invalid, "storage.shared.%s: requests use that word for any storage of its kind: take "+
				"another name", name)
		case schedule.CheckStorage(croft.InstanceSettings{Storage: name}, "", 0) != nil || name == "":
			return croft.Errorf(croft.Invalid, "storage.shared.%s: a name has 1 to 63 of a to z, 0 to 9, dots, dashes and "+
				"underscores, and begins with a letter or digit", name)
		case !filepath.IsAbs(path) || path == "/":
			return croft.Errorf(croft.Invalid, "storage.shared.%s.path is %q: give the absolute path of a directory that "+
				"several hosts mount", name, s.Storage.Shared[name].Path)
		case at[path] != "":
			return croft.Errorf(croft.Invalid, "storage.shared.%s.path is that of %s too: each storage has a directory of its "+
				"own", name, at[path])
		}
		at[path] = name
	}
	return nil
}

// checkClusters refuses settings with which no cluster could be built.
func (s *Settings) checkClusters() error {
	for _, file := range s.Clusters.CredentialKeyFile {
		if !filepath.IsAbs(file) {
			return croft.Errorf(croft.Invalid, "clusters.credential_key_file has %q, which is not an absolute path", file)
		}
	}
	if _, err := image.ParseNetworks(s.Clusters.CallNetworks); err != nil {
		return croft.Errorf(croft.Invalid, "clusters.call_networks: %w", err)
	}
	if s.Clusters.AllowedIP == "" {
		return nil
	}
	if _, err := netip.ParsePrefix(s.Clusters.AllowedIP); err != nil {
		return croft.Errorf(croft.Invalid, "clusters.allowed_ip is %q: use a prefix such as 203.0.113.7/32",
			s.Clusters.AllowedIP)
	}
	return nil
}
