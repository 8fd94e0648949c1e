package heat_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/heat"
	"croft/cluster/heat/heattest"
	"croft/internal/testing/patient"
)

// bench is one cluster at one site, behind a front.
type bench struct {
	*testing.T
	*heat.Driver
	front *heattest.Front
	at    cluster.SiteAccess
	b     cluster.Build
}

func newBench(t *testing.T, c heattest.Cloud, template string, slaves int) *bench {
	f := heattest.NewFront(t, c)
	id := croft.NewClusterID()
	s := &bench{T: t, front: f, at: c.Access("site", f.AuthURL()),
		Driver: open(t, heat.Config{Timeout: 20 * time.Second, Settle: 2 * time.Second})}
	s.at.Partition = croft.NewPartitionID()
	s.b = cluster.Build{Partition: s.at.Partition, Cluster: id, Name: "c", Timeout: time.Hour,
		Implementation: cluster.Implementation{ID: cluster.NewImplementationID(), Template: template},
		Parameters:     map[string]any{}, Remote: cluster.Remote{Name: cluster.RemoteName(id)}}
	for i := range slaves {
		s.b.Indexes = append(s.b.Indexes, i)
	}
	t.Cleanup(func() {
		f.Change(func(s *heattest.Faults) { *s = heattest.Faults{} })
		d := heat.New(heat.Config{})
		defer d.Close()
		s.b.Remote.Asked = false
		if err := d.Destroy(t.Context(), s.at, s.b); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return s
}

func (s *bench) launch() {
	s.Helper()
	remote, err := s.Launch(s.Context(), s.at, s.b)
	if err != nil {
		s.Fatal(err)
	}
	s.b.Remote = remote
}

func (s *bench) look() cluster.Seen {
	s.Helper()
	all, err := s.Observe(s.Context(), s.at, []cluster.Build{s.b})
	if err != nil {
		s.Fatal(err)
	}
	return all[s.b.Cluster]
}

func (s *bench) until(p cluster.Phase) (seen cluster.Seen) {
	s.Helper()
	patient.Until(s.T, "the site says "+string(p), func() bool { seen = s.look(); return seen.Phase == p })
	return seen
}

func (s *bench) wantKind(what string, err error, kind croft.Kind, words ...string) {
	s.Helper()
	if croft.KindOf(err) != kind {
		s.Errorf("%s: got %v, want %s", what, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			s.Errorf("%s: got %v, want %q in it", what, err, w)
		}
	}
}

// creates reports whether a request is for a new stack.
func creates(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/stacks")
}

func TestALaunchWhoseAnswerWasLostIsRemovedWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		s := newBench(t, clouds["demo"], small, 0)
		s.front.Change(func(f *heattest.Faults) { f.Lose = creates })
		_, err := s.Launch(s.Context(), s.at, s.b)
		s.wantKind("launch", err, croft.Unavailable)
		s.b.Remote.Asked = true
		if err := s.Destroy(s.Context(), s.at, s.b); err != nil {
			t.Fatal(err)
		}
		s.until(cluster.Absent)
	})
}

func TestALaunchThatComesLateIsTurnedAwayWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		s := newBench(t, clouds["demo"], small, 0)
		s.front.Change(func(f *heattest.Faults) {
			f.Answer = func(w http.ResponseWriter, r *http.Request) bool {
				if creates(r) {
					panic(http.ErrAbortHandler) // the request is still in progress
				}
				return false
			}
		})
		_, err := s.Launch(s.Context(), s.at, s.b)
		s.wantKind("launch", err, croft.Unavailable)
		s.front.Change(func(f *heattest.Faults) { f.Answer = nil })
		s.b.Remote.Asked = true
		if err := s.Destroy(s.Context(), s.at, s.b); err != nil {
			t.Fatal(err)
		}
		if seen := s.look(); seen.Phase != cluster.Removing {
			t.Errorf("while a launch may be under way the site has %+v", seen)
		}
		late := map[string]any{"stack_name": s.b.Remote.Name, "template": small}
		if status, text := s.front.Heat(t, http.MethodPost, "", late); status != http.StatusConflict {
			t.Errorf("the late launch got %d %s", status, text)
		}
		s.until(cluster.Stuck)
		if err := s.Destroy(s.Context(), s.at, s.b); err != nil {
			t.Fatal(err)
		}
		s.until(cluster.Absent)
		if found, err := s.List(s.Context(), s.at); err != nil || len(found) > 0 {
			t.Errorf("%v, %v is left", found, err)
		}
	})
}

