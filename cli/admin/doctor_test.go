package admin

import (
	"strings"
	"testing"

	"croft/internal/checks"
)

var someFindings = []checks.Result{
	{Level: checks.OK, Check: "kvm", Found: "runs guests"},
	{Level: checks.Fail, Check: "tun", Found: "/dev/net/tun is not there", Do: "modprobe tun"},
}

func TestPrintFindings(t *testing.T) {
	for _, c := range []struct {
		name, format, want string
	}{
		{"text has one line for each thing", "text", `ok    kvm             runs guests
fail  tun             /dev/net/tun is not there; do: modprobe tun
`},
		{"json is for programs", "json", `[
  {
    "level": "ok",
    "check": "kvm",
    "found": "runs guests"
  },
  {
    "level": "fail",
    "check": "tun",
    "found": "/dev/net/tun is not there",
    "do": "modprobe tun"
  }
]
`},
		{"yaml has the same keys", "yaml", `- level: ok
  check: kvm
  found: runs guests
- level: fail
  check: tun
  found: /dev/net/tun is not there
  do: modprobe tun
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			if err := printFindings(&out, c.format, someFindings); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.want {
				t.Errorf("got\n%s\nwant\n%s", out.String(), c.want)
			}
		})
	}
}
