package cloudtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/control/cloud"
	"croft/hosts/audit"
	"croft/schedule"
)

func (s *suite) hosts() {
	s.running("web")
	all, err := s.Cloud.Hosts.List(s.ctx)
	s.must(err)
	if len(all) != 1 || all[0].Name != s.Host || !all[0].Alive || all[0].Count != 1 || all[0].Claimed[croft.VCPU] != 1 {
		s.Fatalf("got %+v", all)
	}
	for _, name := range []string{s.Host, string(all[0].ID)} {
		h, err := s.Cloud.Hosts.Find(s.ctx, name)
		if err != nil || h.ID != all[0].ID || len(h.Instances) != 1 {
			s.Errorf("%s: got %+v, %v", name, h, err)
		}
		if h, err := cloud.HostCalled(s.ctx, s.Cloud.Hosts, name); err != nil || h.ID != all[0].ID {
			s.Errorf("%s is called %s, %v", name, h.ID, err)
		}
	}
	_, err = s.Cloud.Hosts.Find(s.ctx, "nobody")
	s.is(err, croft.NotFound, "an unknown host")
	_, err = cloud.HostCalled(s.ctx, s.Cloud.Hosts, "nobody")
	s.is(err, croft.NotFound, "an unknown name")
	if found, err := s.Cloud.Hosts.Records(s.ctx, all[0].ID, croft.NewHostID()); err != nil || len(found) != 1 {
		s.Errorf("one of two is there: got %v, %v", found, err)
	}
	if problems := s.Cloud.Hosts.Problems(s.ctx); len(problems) > 0 {
		s.Errorf("a cloud that is well has problems: %q", problems)
	}
}

func (s *suite) maintenance() {
	s.running("web")
	all, err := s.Cloud.Hosts.List(s.ctx)
	s.must(err)
	h, err := s.Cloud.Maintenance.Drain(s.ctx, s.Host)
	s.must(err)
	_, err = s.request("db")
	s.is(err, croft.NoCapacity, "a request while the only host is drained")
	moved, err := s.Cloud.Maintenance.MoveAll(s.ctx, all[0])
	if err != nil || len(moved) != 1 || moved[0].To.ID != "" || moved[0].Stays == "" {
		s.Errorf("what is not ephemeral stays: got %+v, %v", moved, err)
	}
	_, err = s.Cloud.Maintenance.Enable(s.ctx, string(h.ID))
	s.must(err)
	_, err = s.request("db")
	s.must(err)
	_, err = s.Cloud.Maintenance.Forget(s.ctx, s.Host, false)
	s.is(err, croft.Conflict, "forgetting a host that is alive")
	for what, do := range map[string]func() error{
		"drain":  func() error { _, err := s.Cloud.Maintenance.Drain(s.ctx, "nobody"); return err },
		"enable": func() error { _, err := s.Cloud.Maintenance.Enable(s.ctx, "nobody"); return err },
		"accept": func() error { _, err := s.Cloud.Maintenance.Accept(s.ctx, "nobody"); return err },
		"forget": func() error { _, err := s.Cloud.Maintenance.Forget(s.ctx, "nobody", true); return err },
	} {
		s.is(do(), croft.NotFound, what)
	}
}

func (s *suite) silence() {
	web := s.running("web")
	s.Silence()
	h, err := s.Cloud.Hosts.Find(s.ctx, s.Host)
	s.must(err)
	if h.Alive || h.State() != "silent" {
		s.Errorf("it is %s", h.State())
	}
	_, err = s.Cloud.Images.Pull(s.ctx, h.Host, "tiny", "/images/tiny.qcow2", func(croft.Progress) {})
	s.is(err, croft.Unavailable, "an image for a silent host")
	_, err = s.Cloud.Maintenance.Forget(s.ctx, s.Host, false)
	s.is(err, croft.Conflict, "forgetting a host with an instance")
	h, err = s.Cloud.Maintenance.Forget(s.ctx, s.Host, true)
	if err != nil || len(h.Lost) != 1 || h.Lost[0].ID != web.Instance.ID || h.Lost[0].Name != "web" ||
		h.Lost[0].Project != web.Instance.Project {
		s.Errorf("forgetting it lost %+v, %v; want web", h.Lost, err)
	}
	_, err = s.Cloud.Hosts.Find(s.ctx, s.Host)
	s.is(err, croft.NotFound, "a host that is forgotten")
	s.lost(web)
}

