package page

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/control/api"
)

func TestTokensAreFoundInAddressesHoweverOftenTheyAreEscaped(t *testing.T) {
	t.Parallel()
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJl"
	for address, refused := range map[string]bool{
		"/ui?token=x":                                   true,
		"/ui?token":                                     true,
		"/ui?TOKEN=x":                                   true,
		"/ui?a=b;token=x":                               true,
		"/ui?access_token=x":                            true,
		"/ui?a=b&id_token=x":                            true,
		"/ui?X-Auth-Token=x":                            true,
		"/ui?%74oken=x":                                 true,
		"/ui?a=" + jwt:                                  true,
		"/ui?a=croft_0123456789ab_secret":               true,
		"/ui?a=CROFT_0123456789AB_secret":               true,
		"/ui?a=%2563roft_0123456789ab_secret":           true,
		"/ui?a=%252563roft_0123456789ab_secret&b=%25zz": true,
		"/ui/%2563roft_0123456789ab_secret":             true,
		"/ui/login?next=%2Fui%3Faccess_token%3Dx":       true,
		"/ui/login?next=%2Fui%2Flogin%3Fnext%3D%252Fui%253Ft%3Dx": false,
		"/ui/instances?filter=token%3Dx+tag%3Atoken":              false,
		"/ui/project?done=token-removed":                          false,
		"/ui/instances?name=100%2525":                             false,
		"/ui/instances?name=a%25zz":                               false,
		"/ui/project/tokens/remove?id=0123456789ab":               false,
		issuerBack + "?code=" + jwt + "&state=x":                  false,
		issuerBack + "?id_token=" + jwt:                           true,
	} {
		u, err := url.ParseRequestURI(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkAddress(u); (croft.KindOf(err) == croft.Denied) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
	deep := &url.URL{Path: "/ui", RawQuery: "a=%" + strings.Repeat("25", 20) + "41"}
	if err := checkAddress(deep); croft.KindOf(err) != croft.Invalid {
		t.Errorf("an address that is escaped twenty times: %v", err)
	}
}

func TestLoginsLeadToThePageOnly(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"/ui":                              "/ui",
		"/ui/instances?name=a%2Fb&x=..":    "/ui/instances?name=a%2Fb&x=..",
		"/ui/pools/a%2Fb":                  "/ui/pools/a%2Fb",
		"/ui/pools/a..b":                   "/ui/pools/a..b",
		"":                                 Root,
		"//elsewhere.example/ui":           Root,
		"https://elsewhere.example/ui":     Root,
		"/uix":                             Root,
		"/ui/../v1":                        Root,
		"/ui/%2e%2e/v1":                    Root,
		"/ui/..%2Fv1":                      Root,
		`/ui/..\v1`:                        Root,
		`/ui\..\v1`:                        Root,
		"/ui/instances/./x":                Root,
		"/ui/login":                        Root,
		"/ui/login/start":                  Root,
		"/ui/logout":                       Root,
		"/ui/link/x":                       Root,
		"/ui/instances?token=x":            Root,
		"/ui/instances\r\nSet-Cookie: x=y": Root,
	} {
		if got := local(address); got != want {
			t.Errorf("%q leads to %s, want %s", address, got, want)
		}
	}
}

func TestFormsAreKeptWithoutSecretsAndWithLF(t *testing.T) {
	t.Parallel()
	with := 0
	for _, f := range append(forms(), form{At: "/instances/new"}) {
		sent := url.Values{"form": {"x"}, "name": {"a\r\nb\rc\n"}}
		for _, name := range f.secrets() {
			sent.Set(name, "hidden")
			with++
		}
		r := httptest.NewRequest(http.MethodPost, Root+f.At, strings.NewReader(sent.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Pattern = "POST " + Root + f.At
		k := keptOf(httptest.NewRecorder(), r)
		if k == nil || !slices.Equal(k.Fields, []keptField{{"name", "a\nb\nc\n"}}) {
			t.Errorf("%s: kept %+v", f.At, k)
		}
	}
	if with < 3 {
		t.Errorf("%d inputs are secret", with)
	}
	for path, fields := range map[string]int{"/logout": 1, "/theme": 1, "/instances/new": mostKept + 1, "/hosts": 0} {
		sent := url.Values{}
		for n := range fields {
			sent.Add("key", strings.Repeat("k", n%9))
		}
		r := httptest.NewRequest(http.MethodPost, Root+path, strings.NewReader(sent.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if k := keptOf(httptest.NewRecorder(), r); k != nil {
			t.Errorf("%s: kept %+v", path, k)
		}
	}
}

func TestABulkActionSaysWhatItDidWhenTheTimeIsOver(t *testing.T) {
	t.Parallel()
	rows := func() bulkPreview {
		d := bulkPreview{Rows: make([]outcome, mostPicked), Done: true}
		for n := range d.Rows {
			d.Rows[n].found = n > 0
			d.Rows[n].ID = croft.NewInstanceID()
		}
		d.Rows[0].Error = "it is gone"
		return d
	}
	t.Run("slow answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), answerTime)
			defer cancel()
			d, began, done := rows(), time.Now(), map[croft.InstanceID]bool{}
			turn := make(chan struct{}, 1)
			d.do(ctx, func(i api.Instance) error {
				time.Sleep(2 * time.Second)
				turn <- struct{}{}
				done[i.ID] = true
				<-turn
				return nil
			})
			if took := time.Since(began); took > answerTime-answerRoom+2*time.Second {
				t.Errorf("it took %s", took)
			}
			for _, one := range d.Rows[1:] {
				if one.Left == done[one.ID] || one.Lost || one.Error != "" {
					t.Errorf("done %v: %+v", done[one.ID], one)
				}
			}
			if len(done) < 80 || len(d.Rest())+len(done) != mostPicked-1 {
				t.Errorf("%d done, %d left out", len(done), len(d.Rest()))
			}
			if says := d.Outcome(); !strings.HasPrefix(says, "1 of 500 failed, ") ||
				!strings.Contains(says, " left out,") {
				t.Error(says)
			}
		})
	})
	t.Run("answers that come too late, and refusals until the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), answerTime)
			defer cancel()
			d := rows()
			often := api.NewProblem(api.Busy, "too often")
			often.Status = http.StatusTooManyRequests
			d.do(ctx, func(i api.Instance) error {
				<-ctx.Done()
				if i.ID == d.Rows[1].ID {
					return often
				}
				return ctx.Err()
			})
			lost := 0
			for _, one := range d.Rows {
				if one.Lost {
					lost++
				}
			}
			if lost != 7 || !d.Rows[1].Left || len(d.Rest()) != mostPicked-8 {
				t.Errorf("%d without an answer, %d left out", lost, len(d.Rest()))
			}
		})
	})
}

func TestPickedInstancesCountOnceByTheirUUID(t *testing.T) {
	t.Parallel()
	id := string(croft.NewInstanceID())
	same := []string{id, strings.ToUpper(id), strings.ReplaceAll(id, "-", "")}
	for len(same) < mostPicked+1 {
		same = append(same, id)
	}
	if ids, err := pickedIn(same); err != nil || len(ids) != 1 || string(ids[0]) != id {
		t.Errorf("got %v, %v", ids, err)
	}
	var many []string
	for range mostPicked + 1 {
		many = append(many, string(croft.NewInstanceID()))
	}
	for name, texts := range map[string][]string{"none": nil, "too many": many, "a name": {id, "web"}, "empty": {""}} {
		if _, err := pickedIn(texts); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := versionIn(url.Values{"version": {`"3"`}}); err != nil {
		t.Error(err)
	}
	for _, version := range []string{"", "*", ` *`, `"1", "2"`, `1, 2`, `W/"1"`, "x"} {
		if _, err := versionIn(url.Values{"version": {version}}); !errors.Is(err, croft.Invalid) {
			t.Errorf("%q is accepted as a version", version)
		}
	}
}
