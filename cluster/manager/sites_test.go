package manager

import (
	"log/slog"
	"path/filepath"
	"testing"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/seal"
	"croft/cluster/sim"
	"croft/cluster/survey"
)

// TestACredentialGoesToNoFormerSite replaces a site by another one of the same name while the manager still has the
// former one cached.
func TestACredentialGoesToNoFormerSite(t *testing.T) {
	const home = croft.PartitionID("00000000-0000-4000-8000-000000000001")
	ctx, store := t.Context(), clustertest.NewStore()
	file := filepath.Join(t.TempDir(), "key")
	if _, err := seal.Generate(file); err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	looks, err := survey.New(survey.Config{Backends: cluster.Backends{Partition: home, Records: store,
		Catalogue: store, Vault: keys, Log: log}})
	if err != nil {
		t.Fatal(err)
	}
	s := sites{c: Config{Backends: cluster.Backends{Partition: home, Catalogue: store, Log: log,
		Drivers: map[cluster.SiteType]cluster.Driver{cluster.Sim: sim.New()}},
		Survey: looks}}
	site := cluster.Site{Name: "lab", Type: cluster.Sim, AuthURL: "https://former.example", Enabled: true}
	if _, err := store.PutSite(ctx, site); err != nil {
		t.Fatal(err)
	}
	if _, at, err := s.access(ctx, "lab", ""); err != nil || at.Site.AuthURL != site.AuthURL {
		t.Fatalf("got %+v, %v", at, err)
	}
	if err := store.RemoveSite(ctx, "lab"); err != nil {
		t.Fatal(err)
	}
	site.AuthURL = "https://next.example"
	if _, err := store.PutSite(ctx, site); err != nil {
		t.Fatal(err)
	}
	key := cluster.Credential{ID: cluster.NewCredentialID(), Name: "key", Project: "physics", User: "ada", Site: "lab"}
	if key.Secret, err = keys.Seal(cluster.NewSecret("swordfish"), cluster.AboutCredential(home, key)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutCredential(ctx, key); err != nil {
		t.Fatal(err)
	}
	if _, at, err := s.access(ctx, "lab", key.ID); err != nil || at.Site.AuthURL != site.AuthURL {
		t.Errorf("the secret %q goes to %s, %v", at.Secret.Reveal(), at.Site.AuthURL, err)
	}
}
