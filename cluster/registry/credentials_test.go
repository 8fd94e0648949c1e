package registry_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/registry"
	"croft/cluster/seal"
)

func TestCredentialsAreTriedAndKept(t *testing.T) {
	w, ctx := withSite(t), t.Context()
	c := must(w.Credentials().Create(ctx, mine("one", "hunter2hunter2")))(t)
	if c.Kind != cluster.Password || c.UserDomain != "Default" || c.VerifiedAt.IsZero() || c.Secret != nil {
		t.Errorf("got %+v", c)
	}
	if w.driver.seen.Secret.Reveal() != "hunter2hunter2" || w.driver.seen.Credential.Username != "annie" {
		t.Errorf("the site was asked about %+v", w.driver.seen)
	}
	for _, name := range []string{"one", string(c.ID)} {
		if got := must(w.Credentials().Find(ctx, "dev", "ann", name))(t); got.ID != c.ID || got.Secret != nil {
			t.Errorf("found %+v", got)
		}
		_, err := w.Credentials().Find(ctx, "dev", "bob", name)
		want(t, "of another user", err, croft.NotFound, "no credential")
		_, err = w.Credentials().Find(ctx, "lab", "ann", name)
		want(t, "of another project", err, croft.NotFound, "no credential")
	}
	must(w.Credentials().Find(ctx, "", "", string(c.ID)))(t) // for operators
	_, err := w.Credentials().Find(ctx, "", "", "one")
	want(t, "of all by a name", err, croft.NotFound, "ID")
	probes := w.driver.probes
	_, err = w.Credentials().Create(ctx, mine("one", "hunter2hunter2"))
	want(t, "another of its name", err, croft.Conflict, "already")
	if w.driver.probes != probes {
		t.Error("the site was asked about one that cannot be stored")
	}
	_, err = w.Credentials().Create(ctx, mine("two", "wrongwrong"))
	want(t, "a wrong password", err, croft.Invalid, "401")
	w.driver.fail = croft.Errorf(croft.Unavailable, "connection refused")
	_, err = w.Credentials().Create(ctx, mine("two", "hunter2hunter2"))
	want(t, "while the site is down", err, croft.Unavailable, "unverified")
	n := mine("two", "whatever")
	n.Unverified = true
	if c := must(w.Credentials().Create(ctx, n))(t); !c.VerifiedAt.IsZero() {
		t.Errorf("unverified: %+v", c)
	}
	if all := must(w.Credentials().List(ctx, "dev", "ann"))(t); len(all) != 2 || all[0].Secret != nil {
		t.Errorf("listed %+v", all)
	}
}

func TestCredentialsAreChecked(t *testing.T) {
	w := withSite(t)
	for name, c := range map[string]struct {
		change func(*cluster.NewCredential)
		kind   croft.Kind
		says   string
	}{
		"an unknown site": {func(n *cluster.NewCredential) { n.Site = "eest" }, croft.NotFound, "east"},
		"a token":         {func(n *cluster.NewCredential) { n.Kind = cluster.Token }, croft.Invalid, "password"},
		"a bad name":      {func(n *cluster.NewCredential) { n.Name = "A" }, croft.Invalid, "not a name"},
		"a bad project":   {func(n *cluster.NewCredential) { n.Project = "a/b" }, croft.Invalid, "project"},
		"nobody":          {func(n *cluster.NewCredential) { n.User = "" }, croft.Invalid, "user"},
		"no user name":    {func(n *cluster.NewCredential) { n.Username = "" }, croft.Invalid, "user name"},
		"no project":      {func(n *cluster.NewCredential) { n.ProjectName = "" }, croft.Invalid, "either"},
		"two projects":    {func(n *cluster.NewCredential) { n.ProjectID = "x" }, croft.Invalid, "either"},
		"no secret":       {func(n *cluster.NewCredential) { n.Plain = cluster.Secret{} }, croft.Invalid, "secret"},
		"a line in a name": {func(n *cluster.NewCredential) { n.Username = "a\nb" }, croft.Invalid,
			"control"},
		"a long name": {func(n *cluster.NewCredential) { n.Username = strings.Repeat("x", 300) }, croft.Invalid,
			"bytes"},
	} {
		n := mine("one", "hunter2hunter2")
		c.change(&n)
		_, err := w.Credentials().Create(t.Context(), n)
		want(t, name, err, c.kind, c.says)
	}
	if w.driver.probes != 0 {
		t.Error("the site was asked about what is wrong")
	}
}