// lost checks that an instance for which there is no host stays lost, and keeps its record, until it is destroyed.
func (s *suite) lost(was croft.Status) {
	for range 2 {
		st, err := s.Cloud.Instances.Find(s.ctx, croft.DefaultProject, "web")
		if err != nil || st.Instance.ID != was.Instance.ID || st.Instance.State != croft.StateLost ||
			st.Instance.Lost == nil || st.Instance.Spec.Image != was.Instance.Spec.Image {
			s.Fatalf("it is %+v, %v", st.Instance, err)
		}
		all, err := s.Cloud.Instances.List(s.ctx, croft.DefaultProject)
		if err != nil || len(all) != 1 || all[0].Instance.State != croft.StateLost {
			s.Errorf("listed are %+v, %v", all, err)
		}
		_, err = s.Cloud.Changes.Recreate(s.ctx, croft.DefaultProject, "web")
		s.is(err, croft.NoCapacity, "recreating it without hosts")
		_, err = s.Cloud.Changes.Start(s.ctx, croft.DefaultProject, "web")
		s.is(err, croft.Conflict, "starting it")
		s.is(s.Cloud.Instances.Wait(s.ctx, st.Instance, schedule.Running, nil), croft.Conflict, "waiting for it")
	}
	if d, err := s.Cloud.Changes.Destroy(s.ctx, croft.DefaultProject, "web", false); err != nil || !d.Gone {
		s.Errorf("destroying it: gone %v, %v", d.Gone, err)
	}
	_, err := s.Cloud.Instances.Find(s.ctx, croft.DefaultProject, "web")
	s.is(err, croft.NotFound, "a lost instance that was destroyed")
}

// publicKey is a line of authorized_keys whose private key no longer exists.
const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAION7DmGzIsytHqWf8A/mY9PxPo3j3f5QeRbpQCbSc0pw anna"

func (s *suite) keys() {
	k := schedule.Key{Project: croft.DefaultProject, Name: "laptop", Line: publicKey,
		Added: time.Now().UTC()}
	s.must(s.Cloud.Keys.AddKey(s.ctx, k))
	s.is(s.Cloud.Keys.AddKey(s.ctx, k), croft.Conflict, "a name that is taken")
	for project, want := range map[croft.Project]int{croft.DefaultProject: 1, "another": 0} {
		if all, err := s.Cloud.Keys.ListKeys(s.ctx,
			project); err != nil || len(all) != want || want == 1 && all[0].Line != k.Line {
			s.Errorf("project %q: got %v, %v", project, all, err)
		}
	}
	s.must(s.Cloud.Keys.RemoveKey(s.ctx, croft.DefaultProject, "laptop"))
	s.is(s.Cloud.Keys.RemoveKey(s.ctx, croft.DefaultProject, "laptop"), croft.NotFound, "a key that is gone")
}

func (s *suite) images() {
	catalog, err := s.Cloud.Images.Catalog(s.ctx)
	if err != nil || !slices.ContainsFunc(catalog.Images, func(i cloud.Image) bool { return i.Name == "debian-12" }) {
		s.Errorf("the catalog is %+v, %v", catalog, err)
	}
	h, err := s.Cloud.Hosts.Find(s.ctx, s.Host)
	s.must(err)
	got, err := s.Cloud.Images.Pull(s.ctx, h.Host, "tiny", "/images/tiny.qcow2", func(croft.Progress) {})
	if err != nil || got.Format == "" {
		s.Errorf("got %+v, %v", got, err)
	}
	const ref = "/images/tiny.qcow2"
	held, err := s.Cloud.Images.Held(s.ctx, h.Host)
	if err != nil || len(held) != 1 || len(held[0].References) != 1 ||
		strings.TrimPrefix(held[0].References[0], "file://") != ref || held[0].SHA256 == "" {
		s.Errorf("held are %+v, %v", held, err)
	}
	removed, err := s.Cloud.Images.Remove(s.ctx, h.Host, ref)
	if err != nil || len(removed) != 1 || removed[0].SHA256 != held[0].SHA256 {
		s.Errorf("removed are %+v, %v", removed, err)
	}
	_, err = s.Cloud.Images.Remove(s.ctx, h.Host, held[0].SHA256)
	s.is(err, croft.NotFound, "an image that is removed")
	if removed, err = s.Cloud.Images.Remove(s.ctx, h.Host, ""); err != nil || len(removed) > 0 {
		s.Errorf("of nothing, %+v is removed, %v", removed, err)
	}
	_, err = s.Cloud.Images.Pull(s.ctx, h.Host, "broken", "/images/broken.qcow2", func(croft.Progress) {})
	s.is(err, croft.Invalid, "an image that is broken")
	if err != nil && !strings.Contains(err.Error(), s.Host) {
		s.Errorf("%v does not name the host", err)
	}
}

