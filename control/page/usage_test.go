package page_test

import (
	"net/http"
	"strings"
	"testing"

	"croft/internal/testing/patient"
)

func drawsUsage(t *testing.T, s served, at string) {
	v := s.login(t, "reader")
	for _, span := range []string{"hour", "day"} {
		patient.Until(t, "usage is measured", func() bool {
			v.get(http.StatusOK, at+"?usage="+span)
			return strings.Contains(v.text, `class="graphs"`)
		})
		v.says(`aria-current="true">last ` + span)
		v.says("<figcaption>Processor, of 1 vCPU</figcaption>")
		v.says("<title>Memory, of 256 MiB: ")
		v.says(`<path class="l0" d="M`)
		v.says(`<th scope="col" class="n">Disk written</th>`)
	}
	v = s.login(t, "berta")
	v.get(http.StatusNotFound, at+"?usage=hour")
	v.hides("Processor")
}

func waitsForNoHost(t *testing.T, s served, at string) {
	ended := make(chan struct{}, 10)
	slow := s.over(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/usage") {
			s.proxy.ServeHTTP(w, r)
			return
		}
		<-r.Context().Done() // the page gives up
		ended <- struct{}{}
	}))
	v := slow.login(t, "anna")
	v.get(http.StatusOK, at)
	<-ended
	v.says("Its host does not answer at the moment")
	v.says(`<h2 id="h-disks">Disks</h2>`)
	v.hides(`class="graphs"`)
}
