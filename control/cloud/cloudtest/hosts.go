package cloudtest

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/control/api"
	"croft/hosts/audit"
	"croft/internal/testing/patient"
	"croft/schedule"
)

func (s *suite) hosts() {
	s.running("web")
	list, err := s.Client.ListHosts(s.ctx)
	s.must(err)
	all := list.Hosts
	if len(all) != 1 || all[0].Name != s.Host || !all[0].Alive || all[0].Count != 1 || all[0].Claimed[croft.VCPU] != 1 {
		s.Fatalf("got %+v", all)
	}
	for _, name := range []string{s.Host, string(all[0].ID)} {
		h, err := s.host(name)
		if err != nil || h.ID != all[0].ID || len(h.Statuses) != 1 {
			s.Errorf("%s: got %+v, %v", name, h, err)
		}
	}
	_, err = s.host("nobody")
	s.is(err, croft.NotFound, "an unknown host")
	if names, err := s.Client.HostNames(s.ctx); err != nil || len(names) != 1 || names[all[0].ID] != s.Host {
		s.Errorf("the names are %v, %v", names, err)
	}
	if len(list.Problems) > 0 || list.Incomplete() != nil {
		s.Errorf("a cloud that is well has problems: %q, %v", list.Problems, list.Incomplete())
	}
}

// host reads a host.
func (s *suite) host(name string) (api.Host, error) {
	return s.Client.GetHost(s.ctx, api.HostNamed{ID: name})
}

func (s *suite) maintenance() {
	s.running("web")
	c, named, nobody := s.Client, api.HostNamed{ID: s.Host}, api.HostNamed{ID: "nobody"}
	h, err := c.DrainHost(s.ctx, named)
	s.must(err)
	_, err = s.request("db")
	s.is(err, croft.NoCapacity, "a request while the only host is drained")
	list, err := c.EmptyHost(s.ctx, api.HostEmptying{HostNamed: named})
	if err != nil || len(list.Moves) != 1 || list.Moves[0].To != "" || list.Moves[0].Stays == "" {
		s.Errorf("what is not ephemeral stays: got %+v, %v", list, err)
	}
	_, err = c.EnableHost(s.ctx, api.HostNamed{ID: string(h.ID)})
	s.must(err)
	_, err = s.request("db")
	s.must(err)
	_, err = c.ForgetHost(s.ctx, api.HostRemoval{HostNamed: named})
	s.is(err, croft.Conflict, "forgetting a host that is alive")
	for what, do := range map[string]func(context.Context, api.HostNamed) (api.Host, error){
		"drain": c.DrainHost, "enable": c.EnableHost, "accept": c.AcceptHost,
	} {
		_, err := do(s.ctx, nobody)
		s.is(err, croft.NotFound, what)
	}
	_, err = c.ForgetHost(s.ctx, api.HostRemoval{HostNamed: nobody, Force: true})
	s.is(err, croft.NotFound, "forget")
}

func (s *suite) silence() {
	web := s.running("web")
	s.Silence()
	h, err := s.host(s.Host)
	s.must(err)
	if h.Alive || h.State != "silent" {
		s.Errorf("it is %s", h.State)
	}
	_, err = s.pull("/images/tiny.qcow2")
	s.is(err, croft.Unavailable, "an image for a silent host")
	removal := api.HostRemoval{HostNamed: api.HostNamed{ID: s.Host}}
	_, err = s.Client.ForgetHost(s.ctx, removal)
	s.is(err, croft.Conflict, "forgetting a host with an instance")
	removal.Force = true
	h, err = s.Client.ForgetHost(s.ctx, removal)
	if err != nil || len(h.Lost) != 1 || h.Lost[0].ID != web.ID || h.Lost[0].Name != "web" ||
		h.Lost[0].Project != web.Project {
		s.Errorf("forgetting it lost %+v, %v; want web", h.Lost, err)
	}
	_, err = s.host(s.Host)
	s.is(err, croft.NotFound, "a host that is forgotten")
	s.lost(web)
}