func TestSecretsAreRotated(t *testing.T) {
	w, ctx := withSite(t), t.Context()
	first := must(w.Credentials().Create(ctx, mine("one", "hunter2hunter2")))(t)
	probes, name := w.driver.probes, "renamed"
	renamed := must(w.Credentials().Change(ctx, "dev", "ann", "one", cluster.CredentialChange{Name: &name},
		&first.Generation))(t)
	if w.driver.probes != probes || renamed.Name != name || renamed.Secret != nil {
		t.Errorf("renamed to %+v with %d logins", renamed, w.driver.probes-probes)
	}
	next := cluster.NewSecret("correct horse")
	change := cluster.CredentialChange{Plain: &next}
	_, err := w.Credentials().Change(ctx, "dev", "ann", "renamed", change, nil)
	want(t, "before the site knows it", err, croft.Invalid, "401")
	w.driver.right = "correct horse"
	got := must(w.Credentials().Change(ctx, "dev", "ann", "renamed", change, nil))(t)
	if got.LastError != "" || got.VerifiedAt.IsZero() {
		t.Errorf("got %+v", got)
	}
	user := "bob"
	must(w.Credentials().Change(ctx, "dev", "ann", "renamed", cluster.CredentialChange{Username: &user}, nil))(t)
	if w.driver.seen.Secret.Reveal() != "correct horse" || w.driver.seen.Credential.Username != "bob" {
		t.Errorf("the site was asked about %s with %q", w.driver.seen.Credential.Username,
			w.driver.seen.Secret.Reveal())
	}
	_, err = w.Credentials().Change(ctx, "dev", "ann", "renamed", change, &first.Generation)
	want(t, "of an old generation", err, croft.Conflict, "generation")
	_, err = w.Credentials().Change(ctx, "dev", "bob", string(first.ID), change, nil)
	want(t, "of another user", err, croft.NotFound, "no credential")
	want(t, "removed by another", w.Credentials().Remove(ctx, "dev", "bob", string(first.ID)), croft.NotFound, "")
}

