package placement_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"croft/internal/testing/sample"
	"croft/placement"
)

const (
	tidyHost = "7d1f5f3c-6f2b-4d5c-8b53-0d1c0a7b7a11"
	oneHost  = `{"uuid": "` + tidyHost + `", "name": "host"}`
)

// there returns the existing names.
func there(send func(method, path, body string) int, paths ...string) (found []string) {
	for _, path := range paths {
		if send("GET", path, "") < 300 {
			found = append(found, path)
		}
	}
	return found
}

func TestNamesThatNobodyUsesGo(t *testing.T) {
	inTrouble(t, func(t *testing.T, s *troubled, _ *placement.Server, send func(method, path, body string) int) {
		want := func(status int, method, path, body string) {
			t.Helper()
			if code := send(method, path, body); code != status {
				t.Fatalf("%s %s: %d, want %d", method, path, code, status)
			}
		}
		all := []string{
			"/traits/CUSTOM_USED", "/traits/CUSTOM_FREE", "/traits/CUSTOM_LATE", "/traits/CUSTOM_LEFT",
			"/resource_classes/CUSTOM_USED", "/resource_classes/CUSTOM_FREE", "/traits/HW_CPU_X86_AVX",
			"/resource_classes/VCPU",
		}
		want(200, "POST", "/resource_providers", oneHost)
		for _, path := range all[:6] {
			want(201, "PUT", path, "")
		}
		traits := func(generation int, names string) {
			want(200, "PUT", "/resource_providers/"+tidyHost+"/traits",
				fmt.Sprintf(`{"resource_provider_generation": %d, "traits": [%s]}`, generation, names))
		}
		want(200, "PUT", "/resource_providers/"+tidyHost+"/inventories",
			`{"resource_provider_generation": 0, "inventories": {"CUSTOM_USED": {"total": 1}}}`)
		traits(1, `"CUSTOM_USED", "CUSTOM_LEFT"`)
		wantLeft := func(when string, wanted ...string) {
			t.Helper()
			if left := there(send, all...); !slices.Equal(left, wanted) {
				t.Errorf("%s: %q are left, want %q", when, left, wanted)
			}
		}
		time.Sleep(24*time.Hour - time.Minute)
		wantLeft("in the first day", all...)
		traits(2, `"CUSTOM_USED", "CUSTOM_LATE", "CUSTOM_LEFT"`) // just before removal
		traits(3, `"CUSTOM_USED", "CUSTOM_LATE"`)
		time.Sleep(5 * time.Minute)
		wantLeft("after a day", all[0], all[2], all[3], all[4], all[6], all[7])
		time.Sleep(15 * time.Minute) // the names left then have been unused for long enough
		wantLeft("later", all[0], all[2], all[4], all[6], all[7])
		traits(4, "")
		want(204, "DELETE", "/resource_providers/"+tidyHost+"/inventories", "")
		time.Sleep(15 * time.Minute)
		wantLeft("when the host has none", all[6], all[7])
	})
}

// Another server gives a provider a trait that this one is about to remove.
func TestANameThatIsTakenMeanwhileStays(t *testing.T) {
	inTrouble(t, func(t *testing.T, s *troubled, _ *placement.Server, send func(method, path, body string) int) {
		send("POST", "/resource_providers", oneHost)
		send("PUT", "/traits/CUSTOM_FREE", "")
		other := &troubled{}
		other.current.Store(s.current.Load())
		second, err := placement.New(placement.Config{Store: other, Log: slog.New(slog.DiscardHandler),
			Tidy: 365 * 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- second.Run(ctx) }()
		time.Sleep(24*time.Hour - time.Second)
		// The first server sees no change by the second before it has decided.
		(*s.breaks.Load())(errors.New("cut"))
		r := httptest.NewRequestWithContext(ctx, "PUT", "/resource_providers/"+tidyHost+"/traits",
			strings.NewReader(`{"resource_provider_generation": 0, "traits": ["CUSTOM_FREE"]}`))
		r.Header.Set("X-Auth-Token", "admin")
		r.Header.Set("OpenStack-API-Version", "placement 1.39")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		second.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		time.Sleep(2 * time.Hour)
		if left := there(send, "/traits/CUSTOM_FREE"); len(left) != 1 {
			t.Error("a trait in use was removed")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestNoMoreCustomNamesThanThereMayBe(t *testing.T) {
	inTrouble(t, func(t *testing.T, s *troubled, _ *placement.Server, send func(method, path, body string) int) {
		kinds := sample.OneIn(t, 2, []string{"traits", "resource_classes"})
		for _, kind := range kinds {
			made, code := 0, 0
			for ; made <= 20_000; made++ {
				if code = send("PUT", fmt.Sprintf("/%s/CUSTOM_%d", kind, made), ""); code != http.StatusCreated {
					break
				}
			}
			if made != 20_000 || code != http.StatusForbidden {
				t.Errorf("%d %s were made, then %d", made, kind, code)
			}
		}
		time.Sleep(time.Hour) // with this many, unused names are removed sooner
		for _, kind := range kinds {
			if code := send("PUT", "/"+kind+"/CUSTOM_AGAIN", ""); code != http.StatusCreated {
				t.Errorf("an hour later: %d", code)
			}
		}
		if left := there(send, "/traits/CUSTOM_7", "/resource_classes/CUSTOM_7"); len(left) > 0 {
			t.Errorf("%q are left", left)
		}
	})
}