// lost checks that an instance for which there is no host stays lost, and keeps its record, until it is destroyed.
func (s *suite) lost(was api.Instance) {
	for range 2 {
		now, err := s.find(croft.DefaultProject, "web")
		if err != nil || now.ID != was.ID || now.State != string(croft.StateLost) || now.Lost == nil ||
			now.Image != was.Image {
			s.Fatalf("it is %+v, %v", now, err)
		}
		all, err := s.list(croft.DefaultProject)
		if err != nil || len(all) != 1 || all[0].State != string(croft.StateLost) {
			s.Errorf("listed are %+v, %v", all, err)
		}
		_, err = s.Client.RecreateInstance(s.ctx, named("web"))
		s.is(err, croft.NoCapacity, "recreating it without hosts")
		_, err = s.Client.StartInstance(s.ctx, named("web"))
		s.is(err, croft.Conflict, "starting it")
		s.is(s.await(now, schedule.Running), croft.Conflict, "waiting for it")
	}
	if was, err := s.destroy("web"); err != nil || !was.Gone {
		s.Errorf("destroying it: %+v, %v", was, err)
	}
	_, err := s.find(croft.DefaultProject, "web")
	s.is(err, croft.NotFound, "a lost instance that was destroyed")
}

// publicKey is a line of authorized_keys whose private key no longer exists.
const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAION7DmGzIsytHqWf8A/mY9PxPo3j3f5QeRbpQCbSc0pw anna"

func (s *suite) keys() {
	k := api.NewKey{Name: "laptop", Line: publicKey}
	_, err := s.Client.AddKey(s.ctx, k)
	s.must(err)
	_, err = s.Client.AddKey(s.ctx, k)
	s.is(err, croft.Conflict, "a name that is taken")
	for project, want := range map[croft.Project]int{croft.DefaultProject: 1, "another": 0} {
		list, err := s.Client.ListKeys(s.ctx, api.InProject{Project: project})
		if all := list.Keys; err != nil || len(all) != want || want == 1 && all[0].Line != k.Line {
			s.Errorf("project %q: got %v, %v", project, all, err)
		}
	}
	s.must(s.Client.RemoveKey(s.ctx, api.KeyNamed{Name: "laptop"}))
	s.is(s.Client.RemoveKey(s.ctx, api.KeyNamed{Name: "laptop"}), croft.NotFound, "a key that is gone")
}

// pull makes the host fetch an image.
func (s *suite) pull(image string) (*compute.Pulled, error) {
	return s.Client.PullImage(s.ctx, api.NewImage{HostNamed: api.HostNamed{ID: s.Host}, Image: image},
		func(croft.Progress) {})
}

func (s *suite) images() {
	catalog, err := s.Client.ListImages(s.ctx)
	if err != nil || !slices.ContainsFunc(catalog.Images, func(i api.Image) bool { return i.Name == "debian-12" }) {
		s.Errorf("the catalog is %+v, %v", catalog, err)
	}
	got, err := s.pull("/images/tiny.qcow2")
	if err != nil || got.Format == "" {
		s.Errorf("got %+v, %v", got, err)
	}
	const ref = "/images/tiny.qcow2"
	named := api.HostNamed{ID: s.Host}
	list, err := s.Client.ListHostImages(s.ctx, named)
	held := list.Images
	if err != nil || len(held) != 1 || len(held[0].References) != 1 ||
		strings.TrimPrefix(held[0].References[0], "file://") != ref || held[0].SHA256 == "" {
		s.Errorf("held are %+v, %v", held, err)
	}
	removed, err := s.Client.RemoveHostImages(s.ctx, api.HostImage{HostNamed: named, Image: ref})
	if err != nil || len(removed.Images) != 1 || removed.Images[0].SHA256 != held[0].SHA256 {
		s.Errorf("removed are %+v, %v", removed, err)
	}
	_, err = s.Client.RemoveHostImages(s.ctx, api.HostImage{HostNamed: named, Image: held[0].SHA256})
	s.is(err, croft.NotFound, "an image that is removed")
	removed, err = s.Client.RemoveHostImages(s.ctx, api.HostImage{HostNamed: named})
	if err != nil || len(removed.Images) > 0 {
		s.Errorf("of nothing, %+v is removed, %v", removed, err)
	}
	_, err = s.pull("/images/broken.qcow2")
	s.is(err, croft.Invalid, "an image that is broken")
	if err != nil && !strings.Contains(err.Error(), s.Host) {
		s.Errorf("%v does not name the host", err)
	}
}