func TestWithoutAKeyNothingIsStored(t *testing.T) {
	w, ctx := withSite(t), t.Context()
	without, err := registry.New(registry.Config{Backends: cluster.Backends{Partition: "p1",
		Catalogue: w.store, Drivers: w.Drivers}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = without.Credentials().Create(ctx, mine("one", "hunter2hunter2"))
	want(t, "create", err, croft.Unavailable, "credential_key_file")
	if w.driver.probes != 0 {
		t.Error("the site was asked in vain")
	}
	must(w.Credentials().Create(ctx, mine("one", "hunter2hunter2")))(t)
	other, err := registry.New(registry.Config{Backends: cluster.Backends{Partition: "p2",
		Catalogue: w.store, Drivers: w.Drivers, Vault: w.Vault}})
	if err != nil {
		t.Fatal(err)
	}
	user := "bob"
	_, err = other.Credentials().Change(ctx, "dev", "ann", "one", cluster.CredentialChange{Username: &user}, nil)
	want(t, "in another partition", err, croft.Invalid, "moved")
}

func TestSecretsAreSealedByANewKey(t *testing.T) {
	w, ctx := withSite(t), t.Context()
	c := must(w.Credentials().Create(ctx, mine("one", "hunter2hunter2")))(t)
	built := clustertest.NewCluster("built")
	built.Sealed = map[string]cluster.Sealed{
		"password": must(w.Vault.Seal(cluster.NewSecret("out"), cluster.AboutValue("p1", built.ID, "password")))(t)}
	must(w.store.Create(ctx, built, 0))(t)
	account := cluster.Account{Cluster: built.ID, User: "bob",
		Password: must(w.Vault.Seal(cluster.NewSecret("login"), cluster.AboutAccount("p1", built.ID, "bob")))(t)}
	if err := w.store.AddAccount(ctx, account); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "new")
	id := must(seal.Generate(path))(t)
	if n, err := w.Rewrap(ctx); n != 0 || err != nil {
		t.Errorf("with the same key: %d, %v", n, err)
	}
	w.Vault = must(seal.Load(path))(t)
	_, err := w.Rewrap(ctx)
	want(t, "without the old key", err, croft.Unavailable, "one")
	w.Vault = must(seal.Load(path, w.key))(t)
	if n, err := w.Rewrap(ctx); n != 3 || err != nil {
		t.Errorf("with both: %d, %v", n, err)
	}
	if stored := must(w.store.Credential(ctx, c.ID))(t); !strings.Contains(string(stored.Secret), id) {
		t.Error("it is sealed by another key")
	}
	w.Vault = must(seal.Load(path))(t)
	stored := must(w.store.Get(ctx, built.ID))(t)
	out := must(w.Vault.Open(stored.Sealed["password"], cluster.AboutValue("p1", built.ID, "password")))(t)
	account = must(w.store.Account(ctx, built.ID, "bob"))(t)
	login := must(w.Vault.Open(account.Password, cluster.AboutAccount("p1", built.ID, "bob")))(t)
	if out.Reveal() != "out" || login.Reveal() != "login" {
		t.Errorf("they open as %q and %q", out.Reveal(), login.Reveal())
	}
	user := "bob"
	must(w.Credentials().Change(ctx, "dev", "ann", "one", cluster.CredentialChange{Username: &user}, nil))(t)
}

// TestSecretsStayInside lets a site repeat the secret in all its answers, and searches everything that leaves the
// registry for it.
func TestSecretsStayInside(t *testing.T) {
	const secret = "p\"w/ü+hunter2 hunter2"
	for _, form := range []string{secret, "x:" + base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.StdEncoding.EncodeToString([]byte("annie:" + secret + ":x")),
		base64.URLEncoding.EncodeToString([]byte("a:" + secret)), strings.ToUpper(fmt.Sprintf("%x", secret)),
		"p%22w%2F%C3%BC%2Bhunter2+hunter2", `{"password":"p\"w/ü+hunter2 hunter2"}`} {
		w, ctx := withSite(t), t.Context()
		w.driver.right = secret
		var out strings.Builder
		note := func(v any, err error) {
			text, _ := json.Marshal(v)
			fmt.Fprintf(&out, "%s %v %+v %#v %v %+v\n", text, v, v, v, err, err)
			slog.New(slog.NewJSONHandler(&out, nil)).Info("here", "v", v, "err", err)
			slog.New(slog.NewTextHandler(&out, nil)).Info("here", "v", v, "err", err)
		}
		n := mine("one", secret)
		note(n, nil)
		note(w.Credentials().Create(ctx, n))
		note(w.driver.seen, nil)
		plain := cluster.NewSecret(secret)
		for _, kind := range []croft.Kind{croft.Denied, croft.Unavailable, croft.Invalid, croft.Conflict} {
			w.driver.fail = croft.Errorf(kind, "POST /v3/auth/tokens: 500: %s", form)
			note(w.Credentials().Create(ctx, mine("two", secret)))
			change := cluster.CredentialChange{Plain: &plain}
			note(change, nil)
			note(w.Credentials().Change(ctx, "dev", "ann", "one", change, nil))
			note(w.Sites().Health(ctx, "east", "dev", "ann"))
			note(w.SiteImages().Bring(ctx, "debian-12", "east", "", "dev", "ann"))
		}
		w.driver.fail, w.driver.answer = nil, cluster.Placed{State: cluster.ImageFailed, Error: form}
		note(w.SiteImages().Bring(ctx, "debian-12", "east", "", "dev", "ann"))
		note(w.Credentials().List(ctx, "", ""))
		note(w.Sites().List(ctx))
		note(w.SiteImages().List(ctx))
		all := out.String() + w.log.String() + w.store.Dump()
		if w.driver.brings != 5 || !strings.Contains(all, "[secret]") {
			t.Fatalf("%d images were brought; nothing masked", w.driver.brings)
		}
		for _, found := range []string{"hunter2", form, "aHVudGVyM", "h1bnRlcj", "odW50ZXIy", "68756e74657232"} {
			if strings.Contains(strings.ToLower(all), strings.ToLower(found)) {
				t.Errorf("%q is repeated as %q", form, found)
			}
		}
	}
}
