package survey_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/sim"
	"croft/cluster/survey"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vault opens a value only with the about text that it was sealed with.
type vault struct{}

func (vault) Seal(s cluster.Secret, about string) (cluster.Sealed, error) {
	return cluster.Sealed(`"` + about[len(about)-4:] + s.Reveal() + `"`), nil
}

func (vault) Open(v cluster.Sealed, about string) (cluster.Secret, error) {
	text, ok := strings.CutPrefix(strings.Trim(string(v), `"`), about[len(about)-4:])
	if !ok {
		return cluster.Secret{}, croft.Errorf(croft.Invalid, "the value was moved")
	}
	return cluster.NewSecret(text), nil
}

// bench has two sites that build slurm; the implementation of east is an image.
type bench struct {
	*testing.T
	store  *clustertest.Store
	sites  *sim.Site
	config survey.Config
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, store: clustertest.NewStore(), sites: sim.New()}
	b.config = survey.Config{Backends: cluster.Backends{Partition: "p", Records: b.store,
		Catalogue: b.store, Vault: vault{},
		Drivers: map[cluster.SiteType]cluster.Driver{cluster.Sim: b.sites},
		Log:     slog.New(slog.NewTextHandler(&bytes.Buffer{}, nil))}}
	_, err := b.store.PutAppliance(t.Context(), cluster.Appliance{Name: "slurm", Public: true})
	b.fatal(err)
	for _, name := range []string{"east", "west"} {
		_, err := b.store.PutSite(t.Context(), cluster.Site{Name: name, Type: cluster.Sim, Enabled: true})
		b.fatal(err)
		i := cluster.Implementation{ID: cluster.NewImplementationID(), Appliance: "slurm", Site: name, Enabled: true}
		if name == "east" {
			i.Image = "debian"
		}
		_, err = b.store.AddImplementation(t.Context(), i)
		b.fatal(err)
	}
	return b
}

func (b *bench) fatal(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// look returns the sites of the candidates and the reason why east was dropped.
func (b *bench) look() (sites []string, east string) {
	b.Helper()
	s, err := survey.New(b.config)
	b.fatal(err)
	found, err := s.Look(b.Context(), cluster.Request{Project: "physics", User: "ada",
		Spec: cluster.Spec{ID: croft.NewClusterID(), Name: "a", Appliance: "slurm", Slaves: 1}}, nil, "")
	b.fatal(err)
	for _, c := range found.Candidates {
		sites = append(sites, c.Site.Name)
	}
	for _, d := range found.Dropped {
		if d.Site == "east" {
			east = d.Reason
		}
	}
	return sites, east
}

func TestImages(t *testing.T) {
	for _, c := range []struct {
		name  string
		image *cluster.SiteImage
		own   *cluster.SiteImage // in the catalogue of the cloud
		want  string
	}{
		{"there is none", nil, nil, "there is no image debian, which the implementation names"},
		{"it can be brought", &cluster.SiteImage{Name: "debian", URL: "https://example.org/d"}, nil, ""},
		{"it is there", &cluster.SiteImage{Name: "debian", On: map[string]cluster.Placed{"east": {Ref: "x"}}}, nil, ""},
		{"it is elsewhere", &cluster.SiteImage{Name: "debian", On: map[string]cluster.Placed{"west": {Ref: "x"}}}, nil,
			"image debian is not at the site, and has no source to bring it from"},
		{"the cloud has it", nil, &cluster.SiteImage{Name: "debian", URL: "https://example.org/d"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			if c.image != nil {
				_, err := b.store.PutImage(t.Context(), *c.image)
				b.fatal(err)
			}
			b.config.Images = func(name string) (cluster.SiteImage, error) {
				if c.own == nil {
					return cluster.SiteImage{}, croft.Errorf(croft.NotFound, "no image %s", name)
				}
				return *c.own, nil
			}
			sites, reason := b.look()
			if reason != c.want || slices.Contains(sites, "east") != (c.want == "") || !slices.Contains(sites, "west") {
				t.Errorf("candidates %v, east was dropped because %q, want %q", sites, reason, c.want)
			}
		})
	}
}

func TestFailedBuildsCount(t *testing.T) {
	b := newBench(t)
	_, err := b.store.PutImage(t.Context(), cluster.SiteImage{Name: "debian", URL: "https://example.org/d"})
	b.fatal(err)
	c := clustertest.NewCluster("x")
	c.Attempts = []cluster.Tried{{Site: "west", At: time.Now()}}
	_, err = b.store.Create(t.Context(), c, 0)
	b.fatal(err)
	for range 8 {
		if sites, _ := b.look(); !slices.Equal(sites, []string{"east", "west"}) {
			t.Fatalf("got %v: a build has failed at west", sites)
		}
	}
}

func TestFailures(t *testing.T) {
	now := time.Now()
	all := []cluster.Cluster{
		{Attempts: []cluster.Tried{{Site: "a", At: now.Add(-time.Minute)}, {Site: "b", At: now.Add(-2 * time.Hour)}}},
		{Site: "a", State: cluster.Failed, Error: &cluster.Failure{At: now},
			Attempts: []cluster.Tried{{Site: "a", At: now}}},
		{Site: "c", State: cluster.Ready, Error: &cluster.Failure{At: now}},
	}
	got := survey.Failures(all, now)
	if len(got) != 2 || got[0].Site != "a" || got[1].Site != "a" || got[0].Silent {
		t.Errorf("got %+v, want two at a: one of each cluster, of the last hour", got)
	}
}

func TestCredentials(t *testing.T) {
	b := newBench(t)
	c := cluster.Credential{ID: cluster.NewCredentialID(), Name: "mine", Project: "physics", User: "ada", Site: "west",
		Kind: cluster.Password}
	sealed, err := vault{}.Seal(cluster.NewSecret("hunter2"), cluster.AboutCredential("p", c))
	b.fatal(err)
	c.Secret = sealed
	c, err = b.store.PutCredential(t.Context(), c)
	b.fatal(err)
	s, err := survey.New(b.config)
	b.fatal(err)
	at, err := s.Access(cluster.Site{Name: "west"}, c)
	if err != nil || at.Secret.Reveal() != "hunter2" || at.Partition != "p" {
		t.Errorf("got %+v, %v", at, err)
	}
	moved := c
	moved.Site = "east"
	if _, err := s.Access(cluster.Site{Name: "east"}, moved); !errors.Is(err, croft.Unavailable) {
		t.Errorf("one that was moved: got %v, want Unavailable", err)
	}
	b.config.Vault = nil
	if sites, _ := b.look(); slices.Contains(sites, "west") {
		t.Errorf("without a key: %v, want nothing at a site whose credential cannot be opened", sites)
	}
}