func (s *suite) audit() {
	s.running("web")
	for _, look := range []func(context.Context) (audit.Report, error){s.Client.AuditCloud, s.Client.RepairCloud} {
		report, err := look(s.ctx)
		if err != nil || len(report.Differences) > 0 || len(report.Unchecked) > 0 {
			s.Errorf("got %+v, %v", report, err)
		}
	}
}

func countsAreCompared(s *suite) {
	s.running("web")
	if found, err := s.Client.CheckQuotas(s.ctx); err != nil || len(found.Discrepancies) > 0 {
		s.Errorf("found %+v, %v", found, err)
	}
	project := api.ProjectNamed{Project: croft.DefaultProject}
	_, err := s.Client.RecountQuota(s.ctx, project)
	s.must(err)
	account, err := s.Client.GetQuota(s.ctx, project)
	if err != nil || account.Used["instances"] != 1 {
		s.Errorf("counted are %+v, %v", account, err)
	}
}

func (s *suite) load() {
	web := s.running("web")
	list, err := s.Client.ListHosts(s.ctx)
	if err != nil || len(list.Hosts) != 1 || list.Hosts[0].Claimed[croft.VCPU] != 1 ||
		list.Hosts[0].Offered[croft.VCPU] != Room {
		s.Errorf("the hosts are %+v, %v", list, err)
	}
	used, err := s.Client.ListUsages(s.ctx, api.HostNamed{ID: s.Host})
	if err != nil || len(used.Usages) != 1 || used.Usages[0].Instance != web.ID {
		s.Errorf("usages are %+v, %v", used, err)
	}
	patient.Until(s, "the usage of the instance is measured", func() bool {
		h, err := s.Client.GetInstanceUsage(s.ctx, api.InstanceNamed{ID: string(web.ID)})
		return err == nil && len(h.Hour.Points) > 0 && len(h.Day.Points) > 0 && h.Hour.Points[0].Processor != nil
	})
}

func (s *suite) tokens() {
	made, err := s.invite(api.NewInvitation{Note: "rack 7"})
	s.must(err)
	if left := time.Until(made.Expires); made.Token == "" || made.Name == "" || left < 50*time.Minute ||
		left > time.Hour {
		s.Errorf("got %+v", made)
	}
	list, err := s.Client.ListInvitations(s.ctx)
	if all := list.Invitations; err != nil || len(all) != 1 || all[0].Name != made.Name || all[0].Note != "rack 7" ||
		all[0].Token != "" {
		s.Errorf("the list is %+v, %v", all, err)
	}
	host, err := s.host(s.Host)
	s.must(err)
	again, err := s.invite(api.NewInvitation{Host: s.Host})
	if err != nil || again.Host != host.ID {
		s.Errorf("a token for a host is %+v, %v", again, err)
	}
	if ended, err := s.Client.RevokeInvitation(s.ctx, api.InvitationNamed{Name: again.Name}); err != nil ||
		ended.Host != host.ID {
		s.Errorf("revoked, it is %+v, %v", ended, err)
	}
	_, err = s.invite(api.NewInvitation{Host: "nobody"})
	s.is(err, croft.NotFound, "a token for an unknown host")
	ended, err := s.Client.RevokeInvitation(s.ctx, api.InvitationNamed{Name: made.Name[:8]})
	if err != nil || ended.Name != made.Name {
		s.Errorf("revoked %+v, %v", ended, err)
	}
	_, err = s.Client.RevokeInvitation(s.ctx, api.InvitationNamed{Name: made.Name})
	s.is(err, croft.NotFound, "a token that is revoked")
}

func (s *suite) snapshot() {
	var text bytes.Buffer
	size, err := s.Client.Snapshot(s.ctx, &text)
	if err != nil || size == 0 || size != int64(text.Len()) {
		s.Errorf("%d bytes, said to be %d, %v", text.Len(), size, err)
	}
}