func TestAnotherProjectIsNoReasonToGiveUpWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		s := newBench(t, clouds["demo"], small, 0)
		s.launch()
		s.until(cluster.Standing)
		mine := s.at
		s.at = clouds["demo2"].Access("site", s.front.AuthURL())
		s.at.Partition = mine.Partition
		if seen := s.look(); !seen.Elsewhere || seen.Failure == "" {
			t.Errorf("got %+v, want that it is elsewhere", seen)
		}
		s.wantKind("destroy", s.Destroy(s.Context(), s.at, s.b), croft.Denied, "project")
		s.wantKind("resize", s.Resize(s.Context(), s.at, s.b), croft.Denied, "project")
		s.at = mine
		s.until(cluster.Standing)
	})
}

func TestAWrongPasswordAndOneThatWasMendedWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		s := newBench(t, clouds["demo"], small, 0)
		right := s.at.Secret
		s.at.Secret = cluster.NewSecret("wr0ng-horse-battery")
		_, err := s.Launch(s.Context(), s.at, s.b)
		s.wantKind("launch", err, croft.Denied, "Keystone")
		p, err := s.Probe(s.Context(), s.at)
		s.wantKind("probe", err, croft.Denied)
		if p.Accepted || !strings.HasPrefix(p.Version, "v3") {
			t.Errorf("probe says %+v", p)
		}
		if err != nil && strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("the password is in %v", err)
		}
		s.at.Secret = right
		s.launch()
	})
}

func TestATokenThatEndsIsRenewedWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		s := newBench(t, clouds["demo"], small, 0)
		s.look()
		refused := 0
		s.front.Change(func(f *heattest.Faults) {
			f.Answer = func(w http.ResponseWriter, _ *http.Request) bool {
				if refused++; refused > 1 {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
		})
		if s.look(); refused < 2 {
			t.Error("the request was not repeated")
		}
	})
}

// guarded has a secret parameter with a constraint.
var guarded = strings.Replace(small, "parameters:\n", `parameters:
  admin_password: {type: string, hidden: true, constraints: [{length: {min: 40}}]}
`, 1)

func TestWhatHeatRefusesWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		for _, c := range []struct {
			name, template string
			parameters     map[string]any
			words          []string
		}{
			{"an unknown type", strings.Replace(small, "OS::Heat::TestResource", "OS::No::Such", 1), nil,
				[]string{"OS::No::Such"}},
			{"a parameter that nobody fills", strings.Replace(small, "parameters:\n",
				"parameters:\n  x: {type: string}\n", 1),
				nil, []string{"UserParameterMissing", "(x)"}},
			{"a parameter that is not declared", small, map[string]any{"y": 1}, []string{"UnknownUserParameter",
				"(y)"}},
			{"a secret that is too short", guarded, map[string]any{"admin_password": "hunter2-hunter2"},
				[]string{"admin_password"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				s := newBench(t, clouds["demo"], c.template, 0)
				s.b.Parameters = c.parameters
				_, err := s.Launch(s.Context(), s.at, s.b)
				s.wantKind("launch", err, croft.Invalid, c.words...)
				if err != nil && strings.Contains(err.Error(), "hunter2") {
					t.Errorf("a secret is in %v", err)
				}
			})
		}
	})
}

func TestATemplateIsSentAsItWasWrittenWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		odd := "# a comment, and file:///etc/passwd\n" + small + "  # at the end\n"
		s := newBench(t, clouds["demo"], odd, 1)
		var sent []any
		s.front.Change(func(f *heattest.Faults) {
			f.Body = func(_ *http.Request, body map[string]any) {
				sent = append(sent, body["template"])
				for _, name := range []string{"files", "environment"} {
					if body[name] != nil {
						t.Errorf("%s is sent", name)
					}
				}
			}
		})
		if s.launch(); !slices.Equal(sent, []any{odd, odd}) {
			t.Errorf("%d texts were sent, to be validated and built", len(sent))
		}
	})
}

func TestLookingIsOneRequestWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		s := newBench(t, clouds["demo"], small, 1)
		s.launch()
		s.until(cluster.Standing)
		s.front.Requests()
		s.look()
		if all := s.front.Requests(); len(all) != 1 {
			t.Errorf("a second look asked %q", all)
		}
		fresh := s.Driver
		s.Driver = open(t, heat.Config{})
		if seen := s.look(); seen.Phase != cluster.Standing || len(seen.Members) != 2 {
			t.Errorf("after a restart it is %+v", seen)
		}
		if all := s.front.Requests(); len(all) != 2 {
			t.Errorf("the first look after a restart asked %q", all)
		}
		s.Driver = fresh
	})
}

func TestAStackInProgressIsNotUpdatedWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		s := newBench(t, clouds["demo"], small, 0)
		s.b.Parameters["secs"] = 20
		s.launch()
		s.b.Indexes = []int{0}
		s.wantKind("resize", s.Resize(s.Context(), s.at, s.b), croft.Conflict, "CREATE_IN_PROGRESS")
	})
}

func TestOutputsThatAreOfNoUseWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		for _, c := range []struct{ name, output, failure string }{
			{"null", `null`, "master_ip"},
			{"no address", `"nowhere"`, "nowhere"},
			{"an error", `{get_attr: [master, no_such]}`, "master_ip"},
		} {
			t.Run(c.name, func(t *testing.T) {
				s := newBench(t, clouds["demo"], strings.Replace(small, "{value: {get_attr: [master, output]}}",
					"{value: "+c.output+"}", 1), 0)
				remote, err := s.Launch(s.Context(), s.at, s.b)
				if croft.KindOf(err) == croft.Invalid { // Heat detects some errors earlier
					return
				}
				if s.b.Remote = remote; err != nil {
					t.Fatal(err)
				}
				if seen := s.until(cluster.Standing); !strings.Contains(seen.Failure, c.failure) ||
					seen.MasterIP != "" {
					t.Errorf("got %+v", seen)
				}
			})
		}
	})
}

func TestAFailureNamesItsResourceWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		deep := strings.Replace(small,
			`resource_def: {type: "OS::Heat::TestResource", properties: {value: "10.0.1.%index%",`+
				` fail: {get_param: slave_fail}}}`, `resource_def: {type: "OS::Heat::ResourceGroup", properties: {count: 1, resource_def:
        {type: "OS::Heat::TestResource", properties: {value: "10.0.1.1", fail: true}}}}`, 1)
		s := newBench(t, clouds["demo"], deep, 1)
		s.launch()
		seen := s.until(cluster.Broken)
		if !strings.Contains(seen.Failure, "0: ") || !strings.Contains(seen.Failure, "TestResource") &&
			!strings.Contains(seen.Failure, "failed") || seen.NoRoom {
			t.Errorf("the failure is %q", seen.Failure)
		}
		t.Log(seen.Failure)
	})
}

// serveImage serves random bytes, and returns an image record for them.
func serveImage(t *testing.T, size int) (cluster.SiteImage, []byte) {
	content := bytes.Repeat([]byte("croft"), size/5+1)[:size]
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(web.Close)
	sum := sha256.Sum256(content)
	return cluster.SiteImage{Name: "image-" + string(croft.NewClusterID()[:8]), URL: web.URL + "/image.raw",
		Format: "raw",
		SHA256: hex.EncodeToString(sum[:])}, content
}

// hasGlance reports whether a site accepts images.
func hasGlance(t *testing.T, at cluster.SiteAccess) bool {
	none := cluster.SiteImage{Name: "none", SHA256: strings.Repeat("0", 64)}
	_, err := open(t, heat.Config{}).Bring(t.Context(), at, none)
	return !errors.Is(err, croft.Invalid)
}

func TestImagesWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		at := clouds["demo"].Access("site", "")
		if !hasGlance(t, at) {
			t.Skip("there is no Glance; see test/openstack/glance")
		}
		d := open(t, heat.Config{Linger: 100 * time.Millisecond})
		bring := func(i cluster.SiteImage) (placed cluster.Placed) {
			patient.Until(t, "the image is there, or is not to be", func() bool {
				var err error
				if placed, err = d.Bring(t.Context(), at, i); err != nil {
					t.Fatal(err)
				}
				return placed.State != cluster.ImageUploading
			})
			return placed
		}
		for _, size := range []int{1, 100_000, 3_000_001} {
			i, _ := serveImage(t, size)
			placed := bring(i)
			if placed.State != cluster.ImageReady || placed.Done != int64(size) || placed.Ref == "" {
				t.Errorf("an image of %d bytes is %+v", size, placed)
			}
			if again, err := open(t, heat.Config{}).Bring(t.Context(), at, i); err != nil || again != placed {
				t.Errorf("brought by another process it is %+v, %v, not %+v", again, err, placed)
			}
		}
		wrong, _ := serveImage(t, 200_000)
		wrong.SHA256 = strings.Repeat("ab", 32)
		if placed := bring(wrong); placed.State != cluster.ImageFailed || !strings.Contains(placed.Error, "SHA-256") {
			t.Errorf("an image with another hash is %+v", placed)
		}
		wrong.URL = ""
		if placed := bring(wrong); placed.State != cluster.ImageMissing {
			t.Errorf("what was left of it is %+v", placed)
		}
	})
}
