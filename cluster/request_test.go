package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"croft"
)

func TestRequestCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Request)
		want   string // part of the error; "": the request is valid
	}{
		{"a plain request", func(*Request) {}, ""},
		{"an ID that is none", func(r *Request) { r.ID = "x" }, `"x" is not an ID for a cluster`},
		{"an ID", func(r *Request) { r.ID = croft.NewClusterID() }, ""},
		{"a name with a dot", func(r *Request) { r.Name = "a.b" }, "not a name for a cluster"},
		{"no appliance", func(r *Request) { r.Appliance = "" }, "not a name for an appliance"},
		{"no user", func(r *Request) { r.User = "" }, "needs a project and a user"},
		{"fewer slaves than none", func(r *Request) { r.Slaves = -1 }, "-1 slaves: a cluster has 0 to 1000"},
		{"too many", func(r *Request) { r.Slaves = 1001 }, "1001 slaves"},
		{"another way of reuse", func(r *Request) { r.Reuse = "always" }, `reuse "always": use "never"`},
		{"a negative time", func(r *Request) { r.KeepIdle = Seconds(-time.Second) }, "keep_idle is -1s"},
		{"a hint twice", func(r *Request) { r.Hints.Sites = []string{"a", "a"} }, `hint sites names "a" twice`},
		{"hints that exclude each other", func(r *Request) {
			r.Hints.Sites, r.Hints.ExcludeSites = []string{"a"}, []string{"a"}
		}, `ask for site "a", and exclude it`},
		{"large parameters", func(r *Request) {
			r.Parameters = map[string]any{"x": strings.Repeat("a", MaxParameterBytes)}
		}, "at most 65536 are read"},
		{"what is not JSON", func(r *Request) { r.Parameters = map[string]any{"x": make(chan int)} },
			"cannot be written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request()
			c.change(&r)
			err := r.Check()
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, croft.Invalid) ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestCheckSlaves(t *testing.T) {
	if err := CheckSlaves(1, 2); !errors.Is(err, croft.Invalid) {
		t.Errorf("got %v, want Invalid", err)
	}
	if err := CheckSlaves(2, 2); err != nil {
		t.Error(err)
	}
}

// TestAllVersionsHashARequestAlike: digests are stored.
func TestAllVersionsHashARequestAlike(t *testing.T) {
	plain := Request{Project: "physics", User: "ada", Spec: Spec{Name: "web", Appliance: "slurm"}}
	auto := plain
	auto.Reuse = ReuseAuto
	for _, c := range []struct {
		request Request
		want    string
	}{
		{plain, "38185143c21d7814385c5995b63f0037dfc3fdce6002266e2cf12b3f9f30fe35"},
		{auto, "38185143c21d7814385c5995b63f0037dfc3fdce6002266e2cf12b3f9f30fe35"},
		{Request{Project: "physics", User: "ada", Spec: Spec{ID: "x", Name: "web", Appliance: "slurm", Slaves: 2,
			Hints: Hints{Sites: []string{"lab"}}, Keys: []string{"ssh-ed25519 AAAA ada"}, Reuse: ReuseNever,
			KeepIdle: Seconds(90 * time.Minute), Expires: Seconds(36 * time.Hour)}},
			"73be6beb5b73b69e179866b6c2c2b169a12aa98336ec0723dd8c73f06c3f7eea"},
	} {
		if got := c.request.Digest(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.request, got, c.want)
		}
	}
}