func (s *suite) audit() {
	s.running("web")
	for _, look := range []func(context.Context) (audit.Report, error){s.Cloud.Audits.Audit, s.Cloud.Audits.Repair} {
		report, err := look(s.ctx)
		if err != nil || len(report.Differences) > 0 || len(report.Unchecked) > 0 {
			s.Errorf("got %+v, %v", report, err)
		}
	}
}

func countsAreCompared(s *suite) {
	s.running("web")
	if found, err := s.Cloud.Projects.Check(s.ctx); err != nil || len(found) > 0 {
		s.Errorf("found %+v, %v", found, err)
	}
	s.must(s.Cloud.Projects.Recount(s.ctx, croft.DefaultProject))
	accounts, err := s.Cloud.Projects.Accounts(s.ctx, croft.DefaultProject)
	if err != nil || len(accounts) != 1 || accounts[0].Used["instances"] != 1 {
		s.Errorf("counted are %+v, %v", accounts, err)
	}
}

func (s *suite) monitor() {
	st := s.running("web")
	s.must(s.Cloud.Monitor.Usable(s.ctx))
	ctx, cancel := context.WithCancel(s.ctx)
	mirror, changed := s.Cloud.Monitor.Mirror(), make(chan struct{}, 1)
	var work sync.WaitGroup
	work.Go(func() {
		err := mirror.Run(ctx, func() {
			select {
			case changed <- struct{}{}:
			default: // a change is already waiting
			}
		})
		if !errors.Is(err, context.Canceled) {
			s.Errorf("the mirror ended with %v", err)
		}
	})
	for !mirror.Ready() {
		select {
		case <-changed:
		case <-ctx.Done():
			s.Fatal("the mirror is never ready")
		}
	}
	hosts, all, err := mirror.Look()
	if err != nil || len(hosts) != 1 || len(all) != 1 || all[0].Instance.ID != st.Instance.ID {
		s.Errorf("the mirror has %v and %v, %v", hosts, all, err)
	}
	cancel()
	work.Wait()
	offers, err := s.Cloud.Monitor.Providers(s.ctx)
	if err != nil || len(offers) != 1 || offers[0].Used[croft.VCPU] != 1 {
		s.Errorf("offers are %+v, %v", offers, err)
	}
	used, err := s.Cloud.Monitor.Usages(s.ctx, *st.Host)
	if err != nil || len(used) != 1 || used[0].Instance != st.Instance.ID {
		s.Errorf("usages are %+v, %v", used, err)
	}
}

func (s *suite) tokens() {
	made, err := s.Cloud.Tokens.Invite(s.ctx, cloud.Invitation{Note: "rack 7", Life: time.Hour, SameEtcd: s.Here,
		SamePlacement: s.Here})
	s.must(err)
	if left := time.Until(made.Expires); made.Secret == "" || made.Name == "" || left < 50*time.Minute ||
		left > time.Hour {
		s.Errorf("got %+v", made)
	}
	all, err := s.Cloud.Tokens.List(s.ctx)
	if err != nil || len(all) != 1 || all[0].Name != made.Name || all[0].Note != "rack 7" || all[0].Secret != "" {
		s.Errorf("the list is %+v, %v", all, err)
	}
	host, err := s.Cloud.Hosts.Find(s.ctx, s.Host)
	s.must(err)
	again, err := s.Cloud.Tokens.Invite(s.ctx, cloud.Invitation{Host: s.Host, Life: time.Hour, SameEtcd: s.Here,
		SamePlacement: s.Here})
	if err != nil || again.Host != host.ID {
		s.Errorf("a token for a host is %+v, %v", again, err)
	}
	if ended, err := s.Cloud.Tokens.Revoke(s.ctx, again.Name); err != nil || ended.Host != host.ID {
		s.Errorf("revoked, it is %+v, %v", ended, err)
	}
	_, err = s.Cloud.Tokens.Invite(s.ctx, cloud.Invitation{Host: "nobody", Life: time.Hour, SameEtcd: s.Here,
		SamePlacement: s.Here})
	s.is(err, croft.NotFound, "a token for an unknown host")
	ended, err := s.Cloud.Tokens.Revoke(s.ctx, made.Name[:8])
	if err != nil || ended.Name != made.Name {
		s.Errorf("revoked %+v, %v", ended, err)
	}
	_, err = s.Cloud.Tokens.Revoke(s.ctx, made.Name)
	s.is(err, croft.NotFound, "a token that is revoked")
}

func (s *suite) snapshot() {
	var text bytes.Buffer
	size, err := s.Cloud.Backups.Snapshot(s.ctx, &text)
	if err != nil || size == 0 || size != int64(text.Len()) {
		s.Errorf("%d bytes, said to be %d, %v", text.Len(), size, err)
	}
}
