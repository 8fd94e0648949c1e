package schedule_test

import (
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

func TestAnInstanceExpiresAndIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, 2)
		r := request(t, "web")
		r.Expires = 8 * time.Hour
		d, err := c.Request(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		expires := func(want time.Duration) {
			t.Helper()
			st, err := c.store.Find(t.Context(), croft.DefaultProject, "web")
			got := time.Until(st.Instance.Expires)
			if want == 0 {
				got = time.Duration(st.Instance.Expires.Unix() - time.Time{}.Unix())
			}
			if err != nil || got.Round(time.Second) != want {
				t.Errorf("it expires in %s, want %s, %v", got, want, err)
			}
		}
		expires(8 * time.Hour)
		time.Sleep(3 * time.Hour)
		for _, life := range []time.Duration{8 * time.Hour, time.Hour, 0, time.Second} {
			got, err := c.Keep(t.Context(), croft.DefaultProject, string(d.Instance.ID), life, nil)
			if err != nil || got.Revision == d.Instance.Revision {
				t.Fatalf("got %+v, %v", got, err)
			}
			expires(life)
		}
		_, err = c.Keep(t.Context(), croft.DefaultProject, "web", time.Millisecond, nil)
		wantKind(t, err, croft.Invalid)
		_, err = c.Keep(t.Context(), croft.DefaultProject, "nobody", time.Hour, nil)
		wantKind(t, err, croft.NotFound)
		if _, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false); err != nil {
			t.Fatal(err)
		}
		_, err = c.Keep(t.Context(), croft.DefaultProject, "web", time.Hour, nil)
		wantKind(t, err, croft.Conflict)
	})
}

func TestALifeHasLimits(t *testing.T) {
	for _, life := range []time.Duration{-time.Hour, time.Millisecond, 20 * 365 * 24 * time.Hour} {
		c, r := newCloud(t, 1), request(t, "web")
		r.Expires = life
		_, err := c.Request(t.Context(), r)
		wantKind(t, err, croft.Invalid)
		c.nothingLeft(t)
	}
}
