package httpapi_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/internal/httpapi"
)

func TestBodiesAreBounded(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       croft.Kind
	}{
		{"none", "", ""},
		{"the longest", strings.Repeat("x", 10), ""},
		{"one byte more", strings.Repeat("x", 11), croft.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			got, err := httpapi.ReadBody(w, httptest.NewRequest("POST", "/", strings.NewReader(c.body)), 10,
				time.Minute)
			if croft.KindOf(err) != c.want || err == nil && string(got) != c.body {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestTheStatusOfAnAnswerIsNoted(t *testing.T) {
	w := httptest.NewRecorder()
	noted := httpapi.RecordStatus(w)
	if noted.Status != http.StatusOK || noted.Unwrap() != http.ResponseWriter(w) {
		t.Errorf("before an answer: %d", noted.Status)
	}
	httpapi.Answer(noted, http.StatusTeapot, map[string]int{"n": 1})
	if noted.Status != http.StatusTeapot || w.Code != http.StatusTeapot || w.Body.String() != "{\"n\":1}\n" ||
		w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %d %s %v", noted.Status, w.Code, w.Body, w.Header())
	}
	w = httptest.NewRecorder()
	httpapi.Answer(w, http.StatusOK, math.Inf(1))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("what is no JSON is answered with %d", w.Code)
	}
}

func TestAFieldThatNobodyKnowsIsAnError(t *testing.T) {
	var into struct {
		N int `json:"n"`
	}
	if err := httpapi.Decode([]byte(`{"n": 1}`), &into); err != nil || into.N != 1 {
		t.Errorf("%+v, %v", into, err)
	}
	for _, text := range []string{`{"m": 1}`, `{"n": "1"}`, `{`, ``} {
		if err := httpapi.Decode([]byte(text), &into); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

func TestTextIsUnicode(t *testing.T) {
	for text, good := range map[string]bool{
		`{"n":"J\u00f6rg ö \ud83d\ude00"}`: true, `"\\ud800"`: true, `"\\\\ud800"`: true, `"\n\""`: true,
		"\"J\xf6rg\"": false, `"\ud800x"`: false, `"\udc00"`: false, `"\ude00\ud83d"`: false, `"\\\ud800"`: false,
		`"\ud83d\u0041"`: false, `"\ud83d`: false, `\`: true, `\u12`: true, // not JSON, which others say
	} {
		if err := httpapi.CheckText([]byte(text)); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
