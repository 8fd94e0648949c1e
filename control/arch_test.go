package control

import (
	"errors"
	"testing"

	"croft"
)

func TestTheArchitectureOfAMachineIsTheOneThatIsStated(t *testing.T) {
	const x86, arm = croft.ArchX86, croft.ArchAArch64
	for name, c := range map[string]struct {
		given  croft.Arch
		images []source
		want   croft.Arch
		kind   error
	}{
		"nothing is":                             {"", []source{{}, {}}, "", nil},
		"by the request":                         {arm, []source{{}}, arm, nil},
		"by the request, for the default":        {x86, []source{{}}, x86, nil},
		"by the image":                           {"", []source{{arch: arm}}, arm, nil},
		"by the image, for the default":          {"", []source{{arch: x86}}, "", nil},
		"by the CD":                              {"", []source{{}, {arch: arm}}, arm, nil},
		"by the CD, and the disk's name differs": {"", []source{{guess: x86}, {arch: arm}}, arm, nil},
		"by the name":                            {"", []source{{guess: arm}}, arm, nil},
		"by the request, against the name":       {x86, []source{{guess: arm}}, x86, nil},
		"by the image, against its name":         {"", []source{{arch: x86, guess: arm}}, "", nil},
		"twice, alike":                           {arm, []source{{arch: arm}, {arch: arm}}, arm, nil},
		"by the request, against the image":      {x86, []source{{arch: arm}}, "", croft.Invalid},
		"by the request, against an older image": {arm, []source{{arch: x86}}, "", croft.Invalid},
		"by the disk, against the CD":            {"", []source{{arch: x86}, {arch: arm}}, "", croft.Invalid},
	} {
		got, err := archOf(c.given, c.images...)
		if got != c.want || (err != nil) != (c.kind != nil) || err != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
